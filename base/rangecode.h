/* rangecode.h - a binary range coder whose probabilities learn, as LZMA's, from the front of a stream, and bits that no
 * model can foresee from its end. Pure; inline, because a bit is a few ns.
 *
 * The coder writes into bounded memory and says `full`; the decoder reads zeros behind the end and says `bad`. */
#ifndef TB_BASE_RANGECODE_H
#define TB_BASE_RANGECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TB_RANGE_TOP       (UINT32_C(1) << 24)
#define TB_RANGE_FLUSH     5u  /* bytes that end a stream */
#define TB_CHANCE_MARGIN   32u /* no bit is ever certain: 12 bits of a chance are used */
#define TB_CHANCE_SEEN_MAX 48u

/* The chance of a 0 in 65536ths, and how many bits were seen: the first ones count more. */
struct tb_chance {
    uint16_t zero;
    uint8_t seen;
};

static inline void tb_chance_init(struct tb_chance *chances, size_t count)
{
    for (size_t i = 0; i < count; i++)
        chances[i] = (struct tb_chance){0x8000, 0};
}

/* After n bits a chance moves by about 1/n of what it was wrong, at last by 1/128. Without a branch: bits are coded
 * because nobody can foresee them, and a processor can not either. */
static inline void tb_chance_learn(struct tb_chance *c, bool bit)
{
    static const uint8_t rates[TB_CHANCE_SEEN_MAX + 1] = {
        2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6,
        6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7,
    };
    const uint32_t flip = (0u - (uint32_t)bit) & 0xffff;
    uint32_t likely = c->zero ^ flip; /* of the bit that came */
    likely += (65535u - likely) >> rates[c->seen];
    likely = likely > 65535u - TB_CHANCE_MARGIN ? 65535u - TB_CHANCE_MARGIN : likely;
    c->zero = (uint16_t)(likely ^ flip);
    c->seen = (uint8_t)(c->seen + (c->seen < TB_CHANCE_SEEN_MAX));
}

struct tb_range_coder {
    uint64_t low;
    uint32_t range;
    uint8_t held;    /* the last byte, which a carry may still change */
    uint64_t behind; /* it and the 0xff bytes after it */
    uint8_t *out;
    size_t used, cap;
    uint64_t even; /* bits that wait for a whole byte, the lowest first */
    unsigned even_bits;
    size_t even_used; /* bytes from the end of out */
    bool full;
};

static inline void tb_range_coder_init(struct tb_range_coder *c, uint8_t *out, size_t cap)
{
    *c = (struct tb_range_coder){.range = UINT32_MAX, .behind = 1, .out = out, .cap = cap};
}

static inline void tb_range_put(struct tb_range_coder *c, uint8_t byte)
{
    if (c->used + c->even_used >= c->cap)
        c->full = true;
    else
        c->out[c->used++] = byte;
}

static inline void tb_range_shift(struct tb_range_coder *c)
{
    if (c->low < UINT32_C(0xff000000) || c->low > UINT32_MAX) {
        const uint8_t carry = (uint8_t)(c->low >> 32);
        tb_range_put(c, (uint8_t)(c->held + carry));
        for (; c->behind > 1; c->behind--)
            tb_range_put(c, (uint8_t)(0xff + carry));
        c->behind = 0;
        c->held = (uint8_t)(c->low >> 24);
    }
    c->behind++;
    c->low = (c->low & 0x00ffffff) << 8;
}

static inline void tb_range_code(struct tb_range_coder *c, struct tb_chance *chance, bool bit)
{
    const uint32_t zero = (c->range >> 12) * (chance->zero >> 4);
    const uint32_t mask = 0u - (uint32_t)bit;
    c->low += zero & mask;
    c->range = zero + ((c->range - 2 * zero) & mask); /* modulo 2^32: range - zero for a 1 */
    tb_chance_learn(chance, bit);
    for (; c->range < TB_RANGE_TOP; c->range <<= 8)
        tb_range_shift(c);
}

static inline void tb_range_put_even(struct tb_range_coder *c)
{
    if (c->used + c->even_used >= c->cap)
        c->full = true;
    else
        c->out[c->cap - ++c->even_used] = (uint8_t)c->even;
    c->even >>= 8;
}

/* The lowest `bits` (at most 32) of `value`, each as likely 0 as 1: not worth a range. They fill bytes from the lowest
 * bit up, and the bytes lie from the end of the memory down. */
static inline void tb_range_code_even(struct tb_range_coder *c, uint32_t value, unsigned bits)
{
    c->even |= (value & ((UINT64_C(1) << bits) - 1)) << c->even_bits;
    c->even_bits += bits;
    for (; c->even_bits >= 8; c->even_bits -= 8)
        tb_range_put_even(c);
}

/* The bytes of the whole stream, from the start of the memory on; what it held behind them is void. Not if `full`. */
static inline size_t tb_range_end(struct tb_range_coder *c)
{
    for (unsigned i = 0; i < TB_RANGE_FLUSH; i++)
        tb_range_shift(c);
    if (c->even_bits > 0) tb_range_put_even(c);
    for (size_t i = 0; i < c->even_used; i++)
        c->out[c->used + i] = c->out[c->cap - c->even_used + i];
    return c->used + c->even_used;
}

struct tb_range_decoder {
    uint32_t range, code;
    const uint8_t *in;
    size_t at, count;
    uint64_t even;
    unsigned even_bits;
    size_t even_used; /* bytes from the end of `in` */
    bool bad;
};

static inline void tb_range_pull(struct tb_range_decoder *d)
{
    uint8_t byte = 0;
    if (d->at == d->count)
        d->bad = true;
    else
        byte = d->in[d->at++];
    d->code = d->code << 8 | byte;
}

static inline void tb_range_decoder_init(struct tb_range_decoder *d, const uint8_t *in, size_t count)
{
    *d = (struct tb_range_decoder){.range = UINT32_MAX, .in = in, .count = count};
    if (count == 0 || in[0] != 0) d->bad = true; /* the coder's first byte has nothing before it */
    for (unsigned i = 0; i < TB_RANGE_FLUSH; i++)
        tb_range_pull(d);
}

static inline bool tb_range_decode(struct tb_range_decoder *d, struct tb_chance *chance)
{
    const uint32_t zero = (d->range >> 12) * (chance->zero >> 4);
    const bool bit = d->code >= zero;
    const uint32_t mask = 0u - (uint32_t)bit;
    d->code -= zero & mask;
    d->range = zero + ((d->range - 2 * zero) & mask);
    tb_chance_learn(chance, bit);
    for (; d->range < TB_RANGE_TOP; d->range <<= 8)
        tb_range_pull(d);
    return bit;
}

static inline uint32_t tb_range_decode_even(struct tb_range_decoder *d, unsigned bits)
{
    for (; d->even_bits < bits; d->even_bits += 8) {
        if (d->even_used == d->count)
            d->bad = true;
        else
            d->even |= (uint64_t)d->in[d->count - ++d->even_used] << d->even_bits;
    }
    const uint32_t value = (uint32_t)(d->even & ((UINT64_C(1) << bits) - 1));
    d->even >>= bits;
    d->even_bits -= bits;
    return value;
}

/* All was read, once, and nothing is left: the two halves meet, and the last even byte is filled up with zeros. */
static inline bool tb_range_ended(const struct tb_range_decoder *d)
{
    return !d->bad && d->at + d->even_used == d->count && d->even_bits < 8 && d->even == 0;
}

#endif

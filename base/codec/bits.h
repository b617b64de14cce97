/* bits.h - streams of bits, and numbers in them as Rice codes. They fill bytes from the lowest bit
 * up; the last byte is filled with zeros. Pure; inline, because a number is a few ns.
 *
 * The writer stays in bounded memory and says `full`; the reader reads zeros behind the end and
 * says so in tb_bits_ended. */
#ifndef TB_BASE_BITS_H
#define TB_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"

#define TB_BITS_MAX 56u /* in one call: 64 less what a partial byte may take */

/* A number n by Rice's code with parameter k: n >> k zeros and a one, then the low k bits of n.
 * From 16 zeros on it is written plain behind them: no number costs more than its width and 16 (R.
 * F. Rice, JPL Publication 79-22). */
#define TB_RICE_ZEROS_MAX 16u

struct tb_bit_writer {
    uint64_t waiting; /* bits of the next bytes, the lowest first */
    unsigned bits;    /* of them; below 8 between calls */
    uint8_t *out;
    size_t used, cap; /* bytes */
    bool full;
};

static inline void tb_bit_writer_init(struct tb_bit_writer *w, uint8_t *out, size_t cap)
{
    *w = (struct tb_bit_writer){.out = out, .cap = cap};
}

static inline uint64_t tb_bits_mask(unsigned bits)
{
    return (UINT64_C(1) << bits) - 1;
}

/* Near the end of its memory a writer goes byte by byte. */
static inline __attribute__((always_inline)) void tb_bits_put_slowly(struct tb_bit_writer *w)
{
    for (; w->bits >= 8; w->bits -= 8, w->waiting >>= 8) {
        if (w->used == w->cap) {
            w->full = true;
            w->bits &= 7;
            w->waiting = 0;
            return;
        }
        w->out[w->used++] = (uint8_t)w->waiting;
    }
}

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define TB_BITS_LITTLE(v) __builtin_bswap64(v)
#else
#define TB_BITS_LITTLE(v) (v)
#endif

static inline void tb_bits_store(uint8_t *at, uint64_t v)
{
    v = TB_BITS_LITTLE(v);
    memcpy(at, &v, 8);
}

static inline uint64_t tb_bits_load(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, 8);
    return TB_BITS_LITTLE(v);
}

/* The lowest `bits` (at most TB_BITS_MAX) of `value`, which has no others. */
static inline void tb_bits_put(struct tb_bit_writer *w, uint64_t value, unsigned bits)
{
    w->waiting |= value << w->bits;
    w->bits += bits;
    if (__builtin_expect(w->cap - w->used < 8, 0)) {
        tb_bits_put_slowly(w);
        return;
    }
    tb_bits_store(w->out + w->used, w->waiting);
    w->used += w->bits / 8;
    w->waiting >>= w->bits & ~7u; /* at most 56 */
    w->bits &= 7;
}

static inline void tb_rice_put(struct tb_bit_writer *w, uint32_t n, unsigned k, unsigned width)
{
    const uint32_t zeros = n >> k;
    if (__builtin_expect(zeros < TB_RICE_ZEROS_MAX, 1)) {
        tb_bits_put(w, (((uint64_t)(n & tb_bits_mask(k)) << 1 | 1) << zeros), zeros + 1 + k);
        return;
    }
    tb_bits_put(w, (uint64_t)n << TB_RICE_ZEROS_MAX, TB_RICE_ZEROS_MAX + width);
}

/* A count below 2^31: its bit length in 5 bits, then the bits below its highest one. */
static inline void tb_count_put(struct tb_bit_writer *w, uint32_t n)
{
    TB_ASSERT(n <= INT32_MAX);
    const unsigned length = n == 0 ? 0 : 32u - (unsigned)__builtin_clz(n);
    tb_bits_put(w, length, 5);
    if (length > 1) tb_bits_put(w, n & tb_bits_mask(length - 1), length - 1);
}

/* Ends the stream; the bytes it has. Not if `full`. */
static inline size_t tb_bit_writer_end(struct tb_bit_writer *w)
{
    TB_ASSERT(w->bits < 8 && w->used <= w->cap);
    if (w->bits > 0) tb_bits_put(w, 0, 8 - w->bits);
    return w->used;
}

struct tb_bit_reader {
    const uint8_t *in;
    size_t count; /* bytes */
    size_t at;    /* bits */
};

static inline void tb_bit_reader_init(struct tb_bit_reader *r, const uint8_t *in, size_t count)
{
    *r = (struct tb_bit_reader){.in = in, .count = count};
}

/* The next bits, at least TB_BITS_MAX + 1 of them, lowest first. */
static inline uint64_t tb_bits_peek(const struct tb_bit_reader *r)
{
    const size_t byte = r->at / 8;
    if (__builtin_expect(byte + 8 <= r->count, 1)) return tb_bits_load(r->in + byte) >> (r->at & 7);
    uint8_t last[8] = {0};
    if (byte < r->count) memcpy(last, r->in + byte, r->count - byte);
    return tb_bits_load(last) >> (r->at & 7);
}

static inline uint64_t tb_bits_get(struct tb_bit_reader *r, unsigned bits)
{
    const uint64_t value = tb_bits_peek(r) & tb_bits_mask(bits);
    r->at += bits;
    return value;
}

static inline uint32_t tb_rice_get(struct tb_bit_reader *r, unsigned k, unsigned width)
{
    const uint64_t next = tb_bits_peek(r);
    const unsigned zeros = (unsigned)__builtin_ctzll(next | UINT64_C(1) << TB_RICE_ZEROS_MAX);
    if (__builtin_expect(zeros < TB_RICE_ZEROS_MAX, 1)) {
        r->at += zeros + 1 + k;
        return zeros << k | (uint32_t)(next >> (zeros + 1) & tb_bits_mask(k));
    }
    r->at += TB_RICE_ZEROS_MAX + width;
    return (uint32_t)(next >> TB_RICE_ZEROS_MAX & tb_bits_mask(width));
}

static inline uint32_t tb_count_get(struct tb_bit_reader *r)
{
    const unsigned length = (unsigned)tb_bits_get(r, 5);
    if (length < 2) return length;
    return (uint32_t)(UINT64_C(1) << (length - 1) | tb_bits_get(r, length - 1));
}

static inline bool tb_bits_over(const struct tb_bit_reader *r)
{
    return r->at > 8 * r->count;
}

/* All was read and nothing is left but the zeros that fill the last byte. */
static inline bool tb_bits_ended(const struct tb_bit_reader *r)
{
    if (tb_bits_over(r)) return false;
    const size_t left = 8 * r->count - r->at;
    return left < 8 && (left == 0 || r->in[r->count - 1] >> (8 - left) == 0);
}

/* The parameter for `count` (not 0) numbers that add up to `sum`, as if they were geometric: the
 * largest k, at most k_max, with 1.039 x 2^k <= mean + 1/2, where k and k - 1 cost the same (A.
 * Kiely, IPN Progress Report 42-159, 2004). */
static inline unsigned tb_rice_choose(uint64_t sum, uint64_t count, unsigned k_max)
{
    TB_ASSERT(count > 0 && k_max < 32);
    const uint64_t mean_64 = (2 * sum + count) * 32; /* (mean + 1/2) x count x 64 */
    unsigned k = 0;
    while (k < k_max && mean_64 >= count * 133 / 2 << (k + 1))
        k++;
    return k;
}

#endif

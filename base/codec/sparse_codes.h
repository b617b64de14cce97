/* sparse_codes.h - gaps as Rice codes, four at once where they are short, and what their parameter
 * is chosen by: the same text compiled for each variant, because shifts by a number of bits are one
 * instruction on some and three on others. */
#ifndef TB_BASE_SPARSE_CODES_H
#define TB_BASE_SPARSE_CODES_H

#include "base/assert.h"
#include "base/codec/sparse_kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- the parameter ---- */

INLINE uint32_t number_at(const void *numbers, unsigned bytes, size_t i)
{
    return bytes == 2 ? ((const uint16_t *)numbers)[i] : ((const uint32_t *)numbers)[i];
}

#define NUMBERS_MAX 2048u /* of 31 each, in 16 bits */

/* A gap that is written plain costs about 31 bits more than k and a one. Sums of a few are in 16
 * bits, as vectors of gaps are. */
INLINE uint64_t zeros_of(const void *numbers, unsigned bytes, size_t count, unsigned k)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < count; at += NUMBERS_MAX) {
        const size_t end = count - at < NUMBERS_MAX ? count : at + NUMBERS_MAX;
        uint16_t few = 0;
        for (size_t i = at; i < end; i++) {
            const uint32_t zeros = number_at(numbers, bytes, i) >> k;
            few = (uint16_t)(few + (zeros < 31 ? zeros : 31));
        }
        sum += few;
    }
    return sum;
}

static uint64_t zeros(const struct tb_sparse_numbers *n, unsigned k)
{
    TB_ASSERT(k < 32 && (n->bytes == 2 || n->bytes == 4));
    return n->bytes == 2 ? zeros_of(n->numbers, 2, n->count, k) : zeros_of(n->numbers, 4, n->count, k);
}

/* ---- coding ---- */

#define GROUP 4u /* codes at once */

/* As many codes as one word has room for, or none: one of them is plain, or they are long. */
INLINE bool group_code(struct tb_bit_writer *w, const uint16_t *gaps, unsigned k)
{
    uint64_t codes = 0;
    uint32_t zeros_all = 0;
    unsigned bits = 0;
    for (unsigned i = 0; i < GROUP; i++) {
        const uint32_t zeros = gaps[i] >> k;
        zeros_all |= zeros;
        codes |= (((uint64_t)(gaps[i] & tb_bits_mask(k)) << 1 | 1) << (zeros & 31)) << (bits & 63);
        bits += zeros + 1 + k;
    }
    if (zeros_all >= TB_RICE_ZEROS_MAX || bits > TB_BITS_MAX) return false;
    tb_bits_put(w, codes, bits);
    return true;
}

INLINE size_t batch_end(size_t i, size_t count)
{
    const size_t next = (i / TB_SPARSE_BATCH + 1) * TB_SPARSE_BATCH;
    return next < count ? next : count;
}

static void gaps_code(struct tb_bit_writer *w, const uint16_t *gaps, size_t count, unsigned k,
                      struct tb_sparse_ahead *ahead)
{
    struct tb_bit_writer fast = *w; /* in registers, which what it writes can not alias */
    for (size_t i = 0; i < count;) {
        const size_t end = batch_end(i, count);
        while (i + GROUP <= end && group_code(&fast, gaps + i, k))
            i += GROUP;
        for (unsigned of = 0; of < GROUP && i < end; of++, i++)
            tb_rice_put(&fast, gaps[i], k, TB_SPARSE_GAP_BITS);
        if (i == end) tb_sparse_ahead_fetch(ahead);
    }
    *w = fast;
}

/* ---- decoding ---- */

/* Codes that one look at the stream has whole, or none. */
INLINE bool group_decode(struct tb_bit_reader *r, uint32_t *gaps_out, unsigned k)
{
    uint64_t next = tb_bits_peek(r);
    unsigned zeros_all = 0, bits = 0;
    for (unsigned i = 0; i < GROUP; i++) {
        const unsigned zeros = (unsigned)__builtin_ctzll(next | UINT64_C(1) << 63);
        zeros_all |= zeros;
        gaps_out[i] = (uint32_t)(zeros << k | (uint32_t)(next >> zeros >> 1 & tb_bits_mask(k)));
        next = next >> zeros >> (1 + k);
        bits += zeros + 1 + k;
    }
    if (zeros_all >= TB_RICE_ZEROS_MAX || bits > TB_BITS_MAX) return false;
    r->at += bits;
    return true;
}

/* Gaps, or with `places` where they lead. */
INLINE uint64_t codes_decode(struct tb_bit_reader *r, uint16_t *out, size_t count, unsigned k,
                             struct tb_sparse_ahead *ahead, bool places)
{
    struct tb_bit_reader fast = *r;
    uint64_t at = 0;
    uint32_t gaps[GROUP];
    for (size_t i = 0; i < count;) {
        const size_t end = batch_end(i, count);
        for (; i + GROUP <= end && group_decode(&fast, gaps, k); i += GROUP)
            for (unsigned of = 0; of < GROUP; of++, at++)
                out[i + of] = (uint16_t)(places ? at += gaps[of] : gaps[of]);
        for (unsigned of = 0; of < GROUP && i < end; of++, i++, at++) {
            const uint32_t gap = tb_rice_get(&fast, k, TB_SPARSE_GAP_BITS);
            out[i] = (uint16_t)(places ? at += gap : gap);
        }
        if (i == end) tb_sparse_ahead_fetch(ahead);
    }
    *r = fast;
    return at;
}

static void gaps_decode(struct tb_bit_reader *r, uint16_t *gaps_out, size_t count, unsigned k,
                        struct tb_sparse_ahead *ahead)
{
    (void)codes_decode(r, gaps_out, count, k, ahead, false);
}

static uint64_t places_decode(struct tb_bit_reader *r, uint16_t *places_out, size_t count, unsigned k,
                              struct tb_sparse_ahead *ahead)
{
    return codes_decode(r, places_out, count, k, ahead, true);
}

/* ---- steps ---- */

/* One by one: what is less than a vector has. */
static struct tb_sparse_signs signs_few(const struct tb_sparse_amounts *amounts)
{
    const uint32_t mask = (uint32_t)tb_bits_mask(8 * amounts->width);
    struct tb_sparse_signs signs = {0, 0};
    for (unsigned i = 0; i < amounts->count; i++) {
        const uint32_t amount = amounts->differences[i] & mask;
        signs.negative |= amount >> (8 * amounts->width - 1) << i;
        signs.odd |= (uint32_t)(amount != 1 && amount != mask) << i;
    }
    return signs;
}

#undef INLINE

#endif

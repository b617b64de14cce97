/* planes_portable.c - the variant that every machine has, and what the others are tested against:
 * eight bytes of a word at a time where that is simple, else one by one. */
#include "base/assert.h"
#include "base/codec/planes_kernels.h"

#include "base/codec/bit_loops.h"
#include "base/codec/bits.h"

#define INLINE static inline __attribute__((always_inline))
#define ONES   UINT64_C(0x0101010101010101)

/* The lowest bits of eight bytes, gathered by a multiplication: no two of its terms meet. */
INLINE uint64_t gather(uint64_t bytes)
{
    return (bytes & ONES) * UINT64_C(0x0102040810204080) >> 56;
}

/* Eight bits as the lowest ones of eight bytes. */
INLINE uint64_t scatter(uint64_t bits)
{
    const uint64_t apart = (bits & 255) * ONES & UINT64_C(0x8040201008040201);
    return (apart + 0x7f * ONES) >> 7 & ONES;
}

INLINE uint64_t group_bits(const uint8_t *hot, unsigned bit)
{
    uint64_t out = 0;
    for (unsigned i = 0; i < 8; i++)
        out |= gather(tb_bits_load(hot + 8 * i) >> bit) << (8 * i);
    return out;
}

INLINE void group_codes(const struct tb_cascade *c, const uint8_t *hot, unsigned levels, uint64_t *low,
                        uint64_t *high)
{
    uint8_t places[TB_CASCADE_GROUP];
    for (unsigned i = 0; i < TB_CASCADE_GROUP; i++)
        places[i] = c->index[hot[i]];
    const uint64_t l = group_bits(places, 0), h = group_bits(places, 1);
    const uint64_t odd = group_bits(places, 2), upper = group_bits(places, 3);
    const uint64_t above[TB_CASCADE_LEVELS_MAX] = {odd | upper, upper, odd & upper, 0}; /* a later level's */
    for (unsigned j = 0; j < levels; j++) {
        low[j] = l | above[j];
        high[j] = h | above[j];
    }
}

INLINE void group_keys(const struct tb_cascade *c, unsigned levels, const uint64_t *place,
                       const uint64_t *raw, uint8_t *out)
{
    (void)levels;
    for (unsigned i = 0; i < TB_CASCADE_GROUP; i += 8) {
        uint64_t bits = 0;
        for (unsigned b = 0; b < c->raw_bits; b++)
            bits |= scatter(raw[b] >> i) << b;
        uint64_t at = scatter(place[0] >> i) | scatter(place[1] >> i) << 1 | scatter(place[2] >> i) << 2 |
                      scatter(place[3] >> i) << 3;
        for (unsigned k = 0; k < 8; k++, at >>= 8, bits >>= 8)
            out[i + k] = (uint8_t)(c->palette[at & 15] | (bits & 255));
    }
}

#include "base/codec/delta_loops.h"
#include "base/codec/planes_walk.h"

INLINE void split_width(const uint8_t *restrict elements, unsigned width, size_t count, uint8_t *restrict hot,
                        uint8_t *restrict rest, size_t stride)
{
    for (size_t i = 0; i < count; i++) {
        const uint8_t *e = elements + width * i;
        hot[i] = (uint8_t)(e[width - 1] << 1 | (width > 1 ? e[width - 2] : e[0]) >> 7);
        for (unsigned k = 0; k + 1 < width; k++)
            rest[k * stride + i] = (uint8_t)(e[k] << 1 | (k > 0 ? e[k - 1] : e[width - 1]) >> 7);
    }
}

static void split(const uint8_t *elements, unsigned width, size_t groups, struct tb_planes_apart to)
{
    TB_ASSERT(width == 1 || width == 2 || width == 4);
    const size_t count = TB_CASCADE_GROUP * groups;
    if (width == 1)
        split_width(elements, 1, count, to.hot, to.rest, to.stride);
    else if (width == 2)
        split_width(elements, 2, count, to.hot, to.rest, to.stride);
    else
        split_width(elements, 4, count, to.hot, to.rest, to.stride);
}

INLINE void join_width(const uint8_t *restrict hot, const uint8_t *restrict rest, size_t stride,
                       unsigned width, size_t count, uint8_t *restrict out)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t *e = out + width * i;
        for (unsigned k = 0; k < width; k++) { /* byte k of the rotated element, and the one above it */
            const uint8_t here = k + 1 < width ? rest[k * stride + i] : hot[i];
            const uint8_t above = k + 2 < width                  ? rest[(k + 1) * stride + i]
                                  : k + 2 == width || width == 1 ? hot[i]
                                                                 : rest[i];
            e[k] = (uint8_t)(here >> 1 | above << 7);
        }
    }
}

static void join(struct tb_planes_apart from, unsigned width, size_t groups, uint8_t *out)
{
    TB_ASSERT(width == 1 || width == 2 || width == 4);
    const size_t count = TB_CASCADE_GROUP * groups;
    if (width == 1)
        join_width(from.hot, from.rest, from.stride, 1, count, out);
    else if (width == 2)
        join_width(from.hot, from.rest, from.stride, 2, count, out);
    else
        join_width(from.hot, from.rest, from.stride, 4, count, out);
}

INLINE uint32_t element_load(const uint8_t *at, unsigned width)
{
    uint32_t x = 0;
    for (unsigned k = 0; k < width; k++)
        x |= (uint32_t)at[k] << (8 * k);
    return x;
}

INLINE void fold_width(const uint8_t *restrict bytes, const uint8_t *restrict base, unsigned width,
                       size_t count, uint8_t *restrict hot)
{
    for (size_t i = 0; i < count; i++) {
        const unsigned above = 32 - 8 * width;
        const uint32_t d = (element_load(bytes + width * i, width) - element_load(base + width * i, width))
                           << above;
        const uint32_t folded = (d << 1 ^ (0u - (d >> 31))) >> above;
        hot[i] = (uint8_t)(folded < TB_PLANES_WIDE ? folded : TB_PLANES_WIDE);
    }
}

static void fold(const uint8_t *bytes, const uint8_t *base, unsigned width, size_t groups, uint8_t *hot)
{
    TB_ASSERT(width == 1 || width == 2 || width == 4);
    const size_t count = TB_CASCADE_GROUP * groups;
    if (width == 1)
        fold_width(bytes, base, 1, count, hot);
    else if (width == 2)
        fold_width(bytes, base, 2, count, hot);
    else
        fold_width(bytes, base, 4, count, hot);
}

INLINE void unfold_width(const uint8_t *restrict hot, const uint8_t *restrict base, unsigned width,
                         size_t count, uint8_t *restrict out)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t d = (uint32_t)hot[i] >> 1 ^ (0u - (hot[i] & 1u));
        const uint32_t x = element_load(base + width * i, width) + d;
        for (unsigned k = 0; k < width; k++)
            out[width * i + k] = (uint8_t)(x >> (8 * k));
    }
}

static void unfold(const uint8_t *hot, const uint8_t *base, unsigned width, size_t groups, uint8_t *out)
{
    TB_ASSERT(width == 1 || width == 2 || width == 4);
    const size_t count = TB_CASCADE_GROUP * groups;
    if (width == 1)
        unfold_width(hot, base, 1, count, out);
    else if (width == 2)
        unfold_width(hot, base, 2, count, out);
    else
        unfold_width(hot, base, 4, count, out);
}

const struct tb_planes_kernels tb_planes_portable = {split, join, fold, unfold, subtract, add, code, decode};

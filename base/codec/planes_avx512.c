/* planes_avx512.c - compares that give masks at once, and masks that choose bytes. Compiled for
 * these instructions alone; called only where tb_vector_here says so. */
#include <immintrin.h>

#include "base/codec/planes_x86.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i load(const uint8_t *at)
{
    return _mm512_loadu_si512(at);
}

INLINE __m256i load_half(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

INLINE void store_half(uint8_t *at, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)at, x);
}

INLINE __m128i load_quarter(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

INLINE void store_quarter(uint8_t *at, __m128i x)
{
    _mm_storeu_si128((__m128i *)(void *)at, x);
}

INLINE uint64_t extract(uint64_t x, uint64_t mask)
{
    return _pext_u64(x, mask);
}

INLINE uint64_t deposit(uint64_t x, uint64_t mask)
{
    return _pdep_u64(x, mask);
}

INLINE uint64_t group_bits(const uint8_t *hot, unsigned bit)
{
    return _mm512_test_epi8_mask(load(hot), _mm512_set1_epi8((char)(1u << bit)));
}

/* Code 0 is neither bit, 1 the low one, 2 the high one, and no key of the level is both. */
INLINE void group_codes(const struct tb_cascade *c, const uint8_t *hot, unsigned levels, uint64_t *low,
                        uint64_t *high)
{
    const __m512i keys = _mm512_and_si512(load(hot), _mm512_set1_epi8((char)(0xff << c->raw_bits)));
    for (unsigned j = 0; j < levels; j++) {
        uint64_t is[3];
        for (unsigned k = 0; k < 3; k++)
            is[k] = _mm512_cmpeq_epi8_mask(keys, _mm512_set1_epi8((char)c->palette[4 * j + k]));
        low[j] = ~(is[0] | is[2]);
        high[j] = ~(is[0] | is[1]);
    }
}

/* `value` added to the bytes whose bit is set. */
INLINE __m512i spread(__m512i to, uint64_t bits, unsigned value)
{
    return _mm512_mask_add_epi8(to, bits, to, _mm512_set1_epi8((char)value));
}

INLINE void group_keys(const struct tb_cascade *c, unsigned levels, const uint64_t *place,
                       const uint64_t *raw, uint8_t *out)
{
    __m512i at = spread(_mm512_maskz_set1_epi8(place[0], 1), place[1], 2);
    if (levels > 1) at = spread(at, place[2], 4);
    if (levels > 2) at = spread(at, place[3], 8);
    __m512i keys = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_quarter(c->palette)), at);
    for (unsigned b = 0; b < c->raw_bits; b++)
        keys = spread(keys, raw[b], 1u << b);
    _mm512_storeu_si512(out, keys);
}

#include "base/codec/delta_loops.h"
#include "base/codec/planes_walk.h"

INLINE void split_bytes(const uint8_t *elements, uint8_t *hot)
{
    const __m512i x = load(elements);
    const __m512i top = _mm512_and_si512(_mm512_srli_epi16(x, 7), _mm512_set1_epi8(1));
    _mm512_storeu_si512(hot, _mm512_or_si512(_mm512_add_epi8(x, x), top));
}

/* Down-converting keeps the low byte of each element, in order. */
INLINE void split_pairs(const uint8_t *elements, uint8_t *hot, uint8_t *rest)
{
    for (unsigned i = 0; i < 64; i += 32) {
        const __m512i x = load(elements + 2 * i);
        const __m512i rotated = _mm512_or_si512(_mm512_slli_epi16(x, 1), _mm512_srli_epi16(x, 15));
        store_half(hot + i, _mm512_cvtepi16_epi8(_mm512_srli_epi16(rotated, 8)));
        store_half(rest + i, _mm512_cvtepi16_epi8(rotated));
    }
}

INLINE void split_quads(const uint8_t *elements, uint8_t *hot, uint8_t *rest, size_t stride)
{
    for (unsigned i = 0; i < 64; i += 16) {
        const __m512i rotated = _mm512_rol_epi32(load(elements + 4 * i), 1);
        store_quarter(rest + i, _mm512_cvtepi32_epi8(rotated));
        store_quarter(rest + stride + i, _mm512_cvtepi32_epi8(_mm512_srli_epi32(rotated, 8)));
        store_quarter(rest + 2 * stride + i, _mm512_cvtepi32_epi8(_mm512_srli_epi32(rotated, 16)));
        store_quarter(hot + i, _mm512_cvtepi32_epi8(_mm512_srli_epi32(rotated, 24)));
    }
}

INLINE void join_bytes(const uint8_t *hot, uint8_t *out)
{
    const __m512i x = load(hot);
    const __m512i low = _mm512_and_si512(_mm512_srli_epi16(x, 1), _mm512_set1_epi8(0x7f));
    const __m512i top = _mm512_and_si512(_mm512_slli_epi16(x, 7), _mm512_set1_epi8((char)0x80));
    _mm512_storeu_si512(out, _mm512_or_si512(low, top));
}

INLINE void join_pairs(const uint8_t *hot, const uint8_t *rest, uint8_t *out)
{
    for (unsigned i = 0; i < 64; i += 32) {
        const __m512i high = _mm512_slli_epi16(_mm512_cvtepu8_epi16(load_half(hot + i)), 8);
        const __m512i x = _mm512_or_si512(high, _mm512_cvtepu8_epi16(load_half(rest + i)));
        _mm512_storeu_si512(out + 2 * i, _mm512_or_si512(_mm512_srli_epi16(x, 1), _mm512_slli_epi16(x, 15)));
    }
}

INLINE __m512i quads_at(const uint8_t *bytes, unsigned shift)
{
    return _mm512_slli_epi32(_mm512_cvtepu8_epi32(load_quarter(bytes)), shift);
}

INLINE void join_quads(const uint8_t *hot, const uint8_t *rest, size_t stride, uint8_t *out)
{
    for (unsigned i = 0; i < 64; i += 16) {
        const __m512i low = _mm512_or_si512(quads_at(rest + i, 0), quads_at(rest + stride + i, 8));
        const __m512i high = _mm512_or_si512(quads_at(rest + 2 * stride + i, 16), quads_at(hot + i, 24));
        _mm512_storeu_si512(out + 4 * i, _mm512_ror_epi32(_mm512_or_si512(low, high), 1));
    }
}

#define PLANES_STEP 64
#include "base/codec/planes_by_width.h"

INLINE void fold_bytes(const uint8_t *bytes, const uint8_t *base, uint8_t *hot)
{
    const __m512i d = _mm512_sub_epi8(load(bytes), load(base));
    const __m512i negative = _mm512_movm_epi8(_mm512_movepi8_mask(d));
    _mm512_storeu_si512(hot, _mm512_xor_si512(_mm512_add_epi8(d, d), negative));
}

INLINE void fold_pairs(const uint8_t *bytes, const uint8_t *base, uint8_t *hot)
{
    const __m512i d = _mm512_sub_epi16(load(bytes), load(base));
    const __m512i folded = _mm512_xor_si512(_mm512_slli_epi16(d, 1), _mm512_srai_epi16(d, 15));
    store_half(hot, _mm512_cvtepi16_epi8(_mm512_min_epu16(folded, _mm512_set1_epi16(TB_PLANES_WIDE))));
}

INLINE void fold_quads(const uint8_t *bytes, const uint8_t *base, uint8_t *hot)
{
    const __m512i d = _mm512_sub_epi32(load(bytes), load(base));
    const __m512i folded = _mm512_xor_si512(_mm512_slli_epi32(d, 1), _mm512_srai_epi32(d, 31));
    store_quarter(hot, _mm512_cvtepi32_epi8(_mm512_min_epu32(folded, _mm512_set1_epi32(TB_PLANES_WIDE))));
}

static void fold(const uint8_t *bytes, const uint8_t *base, unsigned width, size_t groups, uint8_t *hot)
{
    for (size_t i = 0; i < TB_CASCADE_GROUP * width * groups; i += 64) {
        if (width == 1)
            fold_bytes(bytes + i, base + i, hot + i);
        else if (width == 2)
            fold_pairs(bytes + i, base + i, hot + i / 2);
        else
            fold_quads(bytes + i, base + i, hot + i / 4);
    }
}

INLINE void unfold_bytes(const uint8_t *hot, const uint8_t *base, uint8_t *out)
{
    const __m512i h = load(hot), odd = _mm512_and_si512(h, _mm512_set1_epi8(1));
    const __m512i half = _mm512_and_si512(_mm512_srli_epi16(h, 1), _mm512_set1_epi8(0x7f));
    const __m512i d = _mm512_xor_si512(half, _mm512_sub_epi8(_mm512_setzero_si512(), odd));
    _mm512_storeu_si512(out, _mm512_add_epi8(load(base), d));
}

INLINE void unfold_pairs(const uint8_t *hot, const uint8_t *base, uint8_t *out)
{
    const __m512i h = _mm512_cvtepu8_epi16(load_half(hot)), odd = _mm512_and_si512(h, _mm512_set1_epi16(1));
    const __m512i d =
        _mm512_xor_si512(_mm512_srli_epi16(h, 1), _mm512_sub_epi16(_mm512_setzero_si512(), odd));
    _mm512_storeu_si512(out, _mm512_add_epi16(load(base), d));
}

INLINE void unfold_quads(const uint8_t *hot, const uint8_t *base, uint8_t *out)
{
    const __m512i h = _mm512_cvtepu8_epi32(load_quarter(hot)),
                  odd = _mm512_and_si512(h, _mm512_set1_epi32(1));
    const __m512i d =
        _mm512_xor_si512(_mm512_srli_epi32(h, 1), _mm512_sub_epi32(_mm512_setzero_si512(), odd));
    _mm512_storeu_si512(out, _mm512_add_epi32(load(base), d));
}

static void unfold(const uint8_t *hot, const uint8_t *base, unsigned width, size_t groups, uint8_t *out)
{
    for (size_t i = 0; i < TB_CASCADE_GROUP * width * groups; i += 64) {
        if (width == 1)
            unfold_bytes(hot + i, base + i, out + i);
        else if (width == 2)
            unfold_pairs(hot + i / 2, base + i, out + i);
        else
            unfold_quads(hot + i / 4, base + i, out + i);
    }
}

const struct tb_planes_kernels tb_planes_avx512 = {split, join, fold, unfold, subtract, add, code, decode};

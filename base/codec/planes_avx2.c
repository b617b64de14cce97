/* planes_avx2.c - 32 bytes at a time, with BMI2's extract and deposit between the levels of a
 * cascade. Compiled for these alone; called only where tb_vector_here says so. */
#include <immintrin.h>

#include "base/codec/planes_x86.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

INLINE void store(uint8_t *at, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)at, x);
}

INLINE __m128i load_half(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

INLINE uint64_t extract(uint64_t x, uint64_t mask)
{
    return _pext_u64(x, mask);
}

INLINE uint64_t deposit(uint64_t x, uint64_t mask)
{
    return _pdep_u64(x, mask);
}

INLINE uint64_t both(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

INLINE uint32_t bits_of_32(const uint8_t *hot, unsigned bit)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_sll_epi16(load(hot), _mm_cvtsi32_si128((int)(7 - bit))));
}

INLINE uint64_t group_bits(const uint8_t *hot, unsigned bit)
{
    return both(bits_of_32(hot, bit), bits_of_32(hot + 32, bit));
}

INLINE __m256i key_at(const struct tb_cascade *c, unsigned place)
{
    return _mm256_set1_epi8((char)c->palette[place]);
}

INLINE uint32_t mask_of(__m256i x)
{
    return (uint32_t)_mm256_movemask_epi8(x);
}

/* Code 0 is neither bit, 1 the low one, 2 the high one, and no key of the level is both. */
INLINE void group_codes(const struct tb_cascade *c, const uint8_t *hot, unsigned levels, uint64_t *low,
                        uint64_t *high)
{
    const __m256i keep = _mm256_set1_epi8((char)(0xff << c->raw_bits));
    const __m256i a = _mm256_and_si256(load(hot), keep), b = _mm256_and_si256(load(hot + 32), keep);
    for (unsigned j = 0; j < levels; j++) {
        const __m256i key0 = key_at(c, 4 * j), key1 = key_at(c, 4 * j + 1), key2 = key_at(c, 4 * j + 2);
        const __m256i a0 = _mm256_cmpeq_epi8(a, key0), b0 = _mm256_cmpeq_epi8(b, key0);
        low[j] = ~both(mask_of(_mm256_or_si256(a0, _mm256_cmpeq_epi8(a, key2))),
                       mask_of(_mm256_or_si256(b0, _mm256_cmpeq_epi8(b, key2))));
        high[j] = ~both(mask_of(_mm256_or_si256(a0, _mm256_cmpeq_epi8(a, key1))),
                        mask_of(_mm256_or_si256(b0, _mm256_cmpeq_epi8(b, key1))));
    }
}

/* `value` in the bytes whose bit is set. */
INLINE __m256i spread(uint32_t bits, unsigned value)
{
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                             2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit_of = _mm256_set1_epi64x((long long)UINT64_C(0x8040201008040201));
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte_of);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
    return _mm256_and_si256(set, _mm256_set1_epi8((char)value));
}

INLINE __m256i keys_of_32(const struct tb_cascade *c, unsigned levels, const uint64_t *place,
                          const uint64_t *raw, unsigned from)
{
    const __m256i palette = _mm256_broadcastsi128_si256(load_half(c->palette));
    __m256i at =
        _mm256_or_si256(spread((uint32_t)(place[0] >> from), 1), spread((uint32_t)(place[1] >> from), 2));
    if (levels > 1) at = _mm256_or_si256(at, spread((uint32_t)(place[2] >> from), 4));
    if (levels > 2) at = _mm256_or_si256(at, spread((uint32_t)(place[3] >> from), 8));
    __m256i keys = _mm256_shuffle_epi8(palette, at);
    for (unsigned b = 0; b < c->raw_bits; b++)
        keys = _mm256_or_si256(keys, spread((uint32_t)(raw[b] >> from), 1u << b));
    return keys;
}

INLINE void group_keys(const struct tb_cascade *c, unsigned levels, const uint64_t *place,
                       const uint64_t *raw, uint8_t *out)
{
    store(out, keys_of_32(c, levels, place, raw, 0));
    store(out + 32, keys_of_32(c, levels, place, raw, 32));
}

#include "base/codec/delta_loops.h"
#include "base/codec/planes_walk.h"

/* Packing works on halves of a register, which permuting puts back in order. */
INLINE __m256i pack_pairs(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
}

INLINE __m256i pack_quads(__m256i a, __m256i b, __m256i c, __m256i d)
{
    const __m256i mixed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE __m256i rotated_bytes(__m256i x)
{
    return _mm256_or_si256(_mm256_add_epi8(x, x),
                           _mm256_and_si256(_mm256_srli_epi16(x, 7), _mm256_set1_epi8(1)));
}

INLINE __m256i rotated_pairs(__m256i x)
{
    return _mm256_or_si256(_mm256_slli_epi16(x, 1), _mm256_srli_epi16(x, 15));
}

INLINE __m256i rotated_quads(__m256i x)
{
    return _mm256_or_si256(_mm256_slli_epi32(x, 1), _mm256_srli_epi32(x, 31));
}

INLINE void split_pairs(const uint8_t *elements, uint8_t *hot, uint8_t *rest)
{
    const __m256i low_byte = _mm256_set1_epi16(0xff);
    const __m256i a = rotated_pairs(load(elements)), b = rotated_pairs(load(elements + 32));
    store(hot, pack_pairs(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)));
    store(rest, pack_pairs(_mm256_and_si256(a, low_byte), _mm256_and_si256(b, low_byte)));
}

INLINE __m256i byte_of_quads(const __m256i *quads, int shift)
{
    const __m256i low_byte = _mm256_set1_epi32(0xff);
    const __m128i by = _mm_cvtsi32_si128(shift);
    return pack_quads(_mm256_and_si256(_mm256_srl_epi32(quads[0], by), low_byte),
                      _mm256_and_si256(_mm256_srl_epi32(quads[1], by), low_byte),
                      _mm256_and_si256(_mm256_srl_epi32(quads[2], by), low_byte),
                      _mm256_and_si256(_mm256_srl_epi32(quads[3], by), low_byte));
}

INLINE void split_quads(const uint8_t *elements, uint8_t *hot, uint8_t *rest, size_t stride)
{
    __m256i quads[4];
    for (unsigned i = 0; i < 4; i++)
        quads[i] = rotated_quads(load(elements + 32 * i));
    for (unsigned k = 0; k < 3; k++)
        store(rest + k * stride, byte_of_quads(quads, (int)(8 * k)));
    store(hot, byte_of_quads(quads, 24));
}

INLINE void split_bytes(const uint8_t *elements, uint8_t *hot)
{
    store(hot, rotated_bytes(load(elements)));
}

INLINE __m256i unrotated_pairs(__m256i x)
{
    return _mm256_or_si256(_mm256_srli_epi16(x, 1), _mm256_slli_epi16(x, 15));
}

INLINE __m256i unrotated_quads(__m256i x)
{
    return _mm256_or_si256(_mm256_srli_epi32(x, 1), _mm256_slli_epi32(x, 31));
}

INLINE void join_bytes(const uint8_t *hot, uint8_t *out)
{
    const __m256i x = load(hot);
    const __m256i low = _mm256_and_si256(_mm256_srli_epi16(x, 1), _mm256_set1_epi8(0x7f));
    store(out, _mm256_or_si256(low, _mm256_and_si256(_mm256_slli_epi16(x, 7), _mm256_set1_epi8((char)0x80))));
}

INLINE void join_pairs(const uint8_t *hot, const uint8_t *rest, uint8_t *out)
{
    const __m256i h = load(hot), r = load(rest);
    const __m256i a = unrotated_pairs(_mm256_unpacklo_epi8(r, h)),
                  b = unrotated_pairs(_mm256_unpackhi_epi8(r, h));
    store(out, _mm256_permute2x128_si256(a, b, 0x20));
    store(out + 32, _mm256_permute2x128_si256(a, b, 0x31));
}

INLINE void join_quads(const uint8_t *hot, const uint8_t *rest, size_t stride, uint8_t *out)
{
    const __m256i p0 = load(rest), p1 = load(rest + stride), p2 = load(rest + 2 * stride), p3 = load(hot);
    const __m256i low01 = _mm256_unpacklo_epi8(p0, p1), low23 = _mm256_unpacklo_epi8(p2, p3);
    const __m256i high01 = _mm256_unpackhi_epi8(p0, p1), high23 = _mm256_unpackhi_epi8(p2, p3);
    const __m256i a = unrotated_quads(_mm256_unpacklo_epi16(low01, low23));
    const __m256i b = unrotated_quads(_mm256_unpackhi_epi16(low01, low23));
    const __m256i c = unrotated_quads(_mm256_unpacklo_epi16(high01, high23));
    const __m256i d = unrotated_quads(_mm256_unpackhi_epi16(high01, high23));
    store(out, _mm256_permute2x128_si256(a, b, 0x20));
    store(out + 32, _mm256_permute2x128_si256(c, d, 0x20));
    store(out + 64, _mm256_permute2x128_si256(a, b, 0x31));
    store(out + 96, _mm256_permute2x128_si256(c, d, 0x31));
}

#define PLANES_STEP 32
#include "base/codec/planes_by_width.h"

INLINE __m256i fold_bytes(const uint8_t *bytes, const uint8_t *base)
{
    const __m256i d = _mm256_sub_epi8(load(bytes), load(base));
    return _mm256_xor_si256(_mm256_add_epi8(d, d), _mm256_cmpgt_epi8(_mm256_setzero_si256(), d));
}

INLINE __m256i fold_pairs(const uint8_t *bytes, const uint8_t *base)
{
    const __m256i d = _mm256_sub_epi16(load(bytes), load(base));
    const __m256i folded = _mm256_xor_si256(_mm256_slli_epi16(d, 1), _mm256_srai_epi16(d, 15));
    return _mm256_min_epu16(folded, _mm256_set1_epi16(TB_PLANES_WIDE));
}

INLINE __m256i fold_quads(const uint8_t *bytes, const uint8_t *base)
{
    const __m256i d = _mm256_sub_epi32(load(bytes), load(base));
    const __m256i folded = _mm256_xor_si256(_mm256_slli_epi32(d, 1), _mm256_srai_epi32(d, 31));
    return _mm256_min_epu32(folded, _mm256_set1_epi32(TB_PLANES_WIDE));
}

static void fold(const uint8_t *bytes, const uint8_t *base, unsigned width, size_t groups, uint8_t *hot)
{
    for (size_t i = 0; i < TB_CASCADE_GROUP * groups; i += 32, bytes += 32 * width, base += 32 * width) {
        if (width == 1)
            store(hot + i, fold_bytes(bytes, base));
        else if (width == 2)
            store(hot + i, pack_pairs(fold_pairs(bytes, base), fold_pairs(bytes + 32, base + 32)));
        else
            store(hot + i, pack_quads(fold_quads(bytes, base), fold_quads(bytes + 32, base + 32),
                                      fold_quads(bytes + 64, base + 64), fold_quads(bytes + 96, base + 96)));
    }
}

INLINE void unfold_bytes(const uint8_t *hot, const uint8_t *base, uint8_t *out)
{
    const __m256i h = load(hot), odd = _mm256_and_si256(h, _mm256_set1_epi8(1));
    const __m256i half = _mm256_and_si256(_mm256_srli_epi16(h, 1), _mm256_set1_epi8(0x7f));
    const __m256i d = _mm256_xor_si256(half, _mm256_sub_epi8(_mm256_setzero_si256(), odd));
    store(out, _mm256_add_epi8(load(base), d));
}

INLINE void unfold_pairs(const uint8_t *hot, const uint8_t *base, uint8_t *out)
{
    const __m256i h = _mm256_cvtepu8_epi16(load_half(hot)), odd = _mm256_and_si256(h, _mm256_set1_epi16(1));
    const __m256i d =
        _mm256_xor_si256(_mm256_srli_epi16(h, 1), _mm256_sub_epi16(_mm256_setzero_si256(), odd));
    store(out, _mm256_add_epi16(load(base), d));
}

INLINE void unfold_quads(const uint8_t *hot, const uint8_t *base, uint8_t *out)
{
    const __m128i eight = _mm_loadl_epi64((const __m128i *)(const void *)hot);
    const __m256i h = _mm256_cvtepu8_epi32(eight), odd = _mm256_and_si256(h, _mm256_set1_epi32(1));
    const __m256i d =
        _mm256_xor_si256(_mm256_srli_epi32(h, 1), _mm256_sub_epi32(_mm256_setzero_si256(), odd));
    store(out, _mm256_add_epi32(load(base), d));
}

static void unfold(const uint8_t *hot, const uint8_t *base, unsigned width, size_t groups, uint8_t *out)
{
    for (size_t i = 0; i < TB_CASCADE_GROUP * width * groups; i += 32) {
        if (width == 1)
            unfold_bytes(hot + i, base + i, out + i);
        else if (width == 2)
            unfold_pairs(hot + i / 2, base + i, out + i);
        else
            unfold_quads(hot + i / 4, base + i, out + i);
    }
}

const struct tb_planes_kernels tb_planes_avx2 = {split, join, fold, unfold, subtract, add, code, decode};

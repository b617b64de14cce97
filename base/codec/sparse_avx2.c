/* sparse_avx2.c - 32 bytes at a time, with BMI2's bit deposit to find the nth member. Compiled for
 * these alone; called only where tb_vector_here says so. */
#include <immintrin.h>

#include "base/codec/sparse_x86.h"

static unsigned nth_bit(uint64_t x, unsigned n)
{
    return (unsigned)_tzcnt_u64(_pdep_u64(UINT64_C(1) << n, x));
}

static inline __m256i load(const void *at)
{
    return _mm256_loadu_si256(at);
}

static inline uint32_t at_most_of_32(const uint8_t *keys, __m256i most)
{
    const __m256i k = load(keys);
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(k, most), k));
}

static inline uint64_t below(const uint8_t *keys, uint8_t bound)
{
    const __m256i most = _mm256_set1_epi8((char)(bound - 1));
    return (uint64_t)at_most_of_32(keys + 32, most) << 32 | at_most_of_32(keys, most);
}

/* A section has 32 x 32 words: first the 32 of them, then the word. No step waits for that
 * of the change before. */
struct finder {
    __m256i low, high;
};

static inline struct finder finder_of(const uint16_t *more, const uint16_t *less)
{
    uint16_t groups[32];
    for (unsigned g = 0; g < 32; g++)
        groups[g] = (uint16_t)(more[32 * g] - less[32 * g]);
    return (struct finder){load(groups), load(groups + 16)};
}

/* Of 32: what a subtraction that stops at 0 leaves nothing of. Their order does not count. */
static inline unsigned at_most(__m256i low, __m256i high, __m256i rank)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i a = _mm256_cmpeq_epi16(_mm256_subs_epu16(low, rank), zero);
    const __m256i b = _mm256_cmpeq_epi16(_mm256_subs_epu16(high, rank), zero);
    return (unsigned)__builtin_popcount((unsigned)_mm256_movemask_epi8(_mm256_packs_epi16(a, b)));
}

static inline size_t finder_word(struct finder *finder, const uint16_t *more, const uint16_t *less,
                                 uint32_t rank)
{
    const __m256i at = _mm256_set1_epi16((short)rank);
    const size_t first = 32 * (at_most(finder->low, finder->high, at) - 1);
    const __m256i low = _mm256_sub_epi16(load(more + first), load(less + first));
    const __m256i high = _mm256_sub_epi16(load(more + first + 16), load(less + first + 16));
    return first + at_most(low, high, at) - 1;
}

#include "base/codec/sparse_codes.h"
#include "base/codec/sparse_walk.h"

static inline uint32_t equal_bytes(const uint8_t *a, const uint8_t *b)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(load(a), load(b)));
}

/* 16 elements each; packing works on halves of a register, which permute4x64 puts back in order. */
static inline uint32_t equal_pairs(const uint8_t *a, const uint8_t *b)
{
    const __m256i low = _mm256_cmpeq_epi16(load(a), load(b));
    const __m256i high = _mm256_cmpeq_epi16(load(a + 32), load(b + 32));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
    return (uint32_t)_mm256_movemask_epi8(both);
}

/* 8 elements each; the order of 32 bits that packing twice leaves is 0 2 4 6 1 3 5 7. */
static inline __m256i pack_quads(__m256i a, __m256i b, __m256i c, __m256i d)
{
    const __m256i mixed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline __m256i equal_quads(const uint8_t *a, const uint8_t *b)
{
    return _mm256_srli_epi32(_mm256_cmpeq_epi32(load(a), load(b)), 24); /* 0xff where equal */
}

static inline uint32_t equal_32_quads(const uint8_t *a, const uint8_t *b)
{
    const __m256i packed = pack_quads(equal_quads(a, b), equal_quads(a + 32, b + 32),
                                      equal_quads(a + 64, b + 64), equal_quads(a + 96, b + 96));
    return (uint32_t)_mm256_movemask_epi8(packed);
}

static void changed(struct tb_sparse_pair pair, size_t words, uint64_t *out)
{
    const uint8_t *base = pair.base, *bytes = pair.bytes;
    const size_t half = 32 * (size_t)pair.width;
    for (size_t w = 0; w < words; w++, base += 2 * half, bytes += 2 * half) {
        uint32_t low, high;
        if (pair.width == 1) {
            low = equal_bytes(base, bytes);
            high = equal_bytes(base + half, bytes + half);
        } else if (pair.width == 2) {
            low = equal_pairs(base, bytes);
            high = equal_pairs(base + half, bytes + half);
        } else {
            low = equal_32_quads(base, bytes);
            high = equal_32_quads(base + half, bytes + half);
        }
        out[w] = ~((uint64_t)high << 32 | low);
    }
}

static inline __m256i keys_of_pairs(const uint8_t *base, int shift, int mask)
{
    const __m128i by = _mm_cvtsi32_si128(shift);
    const __m256i low = _mm256_and_si256(_mm256_srl_epi16(load(base), by), _mm256_set1_epi16((short)mask));
    const __m256i high =
        _mm256_and_si256(_mm256_srl_epi16(load(base + 32), by), _mm256_set1_epi16((short)mask));
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8);
}

static inline __m256i keys_of_quads(const uint8_t *base)
{
    const __m256i mask = _mm256_set1_epi32(0xff);
    return pack_quads(_mm256_and_si256(_mm256_srli_epi32(load(base), 23), mask),
                      _mm256_and_si256(_mm256_srli_epi32(load(base + 32), 23), mask),
                      _mm256_and_si256(_mm256_srli_epi32(load(base + 64), 23), mask),
                      _mm256_and_si256(_mm256_srli_epi32(load(base + 96), 23), mask));
}

static void keys(const uint8_t *base, size_t words, enum tb_sparse_kind kind, uint8_t *out)
{
    for (size_t i = 0; i < 64 * words; i += 32) {
        __m256i k;
        if (kind == TB_SPARSE_BF16)
            k = keys_of_pairs(base + 2 * i, 7, 0xff);
        else if (kind == TB_SPARSE_F16)
            k = keys_of_pairs(base + 2 * i, 8, 0x7f);
        else if (kind == TB_SPARSE_F32)
            k = keys_of_quads(base + 4 * i);
        else
            k = _mm256_and_si256(load(base + i), _mm256_set1_epi8(0x7f));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), k);
    }
}

static inline uint32_t equal_of_8(__m256i a, __m256i b)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)));
}

static struct tb_sparse_signs signs(const struct tb_sparse_amounts *amounts)
{
    if (amounts->count < TB_SPARSE_SIGNS) return signs_few(amounts);
    const uint32_t all = (uint32_t)tb_bits_mask(8 * amounts->width);
    const __m256i mask = _mm256_set1_epi32((int)all), one = _mm256_set1_epi32(1);
    const __m256i sign = _mm256_set1_epi32((int)(all / 2 + 1));
    struct tb_sparse_signs out = {0, 0};
    for (unsigned i = 0; i < TB_SPARSE_SIGNS; i += 8) {
        const __m256i amount = _mm256_and_si256(load(amounts->differences + i), mask);
        out.negative |= equal_of_8(_mm256_and_si256(amount, sign), sign) << i;
        out.odd |= (equal_of_8(amount, one) | equal_of_8(amount, mask)) << i;
    }
    out.odd = ~out.odd;
    return out;
}

const struct tb_sparse_kernels tb_sparse_avx2 = {changed, keys,  nest,      collect,     collect_mixed, find,
                                                 signs,   zeros, gaps_code, gaps_decode, places_decode};

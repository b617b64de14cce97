/* sparse_avx512.c - compares that give masks at once, 64 bytes at a time. Compiled for these
 * instructions alone; called only where tb_vector_here says so. */
#include <immintrin.h>

#include "base/codec/sparse_x86.h"

static unsigned nth_bit(uint64_t x, unsigned n)
{
    return (unsigned)_tzcnt_u64(_pdep_u64(UINT64_C(1) << n, x));
}

static inline __m512i load(const void *at)
{
    return _mm512_loadu_si512(at);
}

static inline uint64_t below(const uint8_t *keys, uint8_t bound)
{
    return _mm512_cmplt_epu8_mask(load(keys), _mm512_set1_epi8((char)bound));
}

/* A section has 32 x 32 words: first the 32 of them, then the word. No step waits for that
 * of the change before. */
struct finder {
    __m512i groups;
};

static inline struct finder finder_of(const uint16_t *more, const uint16_t *less)
{
    uint16_t groups[32];
    for (unsigned g = 0; g < 32; g++)
        groups[g] = (uint16_t)(more[32 * g] - less[32 * g]);
    return (struct finder){load(groups)};
}

static inline unsigned at_most(__m512i members, __m512i rank)
{
    return (unsigned)__builtin_popcount((unsigned)_mm512_cmple_epu16_mask(members, rank));
}

static inline size_t finder_word(struct finder *finder, const uint16_t *more, const uint16_t *less,
                                 uint32_t rank)
{
    const __m512i at = _mm512_set1_epi16((short)rank);
    const size_t first = 32 * (at_most(finder->groups, at) - 1);
    return first + at_most(_mm512_sub_epi16(load(more + first), load(less + first)), at) - 1;
}

#include "base/codec/sparse_codes.h"
#include "base/codec/sparse_walk.h"

static inline uint64_t changed_pairs(const uint8_t *a, const uint8_t *b)
{
    const uint64_t low = _mm512_cmpneq_epi16_mask(load(a), load(b));
    return low | (uint64_t)_mm512_cmpneq_epi16_mask(load(a + 64), load(b + 64)) << 32;
}

static inline uint64_t changed_quads(const uint8_t *a, const uint8_t *b)
{
    uint64_t mask = 0;
    for (unsigned i = 0; i < 4; i++)
        mask |= (uint64_t)_mm512_cmpneq_epi32_mask(load(a + 64 * i), load(b + 64 * i)) << (16 * i);
    return mask;
}

static void changed(struct tb_sparse_pair pair, size_t words, uint64_t *out)
{
    const uint8_t *base = pair.base, *bytes = pair.bytes;
    const size_t step = 64 * (size_t)pair.width;
    for (size_t w = 0; w < words; w++, base += step, bytes += step) {
        if (pair.width == 1)
            out[w] = _mm512_cmpneq_epi8_mask(load(base), load(bytes));
        else if (pair.width == 2)
            out[w] = changed_pairs(base, bytes);
        else
            out[w] = changed_quads(base, bytes);
    }
}

/* Down-converting stores keep the low byte of each element, in order. */
static void keys(const uint8_t *base, size_t words, enum tb_sparse_kind kind, uint8_t *out)
{
    for (size_t w = 0; w < words; w++, out += 64) {
        if (kind == TB_SPARSE_BF16 || kind == TB_SPARSE_F16) {
            const __m128i by = _mm_cvtsi32_si128(kind == TB_SPARSE_BF16 ? 7 : 8);
            const __m512i mask = _mm512_set1_epi16(kind == TB_SPARSE_BF16 ? 0xff : 0x7f);
            for (unsigned i = 0; i < 2; i++) {
                const __m512i k = _mm512_and_si512(_mm512_srl_epi16(load(base + 128 * w + 64 * i), by), mask);
                _mm256_storeu_si256((__m256i *)(void *)(out + 32 * i), _mm512_cvtepi16_epi8(k));
            }
        } else if (kind == TB_SPARSE_F32) {
            for (unsigned i = 0; i < 4; i++) {
                const __m512i k = _mm512_srli_epi32(load(base + 256 * w + 64 * i), 23);
                _mm_storeu_si128((__m128i *)(void *)(out + 16 * i), _mm512_cvtepi32_epi8(k));
            }
        } else {
            _mm512_storeu_si512(out, _mm512_and_si512(load(base + 64 * w), _mm512_set1_epi8(0x7f)));
        }
    }
}

static struct tb_sparse_signs signs(const struct tb_sparse_amounts *amounts)
{
    if (amounts->count < TB_SPARSE_SIGNS) return signs_few(amounts);
    const uint32_t all = (uint32_t)tb_bits_mask(8 * amounts->width);
    const __m512i mask = _mm512_set1_epi32((int)all), one = _mm512_set1_epi32(1);
    const __m512i sign = _mm512_set1_epi32((int)(all / 2 + 1));
    struct tb_sparse_signs out = {0, 0};
    for (unsigned i = 0; i < TB_SPARSE_SIGNS; i += 16) {
        const __m512i amount = _mm512_and_si512(load(amounts->differences + i), mask);
        const __m512i below_zero = _mm512_and_si512(amount, sign);
        out.negative |= (uint32_t)_mm512_cmpneq_epi32_mask(below_zero, _mm512_setzero_si512()) << i;
        out.odd |= (uint32_t)(_mm512_cmpneq_epi32_mask(amount, one) & _mm512_cmpneq_epi32_mask(amount, mask))
                   << i;
    }
    return out;
}

const struct tb_sparse_kernels tb_sparse_avx512 = {
    changed, keys, nest, collect, collect_mixed, find, signs, zeros, gaps_code, gaps_decode, places_decode};

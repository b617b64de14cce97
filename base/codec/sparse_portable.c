/* sparse_portable.c - the variant that every machine has, and what the others are tested
 * against. */
#include <string.h>

#include "base/codec/bits.h"
#include "base/codec/sparse_kernels.h"

static unsigned nth_bit(uint64_t x, unsigned n)
{
    for (; n > 0; n--)
        x &= x - 1;
    return (unsigned)__builtin_ctzll(x);
}

/* Eight keys at a time: the top bit of each byte of (k | 128) - low, where k's own top bit
 * is put right again, says k >= low (H. S. Warren, Hacker's Delight, 2-18); a
 * multiplication gathers the eight. */
static uint64_t at_least(uint64_t keys, uint8_t low)
{
    const uint64_t tops = UINT64_C(0x8080808080808080), lows = UINT64_C(0x0101010101010101) * low;
    const uint64_t difference = (keys | tops) - (lows & ~tops);
    return ((keys & ~lows) | (~(keys ^ lows) & difference)) & tops;
}

static uint64_t below(const uint8_t *keys, uint8_t bound)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < 8; i++) {
        const uint64_t in = at_least(tb_bits_load(keys + 8 * i), bound) ^ UINT64_C(0x8080808080808080);
        mask |= ((in >> 7) * UINT64_C(0x0102040810204080) >> 56) << (8 * i);
    }
    return mask;
}

/* Word by word behind the last one that was asked for. */
struct finder {
    size_t word;
};

static struct finder finder_of(const uint16_t *more, const uint16_t *less)
{
    (void)more, (void)less;
    return (struct finder){0};
}

static size_t finder_word(struct finder *finder, const uint16_t *more, const uint16_t *less, uint32_t rank)
{
    size_t w = finder->word;
    while (w + 1 < TB_SPARSE_WORDS && (uint16_t)(more[w + 1] - less[w + 1]) <= rank)
        w++;
    return finder->word = w;
}

#include "base/codec/sparse_codes.h"
#include "base/codec/sparse_walk.h"

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t changed_word(const uint8_t *a, const uint8_t *b, size_t width)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < 64; i++)
        mask |= (uint64_t)(memcmp(a + width * i, b + width * i, width) != 0) << i;
    return mask;
}

/* Most words have no change in a sparse delta. */
INLINE void changed_width(struct tb_sparse_pair pair, size_t width, size_t words, uint64_t *out)
{
    const uint8_t *a = pair.base, *b = pair.bytes;
    for (size_t w = 0; w < words; w++, a += 64 * width, b += 64 * width)
        out[w] = memcmp(a, b, 64 * width) == 0 ? 0 : changed_word(a, b, width);
}

#include "base/codec/sparse_by_width.h"

static void keys(const uint8_t *base, size_t words, enum tb_sparse_kind kind, uint8_t *out)
{
    for (size_t i = 0; i < 64 * words; i++) {
        if (kind == TB_SPARSE_BF16)
            out[i] = (uint8_t)(base[2 * i + 1] << 1 | base[2 * i] >> 7);
        else if (kind == TB_SPARSE_F16)
            out[i] = base[2 * i + 1] & 0x7f;
        else if (kind == TB_SPARSE_F32)
            out[i] = (uint8_t)(base[4 * i + 3] << 1 | base[4 * i + 2] >> 7);
        else
            out[i] = base[i] & 0x7f;
    }
}

const struct tb_sparse_kernels tb_sparse_portable = {changed,       keys,        nest,         collect,
                                                     collect_mixed, find,        signs_few,    zeros,
                                                     gaps_code,     gaps_decode, places_decode};

/* sparse_neon.c - 16 bytes at a time. */
#include "base/codec/neon.h"

#include "base/codec/sparse_kernels.h"

/* The byte by how many bits are set in those before it, then the bit one by one. */
static unsigned nth_bit(uint64_t x, unsigned n)
{
    const uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(x))), 0);
    const uint64_t up_to = counts * UINT64_C(0x0101010101010101); /* of each byte and those before it */
    const uint8x8_t behind = vcle_u8(vcreate_u8(up_to), vdup_n_u8((uint8_t)n));
    const unsigned at = (unsigned)__builtin_ctzll(~vget_lane_u64(vreinterpret_u64_u8(behind), 0));
    unsigned left = n - (unsigned)(up_to << 8 >> at & 255);
    for (x >>= at; left > 0; left--)
        x &= x - 1;
    return at + (unsigned)__builtin_ctzll(x);
}

INLINE uint64_t below(const uint8_t *keys, uint8_t bound)
{
    struct neon_group is;
    for (unsigned i = 0; i < 4; i++)
        is.of[i] = vcltq_u8(vld1q_u8(keys + 16 * i), vdupq_n_u8(bound));
    return mask_of(is);
}

/* A section has 32 x 32 words: first the 32 of them, then the word. No step waits for that
 * of the change before. */
struct finder {
    uint16x8_t groups[4];
};

INLINE struct finder finder_of(const uint16_t *more, const uint16_t *less)
{
    uint16_t groups[32];
    struct finder finder;
    for (unsigned g = 0; g < 32; g++)
        groups[g] = (uint16_t)(more[32 * g] - less[32 * g]);
    for (unsigned i = 0; i < 4; i++)
        finder.groups[i] = vld1q_u16(groups + 8 * i);
    return finder;
}

/* How many of 32; each is minus one where it is. */
INLINE unsigned at_most(const uint16x8_t members[4], uint16x8_t rank)
{
    uint16x8_t minus = vcleq_u16(members[0], rank);
    for (unsigned i = 1; i < 4; i++)
        minus = vaddq_u16(minus, vcleq_u16(members[i], rank));
    return (uint16_t)(0u - vaddvq_u16(minus));
}

INLINE size_t finder_word(struct finder *finder, const uint16_t *more, const uint16_t *less, uint32_t rank)
{
    const uint16x8_t at = vdupq_n_u16((uint16_t)rank);
    const size_t first = 32 * (at_most(finder->groups, at) - 1);
    uint16x8_t members[4];
    for (unsigned i = 0; i < 4; i++)
        members[i] = vsubq_u16(vld1q_u16(more + first + 8 * i), vld1q_u16(less + first + 8 * i));
    return first + at_most(members, at) - 1;
}

/* Those behind this undefine INLINE. */
#include "base/codec/sparse_codes.h"
#include "base/codec/sparse_walk.h"

#define INLINE static inline __attribute__((always_inline))

INLINE uint8x16_t equal_bytes(const uint8_t *a, const uint8_t *b)
{
    return vceqq_u8(vld1q_u8(a), vld1q_u8(b));
}

INLINE uint8x16_t equal_pairs(const uint8_t *a, const uint8_t *b)
{
    return narrow_pairs(vceqq_u16(load_pairs(a), load_pairs(b)),
                        vceqq_u16(load_pairs(a + 16), load_pairs(b + 16)));
}

INLINE uint8x16_t equal_quads(const uint8_t *a, const uint8_t *b)
{
    return narrow_quads(
        vceqq_u32(load_quads(a), load_quads(b)), vceqq_u32(load_quads(a + 16), load_quads(b + 16)),
        vceqq_u32(load_quads(a + 32), load_quads(b + 32)), vceqq_u32(load_quads(a + 48), load_quads(b + 48)));
}

INLINE void changed_width(struct tb_sparse_pair pair, unsigned width, size_t words, uint64_t *out)
{
    const uint8_t *a = pair.base, *b = pair.bytes;
    for (size_t w = 0; w < words; w++) {
        struct neon_group same;
        for (unsigned i = 0; i < 4; i++, a += 16 * width, b += 16 * width)
            same.of[i] = width == 1 ? equal_bytes(a, b) : width == 2 ? equal_pairs(a, b) : equal_quads(a, b);
        out[w] = ~mask_of(same);
    }
}

#include "base/codec/sparse_by_width.h"

static void keys(const uint8_t *base, size_t words, enum tb_sparse_kind kind, uint8_t *out)
{
    const uint8x16_t no_sign = vdupq_n_u8(0x7f);
    for (size_t i = 0; i < 64 * words; i += 16) {
        uint8x16_t k;
        if (kind == TB_SPARSE_BF16 || kind == TB_SPARSE_F16) {
            const uint8x16x2_t byte = vld2q_u8(base + 2 * i);
            k = kind == TB_SPARSE_BF16 ? rotated(byte.val[1], byte.val[0]) : vandq_u8(byte.val[1], no_sign);
        } else if (kind == TB_SPARSE_F32) {
            const uint8x16x4_t byte = vld4q_u8(base + 4 * i);
            k = rotated(byte.val[3], byte.val[2]);
        } else
            k = vandq_u8(vld1q_u8(base + i), no_sign);
        vst1q_u8(out + i, k);
    }
}

static struct tb_sparse_signs signs(const struct tb_sparse_amounts *amounts)
{
    if (amounts->count < TB_SPARSE_SIGNS) return signs_few(amounts);
    const uint32_t all = (uint32_t)tb_bits_mask(8 * amounts->width);
    const uint32x4_t mask = vdupq_n_u32(all), one = vdupq_n_u32(1), sign = vdupq_n_u32(all / 2 + 1);
    uint32x4_t negative[8], unit[8];
    for (unsigned i = 0; i < 8; i++) {
        const uint32x4_t amount = vandq_u32(vld1q_u32(amounts->differences + 4 * i), mask);
        negative[i] = vtstq_u32(amount, sign);
        unit[i] = vorrq_u32(vceqq_u32(amount, one), vceqq_u32(amount, mask));
    }
    const struct neon_group both = {{narrow_quads(negative[0], negative[1], negative[2], negative[3]),
                                     narrow_quads(negative[4], negative[5], negative[6], negative[7]),
                                     narrow_quads(unit[0], unit[1], unit[2], unit[3]),
                                     narrow_quads(unit[4], unit[5], unit[6], unit[7])}};
    const uint64_t bits = mask_of(both);
    return (struct tb_sparse_signs){(uint32_t)bits, ~(uint32_t)(bits >> 32)};
}

_Static_assert(TB_SPARSE_SIGNS == 32, "two halves of a word");

const struct tb_sparse_kernels tb_sparse_neon = {changed, keys,  nest,      collect,     collect_mixed, find,
                                                 signs,   zeros, gaps_code, gaps_decode, places_decode};

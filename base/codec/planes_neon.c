/* planes_neon.c - 16 elements at a time: loads and stores that take bytes of elements apart and put
 * them together again. */
#include "base/codec/neon.h"

#include "base/codec/bit_loops.h"
#include "base/codec/planes_kernels.h"

INLINE uint64_t group_bits(const uint8_t *hot, unsigned bit)
{
    const uint8x16_t one = vdupq_n_u8((uint8_t)(1u << bit));
    struct neon_group is;
    for (unsigned i = 0; i < 4; i++)
        is.of[i] = vtstq_u8(vld1q_u8(hot + 16 * i), one);
    return mask_of(is);
}

/* Code 0 is neither bit, 1 the low one, 2 the high one, and no key of the level is both. */
INLINE void group_codes(const struct tb_cascade *c, const uint8_t *hot, unsigned levels, uint64_t *low,
                        uint64_t *high)
{
    const uint8x16_t keep = vdupq_n_u8((uint8_t)(0xff << c->raw_bits));
    struct neon_group keys;
    for (unsigned i = 0; i < 4; i++)
        keys.of[i] = vandq_u8(vld1q_u8(hot + 16 * i), keep);
    for (unsigned j = 0; j < levels; j++) {
        const uint8_t *palette = c->palette + 4 * j;
        const uint8x16_t key0 = vdupq_n_u8(palette[0]), key1 = vdupq_n_u8(palette[1]);
        const uint8x16_t key2 = vdupq_n_u8(palette[2]);
        struct neon_group no_low, no_high;
        for (unsigned i = 0; i < 4; i++) {
            const uint8x16_t first = vceqq_u8(keys.of[i], key0);
            no_low.of[i] = vorrq_u8(first, vceqq_u8(keys.of[i], key2));
            no_high.of[i] = vorrq_u8(first, vceqq_u8(keys.of[i], key1));
        }
        low[j] = ~mask_of(no_low);
        high[j] = ~mask_of(no_high);
    }
}

/* `value` in those of 16 bytes whose bit is set, from bit `from` on. */
INLINE uint8x16_t spread(uint64_t bits, unsigned from, unsigned value)
{
    const uint8x16_t bytes =
        vcombine_u8(vdup_n_u8((uint8_t)(bits >> from)), vdup_n_u8((uint8_t)(bits >> (from + 8))));
    return vandq_u8(vtstq_u8(bytes, each_bit()), vdupq_n_u8((uint8_t)value));
}

INLINE void group_keys(const struct tb_cascade *c, unsigned levels, const uint64_t *place,
                       const uint64_t *raw, uint8_t *out)
{
    const uint8x16_t palette = vld1q_u8(c->palette);
    for (unsigned i = 0; i < TB_CASCADE_GROUP; i += 16) {
        uint8x16_t at = vorrq_u8(spread(place[0], i, 1), spread(place[1], i, 2));
        if (levels > 1) at = vorrq_u8(at, spread(place[2], i, 4));
        if (levels > 2) at = vorrq_u8(at, spread(place[3], i, 8));
        uint8x16_t keys = vqtbl1q_u8(palette, at);
        for (unsigned b = 0; b < c->raw_bits; b++)
            keys = vorrq_u8(keys, spread(raw[b], i, 1u << b));
        vst1q_u8(out + i, keys);
    }
}

#include "base/codec/delta_loops.h"
#include "base/codec/planes_walk.h"

INLINE void split_pairs(const uint8_t *elements, uint8_t *hot, uint8_t *rest)
{
    const uint8x16x2_t byte = vld2q_u8(elements);
    vst1q_u8(hot, rotated(byte.val[1], byte.val[0]));
    vst1q_u8(rest, rotated(byte.val[0], byte.val[1]));
}

INLINE void split_quads(const uint8_t *elements, uint8_t *hot, uint8_t *rest, size_t stride)
{
    const uint8x16x4_t byte = vld4q_u8(elements);
    vst1q_u8(hot, rotated(byte.val[3], byte.val[2]));
    for (unsigned k = 0; k < 3; k++)
        vst1q_u8(rest + k * stride, rotated(byte.val[k], byte.val[k == 0 ? 3 : k - 1]));
}

INLINE void split_bytes(const uint8_t *elements, uint8_t *hot)
{
    const uint8x16_t x = vld1q_u8(elements);
    vst1q_u8(hot, rotated(x, x));
}

/* A byte of elements rotated back, where `above` is the byte over it. */
INLINE uint8x16_t unrotated(uint8x16_t x, uint8x16_t above)
{
    return vsliq_n_u8(vshrq_n_u8(x, 1), above, 7);
}

INLINE void join_pairs(const uint8_t *hot, const uint8_t *rest, uint8_t *out)
{
    const uint8x16_t high = vld1q_u8(hot), low = vld1q_u8(rest);
    const uint8x16x2_t byte = {{unrotated(low, high), unrotated(high, low)}};
    vst2q_u8(out, byte);
}

INLINE void join_quads(const uint8_t *hot, const uint8_t *rest, size_t stride, uint8_t *out)
{
    const uint8x16_t p0 = vld1q_u8(rest), p1 = vld1q_u8(rest + stride), p2 = vld1q_u8(rest + 2 * stride);
    const uint8x16_t p3 = vld1q_u8(hot);
    const uint8x16x4_t byte = {{unrotated(p0, p1), unrotated(p1, p2), unrotated(p2, p3), unrotated(p3, p0)}};
    vst4q_u8(out, byte);
}

INLINE void join_bytes(const uint8_t *hot, uint8_t *out)
{
    const uint8x16_t x = vld1q_u8(hot);
    vst1q_u8(out, unrotated(x, x));
}

#define PLANES_STEP 16
#include "base/codec/planes_by_width.h"

INLINE uint8x16_t fold_bytes(const uint8_t *bytes, const uint8_t *base)
{
    const int8x16_t d = vreinterpretq_s8_u8(vsubq_u8(vld1q_u8(bytes), vld1q_u8(base)));
    return veorq_u8(vreinterpretq_u8_s8(vshlq_n_s8(d, 1)), vreinterpretq_u8_s8(vshrq_n_s8(d, 7)));
}

/* Narrowing stops at 255, which is TB_PLANES_WIDE. */
INLINE uint8x8_t fold_pairs(const uint8_t *bytes, const uint8_t *base)
{
    const int16x8_t d = vreinterpretq_s16_u16(vsubq_u16(load_pairs(bytes), load_pairs(base)));
    return vqmovn_u16(
        veorq_u16(vreinterpretq_u16_s16(vshlq_n_s16(d, 1)), vreinterpretq_u16_s16(vshrq_n_s16(d, 15))));
}

INLINE uint16x4_t fold_quads(const uint8_t *bytes, const uint8_t *base)
{
    const int32x4_t d = vreinterpretq_s32_u32(vsubq_u32(load_quads(bytes), load_quads(base)));
    return vqmovn_u32(
        veorq_u32(vreinterpretq_u32_s32(vshlq_n_s32(d, 1)), vreinterpretq_u32_s32(vshrq_n_s32(d, 31))));
}

INLINE uint8x8_t fold_eight_quads(const uint8_t *bytes, const uint8_t *base)
{
    return vqmovn_u16(vcombine_u16(fold_quads(bytes, base), fold_quads(bytes + 16, base + 16)));
}

_Static_assert(TB_PLANES_WIDE == UINT8_MAX, "narrowing that saturates gives it");

static void fold(const uint8_t *bytes, const uint8_t *base, unsigned width, size_t groups, uint8_t *hot)
{
    for (size_t i = 0; i < TB_CASCADE_GROUP * groups; i += 16, bytes += 16 * width, base += 16 * width) {
        if (width == 1)
            vst1q_u8(hot + i, fold_bytes(bytes, base));
        else if (width == 2)
            vst1q_u8(hot + i, vcombine_u8(fold_pairs(bytes, base), fold_pairs(bytes + 16, base + 16)));
        else
            vst1q_u8(hot + i,
                     vcombine_u8(fold_eight_quads(bytes, base), fold_eight_quads(bytes + 32, base + 32)));
    }
}

/* Differences from -128 to 127. */
INLINE int8x16_t unfolded(const uint8_t *hot)
{
    const uint8x16_t h = vld1q_u8(hot), odd = vandq_u8(h, vdupq_n_u8(1));
    return vreinterpretq_s8_u8(veorq_u8(vshrq_n_u8(h, 1), vsubq_u8(vdupq_n_u8(0), odd)));
}

INLINE void unfold_pairs(int8x8_t d, const uint8_t *base, uint8_t *out)
{
    const int16x8_t x = vaddw_s8(vreinterpretq_s16_u16(load_pairs(base)), d);
    vst1q_u8(out, vreinterpretq_u8_s16(x));
}

INLINE void unfold_quads(int16x4_t d, const uint8_t *base, uint8_t *out)
{
    const int32x4_t x = vaddw_s16(vreinterpretq_s32_u32(load_quads(base)), d);
    vst1q_u8(out, vreinterpretq_u8_s32(x));
}

INLINE void unfold_eight_quads(int8x8_t d, const uint8_t *base, uint8_t *out)
{
    const int16x8_t wide = vmovl_s8(d);
    unfold_quads(vget_low_s16(wide), base, out);
    unfold_quads(vget_high_s16(wide), base + 16, out + 16);
}

static void unfold(const uint8_t *hot, const uint8_t *base, unsigned width, size_t groups, uint8_t *out)
{
    for (size_t i = 0; i < TB_CASCADE_GROUP * groups; i += 16, base += 16 * width, out += 16 * width) {
        const int8x16_t d = unfolded(hot + i);
        if (width == 1)
            vst1q_u8(out, vaddq_u8(vld1q_u8(base), vreinterpretq_u8_s8(d)));
        else if (width == 2) {
            unfold_pairs(vget_low_s8(d), base, out);
            unfold_pairs(vget_high_s8(d), base + 16, out + 16);
        } else {
            unfold_eight_quads(vget_low_s8(d), base, out);
            unfold_eight_quads(vget_high_s8(d), base + 32, out + 32);
        }
    }
}

const struct tb_planes_kernels tb_planes_neon = {split, join, fold, unfold, subtract, add, code, decode};

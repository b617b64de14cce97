/* neon.h - what both codecs' NEON variants are made of. Every aarch64 has NEON, so nothing is asked
 * when it runs. Inside planes_neon.c and sparse_neon.c only. */
#ifndef TB_BASE_CODEC_NEON_H
#define TB_BASE_CODEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "elements are read as they stand in memory"
#endif

#define INLINE static inline __attribute__((always_inline))

/* 64 bytes, or 64 lanes made narrow. */
struct neon_group {
    uint8x16_t of[4];
};

/* Bit i of each byte i modulo 8. */
INLINE uint8x16_t each_bit(void)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return vld1q_u8(bits);
}

/* NEON has no instruction that gives a mask. So each byte, all ones or all zeros, keeps a bit of
 * its own, and three rounds of adding neighbours leave eight of them in each byte. */
INLINE uint64_t mask_of(struct neon_group lanes)
{
    const uint8x16_t bits = each_bit();
    uint8x16_t low = vpaddq_u8(vandq_u8(lanes.of[0], bits), vandq_u8(lanes.of[1], bits));
    const uint8x16_t high = vpaddq_u8(vandq_u8(lanes.of[2], bits), vandq_u8(lanes.of[3], bits));
    low = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(low, low)), 0);
}

/* The low byte of each element of two bytes. */
INLINE uint8x16_t narrow_pairs(uint16x8_t a, uint16x8_t b)
{
    return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

/* And of each of four. */
INLINE uint8x16_t narrow_quads(uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d)
{
    return narrow_pairs(vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)),
                        vuzp1q_u16(vreinterpretq_u16_u32(c), vreinterpretq_u16_u32(d)));
}

INLINE uint16x8_t load_pairs(const uint8_t *at)
{
    return vreinterpretq_u16_u8(vld1q_u8(at));
}

INLINE uint32x4_t load_quads(const uint8_t *at)
{
    return vreinterpretq_u32_u8(vld1q_u8(at));
}

/* A byte of elements that are rotated left by one bit, where `below` is the byte under it. */
INLINE uint8x16_t rotated(uint8x16_t x, uint8x16_t below)
{
    return vsriq_n_u8(vshlq_n_u8(x, 1), below, 7);
}

#endif

/* arm_neon.h - the instructions that the NEON variants use, spelled out lane by lane as Arm's
 * manual has them, so that what those variants do with them is tested on machines that have none.
 * Found instead of the compiler's header by the targets that ask for this folder; test code
 * only. */
#ifndef TB_TESTS_SPELLED_ARM_NEON_H
#define TB_TESTS_SPELLED_ARM_NEON_H

#include <stdint.h>
#include <string.h>

#define SPELLED static inline __attribute__((unused))

#define VECTOR(name, lane, count)                                                                            \
    typedef struct {                                                                                         \
        lane at[count];                                                                                      \
    } name;

VECTOR(uint8x16_t, uint8_t, 16)
VECTOR(int8x16_t, int8_t, 16)
VECTOR(uint16x8_t, uint16_t, 8)
VECTOR(int16x8_t, int16_t, 8)
VECTOR(uint32x4_t, uint32_t, 4)
VECTOR(int32x4_t, int32_t, 4)
VECTOR(uint64x2_t, uint64_t, 2)
VECTOR(uint8x8_t, uint8_t, 8)
VECTOR(int8x8_t, int8_t, 8)
VECTOR(uint16x4_t, uint16_t, 4)
VECTOR(int16x4_t, int16_t, 4)
VECTOR(uint64x1_t, uint64_t, 1)

typedef struct {
    uint8x16_t val[2];
} uint8x16x2_t;
typedef struct {
    uint8x16_t val[4];
} uint8x16x4_t;

#define OUT_OF(vector) (sizeof((vector *)0)->at / sizeof((vector *)0)->at[0])
#define EACH(vector)   for (unsigned i = 0; i < OUT_OF(vector); i++)

/* Lane i of the result is z; the bits of z that the lane has no room for are cut off. */
#define OF_TWO(name, from, to, z)                                                                            \
    SPELLED to name(from a, from b)                                                                          \
    {                                                                                                        \
        to out;                                                                                              \
        EACH(to) out.at[i] = (__typeof__(out.at[0]))(z);                                                     \
        return out;                                                                                          \
    }

#define OF_ONE(name, from, to, z)                                                                            \
    SPELLED to name(from a)                                                                                  \
    {                                                                                                        \
        to out;                                                                                              \
        EACH(to) out.at[i] = (__typeof__(out.at[0]))(z);                                                     \
        return out;                                                                                          \
    }

#define OF_NUMBER(name, from, to, z)                                                                         \
    SPELLED to name(from a, int n)                                                                           \
    {                                                                                                        \
        to out;                                                                                              \
        EACH(to) out.at[i] = (__typeof__(out.at[0]))(z);                                                     \
        return out;                                                                                          \
    }

#define FILLED(name, lane, to)                                                                               \
    SPELLED to name(lane x)                                                                                  \
    {                                                                                                        \
        to out;                                                                                              \
        EACH(to) out.at[i] = x;                                                                              \
        return out;                                                                                          \
    }

/* The same bits. */
#define AS(name, from, to)                                                                                   \
    SPELLED to name(from a)                                                                                  \
    {                                                                                                        \
        to out;                                                                                              \
        memcpy(&out, &a, sizeof out);                                                                        \
        return out;                                                                                          \
    }

#define LOADED(name, lane, to)                                                                               \
    SPELLED to name(const lane *from)                                                                        \
    {                                                                                                        \
        to out;                                                                                              \
        memcpy(&out, from, sizeof out);                                                                      \
        return out;                                                                                          \
    }

LOADED(vld1q_u8, uint8_t, uint8x16_t)
LOADED(vld1q_u16, uint16_t, uint16x8_t)
LOADED(vld1q_u32, uint32_t, uint32x4_t)

SPELLED void vst1q_u8(uint8_t *to, uint8x16_t a)
{
    memcpy(to, &a, sizeof a);
}

/* Lanes taken apart: element i's byte k is lane i of vector k. */
#define APART(load, store, several, count)                                                                   \
    SPELLED several load(const uint8_t *from)                                                                \
    {                                                                                                        \
        several out;                                                                                         \
        for (unsigned k = 0; k < (count); k++)                                                               \
            EACH(uint8x16_t) out.val[k].at[i] = from[(count)*i + k];                                         \
        return out;                                                                                          \
    }                                                                                                        \
    SPELLED void store(uint8_t *to, several a)                                                               \
    {                                                                                                        \
        for (unsigned k = 0; k < (count); k++)                                                               \
            EACH(uint8x16_t) to[(count)*i + k] = a.val[k].at[i];                                             \
    }

APART(vld2q_u8, vst2q_u8, uint8x16x2_t, 2)
APART(vld4q_u8, vst4q_u8, uint8x16x4_t, 4)

FILLED(vdupq_n_u8, uint8_t, uint8x16_t)
FILLED(vdup_n_u8, uint8_t, uint8x8_t)
FILLED(vdupq_n_u16, uint16_t, uint16x8_t)
FILLED(vdupq_n_u32, uint32_t, uint32x4_t)

AS(vreinterpretq_u64_u8, uint8x16_t, uint64x2_t)
AS(vreinterpretq_u16_u8, uint8x16_t, uint16x8_t)
AS(vreinterpretq_u32_u8, uint8x16_t, uint32x4_t)
AS(vreinterpretq_u8_u16, uint16x8_t, uint8x16_t)
AS(vreinterpretq_u16_u32, uint32x4_t, uint16x8_t)
AS(vreinterpretq_s8_u8, uint8x16_t, int8x16_t)
AS(vreinterpretq_u8_s8, int8x16_t, uint8x16_t)
AS(vreinterpretq_s16_u16, uint16x8_t, int16x8_t)
AS(vreinterpretq_u16_s16, int16x8_t, uint16x8_t)
AS(vreinterpretq_u8_s16, int16x8_t, uint8x16_t)
AS(vreinterpretq_s32_u32, uint32x4_t, int32x4_t)
AS(vreinterpretq_u32_s32, int32x4_t, uint32x4_t)
AS(vreinterpretq_u8_s32, int32x4_t, uint8x16_t)
AS(vreinterpret_u64_u8, uint8x8_t, uint64x1_t)
AS(vcreate_u8, uint64_t, uint8x8_t)

#define vgetq_lane_u64(a, lane) ((a).at[lane])
#define vget_lane_u64(a, lane)  ((a).at[lane])

OF_TWO(vandq_u8, uint8x16_t, uint8x16_t, a.at[i] & b.at[i])
OF_TWO(vandq_u32, uint32x4_t, uint32x4_t, a.at[i] & b.at[i])
OF_TWO(vorrq_u8, uint8x16_t, uint8x16_t, a.at[i] | b.at[i])
OF_TWO(vorrq_u32, uint32x4_t, uint32x4_t, a.at[i] | b.at[i])
OF_TWO(veorq_u8, uint8x16_t, uint8x16_t, a.at[i] ^ b.at[i])
OF_TWO(veorq_u16, uint16x8_t, uint16x8_t, a.at[i] ^ b.at[i])
OF_TWO(veorq_u32, uint32x4_t, uint32x4_t, a.at[i] ^ b.at[i])
OF_TWO(vaddq_u8, uint8x16_t, uint8x16_t, a.at[i] + b.at[i])
OF_TWO(vaddq_u16, uint16x8_t, uint16x8_t, a.at[i] + b.at[i])
OF_TWO(vsubq_u8, uint8x16_t, uint8x16_t, a.at[i] - b.at[i])
OF_TWO(vsubq_u16, uint16x8_t, uint16x8_t, a.at[i] - b.at[i])
OF_TWO(vsubq_u32, uint32x4_t, uint32x4_t, a.at[i] - b.at[i])

OF_TWO(vceqq_u8, uint8x16_t, uint8x16_t, a.at[i] == b.at[i] ? -1 : 0)
OF_TWO(vceqq_u16, uint16x8_t, uint16x8_t, a.at[i] == b.at[i] ? -1 : 0)
OF_TWO(vceqq_u32, uint32x4_t, uint32x4_t, a.at[i] == b.at[i] ? -1 : 0)
OF_TWO(vcltq_u8, uint8x16_t, uint8x16_t, a.at[i] < b.at[i] ? -1 : 0)
OF_TWO(vcle_u8, uint8x8_t, uint8x8_t, a.at[i] <= b.at[i] ? -1 : 0)
OF_TWO(vcleq_u16, uint16x8_t, uint16x8_t, a.at[i] <= b.at[i] ? -1 : 0)
OF_TWO(vtstq_u8, uint8x16_t, uint8x16_t, (a.at[i] & b.at[i]) != 0 ? -1 : 0)
OF_TWO(vtstq_u32, uint32x4_t, uint32x4_t, (a.at[i] & b.at[i]) != 0 ? -1 : 0)

OF_NUMBER(vshlq_n_u8, uint8x16_t, uint8x16_t, a.at[i] << n)
OF_NUMBER(vshlq_n_s8, int8x16_t, int8x16_t, (unsigned)a.at[i] << n)
OF_NUMBER(vshlq_n_s16, int16x8_t, int16x8_t, (unsigned)a.at[i] << n)
OF_NUMBER(vshlq_n_s32, int32x4_t, int32x4_t, (unsigned)a.at[i] << n)
OF_NUMBER(vshrq_n_u8, uint8x16_t, uint8x16_t, a.at[i] >> n)
OF_NUMBER(vshrq_n_s8, int8x16_t, int8x16_t, a.at[i] >> n)
OF_NUMBER(vshrq_n_s16, int16x8_t, int16x8_t, a.at[i] >> n)
OF_NUMBER(vshrq_n_s32, int32x4_t, int32x4_t, a.at[i] >> n)

/* Shift and insert: a's own bits stay where the shifted b has none. */
#define vsriq_n_u8(a, b, n) vsriq_u8(a, vshrq_n_u8(b, n), n)
#define vsliq_n_u8(a, b, n) vsliq_u8(a, vshlq_n_u8(b, n), n)
SPELLED uint8x16_t vsriq_u8(uint8x16_t a, uint8x16_t shifted, int n)
{
    EACH(uint8x16_t) a.at[i] = (uint8_t)((a.at[i] & ~(0xff >> n)) | shifted.at[i]);
    return a;
}

SPELLED uint8x16_t vsliq_u8(uint8x16_t a, uint8x16_t shifted, int n)
{
    EACH(uint8x16_t) a.at[i] = (uint8_t)((a.at[i] & ~(0xff << n)) | shifted.at[i]);
    return a;
}

OF_TWO(vpaddq_u8, uint8x16_t, uint8x16_t,
       i < 8 ? a.at[2 * i] + a.at[2 * i + 1] : b.at[2 * i - 16] + b.at[2 * i - 15])
OF_TWO(vuzp1q_u8, uint8x16_t, uint8x16_t, i < 8 ? a.at[2 * i] : b.at[2 * i - 16])
OF_TWO(vuzp1q_u16, uint16x8_t, uint16x8_t, i < 4 ? a.at[2 * i] : b.at[2 * i - 8])
OF_TWO(vqtbl1q_u8, uint8x16_t, uint8x16_t, b.at[i] < 16 ? a.at[b.at[i]] : 0)
OF_TWO(vcombine_u8, uint8x8_t, uint8x16_t, i < 8 ? a.at[i] : b.at[i - 8])
OF_TWO(vcombine_u16, uint16x4_t, uint16x8_t, i < 4 ? a.at[i] : b.at[i - 4])
OF_ONE(vcnt_u8, uint8x8_t, uint8x8_t, __builtin_popcount(a.at[i]))
OF_ONE(vqmovn_u16, uint16x8_t, uint8x8_t, a.at[i] < UINT8_MAX ? a.at[i] : UINT8_MAX)
OF_ONE(vqmovn_u32, uint32x4_t, uint16x4_t, a.at[i] < UINT16_MAX ? a.at[i] : UINT16_MAX)
OF_ONE(vmovl_s8, int8x8_t, int16x8_t, a.at[i])
OF_ONE(vget_low_s8, int8x16_t, int8x8_t, a.at[i])
OF_ONE(vget_high_s8, int8x16_t, int8x8_t, a.at[i + 8])
OF_ONE(vget_low_s16, int16x8_t, int16x4_t, a.at[i])
OF_ONE(vget_high_s16, int16x8_t, int16x4_t, a.at[i + 4])

SPELLED int16x8_t vaddw_s8(int16x8_t a, int8x8_t b)
{
    EACH(int16x8_t) a.at[i] = (int16_t)(a.at[i] + b.at[i]);
    return a;
}

SPELLED int32x4_t vaddw_s16(int32x4_t a, int16x4_t b)
{
    EACH(int32x4_t) a.at[i] = (int32_t)((uint32_t)a.at[i] + (uint32_t)b.at[i]);
    return a;
}

SPELLED uint16_t vaddvq_u16(uint16x8_t a)
{
    uint16_t sum = 0;
    EACH(uint16x8_t) sum = (uint16_t)(sum + a.at[i]);
    return sum;
}

#endif

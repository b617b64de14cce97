/* immintrin.h - the instructions that the AVX-512 variants use, spelled out lane by lane as
 * Intel's manual has them, so that what those variants do with them is tested on machines
 * that have none. Found instead of the compiler's header by the targets that ask for this
 * folder; test code only. */
#ifndef TB_TESTS_SPELLED_IMMINTRIN_H
#define TB_TESTS_SPELLED_IMMINTRIN_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint8_t at[64];
} __m512i;
typedef struct {
    uint8_t at[32];
} __m256i;
typedef struct {
    uint8_t at[16];
} __m128i;

#define SPELLED static inline __attribute__((unused))

#define LOAD_STORE(load, store, vector)                                                                      \
    SPELLED vector load(const void *from)                                                                    \
    {                                                                                                        \
        vector v;                                                                                            \
        memcpy(v.at, from, sizeof v.at);                                                                     \
        return v;                                                                                            \
    }                                                                                                        \
    SPELLED void store(void *to, vector v)                                                                   \
    {                                                                                                        \
        memcpy(to, v.at, sizeof v.at);                                                                       \
    }

LOAD_STORE(_mm512_loadu_si512, _mm512_storeu_si512, __m512i)
LOAD_STORE(_mm256_loadu_si256, _mm256_storeu_si256, __m256i)
LOAD_STORE(_mm_loadu_si128, _mm_storeu_si128, __m128i)

/* z of x and y, lane by lane; i is the lane, n a number or a mask. */
#define LANES(lane)                                                                                          \
    for (unsigned i = 0; i < 64 / sizeof(lane); i++) {                                                       \
        lane x, y, z;                                                                                        \
        memcpy(&x, a.at + sizeof x * i, sizeof x);                                                           \
        memcpy(&y, b.at + sizeof y * i, sizeof y);

#define OF_TWO(name, lane, expression)                                                                       \
    SPELLED __m512i name(__m512i a, __m512i b)                                                               \
    {                                                                                                        \
        __m512i out;                                                                                         \
        LANES(lane)                                                                                          \
        z = (lane)(expression);                                                                              \
        memcpy(out.at + sizeof z * i, &z, sizeof z);                                                         \
    }                                                                                                        \
    return out;                                                                                              \
    }

#define OF_ONE(name, lane, expression)                                                                       \
    SPELLED __m512i name(__m512i a, unsigned n)                                                              \
    {                                                                                                        \
        const __m512i b = a;                                                                                 \
        __m512i out;                                                                                         \
        LANES(lane)                                                                                          \
        (void)y;                                                                                             \
        z = (lane)(expression);                                                                              \
        memcpy(out.at + sizeof z * i, &z, sizeof z);                                                         \
    }                                                                                                        \
    return out;                                                                                              \
    }

#define MASK_OF(name, lane, expression)                                                                      \
    SPELLED uint64_t name(__m512i a, __m512i b)                                                              \
    {                                                                                                        \
        uint64_t mask = 0;                                                                                   \
        LANES(lane)                                                                                          \
        z = (lane)(expression);                                                                              \
        mask |= (uint64_t)(z != 0) << i;                                                                     \
    }                                                                                                        \
    return mask;                                                                                             \
    }

#define SET(name, lane)                                                                                      \
    SPELLED __m512i name(int value)                                                                          \
    {                                                                                                        \
        __m512i out;                                                                                         \
        const lane z = (lane)value;                                                                          \
        for (unsigned i = 0; i < 64 / sizeof z; i++)                                                         \
            memcpy(out.at + sizeof z * i, &z, sizeof z);                                                     \
        return out;                                                                                          \
    }

SET(_mm512_set1_epi8, uint8_t)
SET(_mm512_set1_epi16, uint16_t)
SET(_mm512_set1_epi32, uint32_t)
OF_TWO(_mm512_and_si512, uint8_t, x &y)
OF_TWO(_mm512_or_si512, uint8_t, x | y)
OF_TWO(_mm512_xor_si512, uint8_t, x ^ y)
OF_TWO(_mm512_add_epi8, uint8_t, x + y)
OF_TWO(_mm512_add_epi16, uint16_t, x + y)
OF_TWO(_mm512_add_epi32, uint32_t, x + y)
OF_TWO(_mm512_sub_epi8, uint8_t, x - y)
OF_TWO(_mm512_sub_epi16, uint16_t, x - y)
OF_TWO(_mm512_sub_epi32, uint32_t, x - y)
OF_TWO(_mm512_min_epu16, uint16_t, x < y ? x : y)
OF_TWO(_mm512_min_epu32, uint32_t, x < y ? x : y)
OF_TWO(_mm512_shuffle_epi8, uint8_t, y >= 128 ? x & 0 : a.at[(i & 48u) | (y & 15u)])
OF_ONE(_mm512_slli_epi16, uint16_t, n > 15 ? 0 : x << n)
OF_ONE(_mm512_srli_epi16, uint16_t, n > 15 ? 0 : x >> n)
OF_ONE(_mm512_slli_epi32, uint32_t, n > 31 ? 0 : x << n)
OF_ONE(_mm512_srli_epi32, uint32_t, n > 31 ? 0 : x >> n)
OF_ONE(_mm512_srai_epi16, int16_t, x >> (n > 15 ? 15 : n))
OF_ONE(_mm512_srai_epi32, int32_t, x >> (n > 31 ? 31 : n))
OF_ONE(_mm512_rol_epi32, uint32_t, x << (n & 31) | x >> (-n & 31))
OF_ONE(_mm512_ror_epi32, uint32_t, x >> (n & 31) | x << (-n & 31))
MASK_OF(_mm512_cmpeq_epi8_mask, uint8_t, x == y)
MASK_OF(_mm512_cmpneq_epi8_mask, uint8_t, x != y)
MASK_OF(_mm512_cmpneq_epi16_mask, uint16_t, x != y)
MASK_OF(_mm512_cmpneq_epi32_mask, uint32_t, x != y)
MASK_OF(_mm512_cmpge_epu8_mask, uint8_t, x >= y)
MASK_OF(_mm512_cmplt_epu8_mask, uint8_t, x < y)
MASK_OF(_mm512_cmple_epu16_mask, uint16_t, x <= y)
MASK_OF(_mm512_test_epi8_mask, uint8_t, x &y)

SPELLED __m512i _mm512_setzero_si512(void)
{
    return _mm512_set1_epi8(0);
}

SPELLED __m512i _mm512_mask_add_epi8(__m512i otherwise, uint64_t mask, __m512i a, __m512i b)
{
    const __m512i sum = _mm512_add_epi8(a, b);
    for (unsigned i = 0; i < 64; i++)
        otherwise.at[i] = (mask >> i & 1) != 0 ? sum.at[i] : otherwise.at[i];
    return otherwise;
}

SPELLED __m512i _mm512_maskz_set1_epi8(uint64_t mask, int value)
{
    const __m512i zero = _mm512_setzero_si512();
    return _mm512_mask_add_epi8(zero, mask, zero, _mm512_set1_epi8(value));
}

SPELLED uint64_t _mm512_movepi8_mask(__m512i a)
{
    return _mm512_test_epi8_mask(a, _mm512_set1_epi8(0x80));
}

SPELLED __m512i _mm512_movm_epi8(uint64_t mask)
{
    return _mm512_maskz_set1_epi8(mask, 0xff);
}

SPELLED __m128i _mm_cvtsi32_si128(int value)
{
    __m128i v = {{0}};
    memcpy(v.at, &value, sizeof value);
    return v;
}

SPELLED __m512i _mm512_srl_epi16(__m512i a, __m128i by)
{
    return _mm512_srli_epi16(a, by.at[0]);
}

SPELLED __m512i _mm512_broadcast_i32x4(__m128i a)
{
    __m512i out;
    for (unsigned i = 0; i < 64; i++)
        out.at[i] = a.at[i & 15];
    return out;
}

/* The low byte of each lane (these machines are little-endian), and back with zeros above it. */
#define NARROW(name, narrow, vector, bytes)                                                                  \
    SPELLED narrow name(vector a)                                                                            \
    {                                                                                                        \
        narrow out;                                                                                          \
        for (unsigned i = 0; i < sizeof out.at; i++)                                                         \
            out.at[i] = a.at[(bytes)*i];                                                                     \
        return out;                                                                                          \
    }

#define WIDEN(name, narrow, vector, bytes)                                                                   \
    SPELLED vector name(narrow a)                                                                            \
    {                                                                                                        \
        vector out = {{0}};                                                                                  \
        for (unsigned i = 0; i < sizeof a.at; i++)                                                           \
            out.at[(bytes)*i] = a.at[i];                                                                     \
        return out;                                                                                          \
    }

NARROW(_mm512_cvtepi16_epi8, __m256i, __m512i, 2)
NARROW(_mm512_cvtepi32_epi8, __m128i, __m512i, 4)
WIDEN(_mm512_cvtepu8_epi16, __m256i, __m512i, 2)
WIDEN(_mm512_cvtepu8_epi32, __m128i, __m512i, 4)

SPELLED uint64_t _pext_u64(uint64_t x, uint64_t mask)
{
    uint64_t out = 0;
    for (unsigned i = 0, n = 0; i < 64; i++) {
        if ((mask >> i & 1) != 0) out |= (x >> i & 1) << n++;
    }
    return out;
}

SPELLED uint64_t _pdep_u64(uint64_t x, uint64_t mask)
{
    uint64_t out = 0;
    for (unsigned i = 0, n = 0; i < 64; i++) {
        if ((mask >> i & 1) != 0) out |= (x >> n++ & 1) << i;
    }
    return out;
}

SPELLED uint64_t _tzcnt_u64(uint64_t x)
{
    return x == 0 ? 64 : (uint64_t)__builtin_ctzll(x);
}

#endif

/* vector_x86.c - what cpuid says, and whether the kernel saves the registers (Intel's manual,
 * volume 1, chapters 14 and 15). */
#include <cpuid.h>
#include <stdint.h>

#include "base/vector.h"

#define CPUID_1_ECX_POPCNT  (1u << 23)
#define CPUID_1_ECX_OSXSAVE (1u << 27)
#define CPUID_7_EBX_AVX2    (1u << 5 | 1u << 3 | 1u << 8)    /* AVX2, BMI1, BMI2 */
#define CPUID_7_EBX_AVX512  (1u << 16 | 1u << 30 | 1u << 31) /* F, BW, VL */
#define XCR0_AVX            0x06u                            /* XMM and YMM */
#define XCR0_AVX512         0xe6u                            /* and masks and ZMM */

static uint32_t xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    return low;
}

bool tb_vector_here(enum tb_vector vector)
{
    if (vector == TB_VECTOR_PORTABLE || vector == TB_VECTOR_BEST) return true;
    if (vector == TB_VECTOR_NEON) return false;
    const bool wide = vector == TB_VECTOR_AVX512;
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
    if ((c & CPUID_1_ECX_POPCNT) == 0 || (c & CPUID_1_ECX_OSXSAVE) == 0) return false;
    const uint32_t saved = wide ? XCR0_AVX512 : XCR0_AVX;
    if ((xcr0() & saved) != saved) return false;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    const uint32_t needed = wide ? CPUID_7_EBX_AVX2 | CPUID_7_EBX_AVX512 : CPUID_7_EBX_AVX2;
    return (b & needed) == needed;
}

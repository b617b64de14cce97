/* bit_loops.h - bits taken from a word or put into it where a mask says: one instruction on x86
 * with BMI2, loops elsewhere. Inside planes_*.c and sparse_*.c only. */
#ifndef TB_BASE_BIT_LOOPS_H
#define TB_BASE_BIT_LOOPS_H

#include <stdint.h>

static inline __attribute__((always_inline)) uint64_t extract(uint64_t x, uint64_t mask)
{
    uint64_t out = 0;
    for (unsigned n = 0; mask != 0; mask &= mask - 1, n++)
        out |= (x >> __builtin_ctzll(mask) & 1) << n;
    return out;
}

static inline __attribute__((always_inline)) uint64_t deposit(uint64_t x, uint64_t mask)
{
    uint64_t out = 0;
    for (; mask != 0; mask &= mask - 1, x >>= 1)
        out |= (mask & (0 - mask)) & (0 - (x & 1));
    return out;
}

#endif

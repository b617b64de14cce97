/* kernel_words_cuda.h - what kernels are made of, on a GPU. Each has its twin in
 * kernel_words_c.h. */
#ifndef TB_INTRA_KERNEL_WORDS_CUDA_H
#define TB_INTRA_KERNEL_WORDS_CUDA_H

#include <stdint.h>

#define TB_DEVICE static __device__ __forceinline__
/* Seldom called: code of its own, which takes no registers from its callers. */
#define TB_DEVICE_APART static __device__ __noinline__
#define TB_UNROLL       _Pragma("unroll")
/* Not __constant__: threads side by side read words side by side, which that memory gives
 * one after the other. */
#define TB_DEVICE_TABLE static __device__ const

/* Of TB_KERNEL_THREADS threads; a warp of 32 lanes goes in step, and is told of what its lanes
 * hold without a barrier. All lanes of a warp call each tb_warp_ function. */
#define TB_WARPS_MAX 8u

struct tb_block {
    uint32_t thread, threads;
};

TB_DEVICE void tb_block_sync(const struct tb_block *b)
{
    (void)b;
    __syncthreads();
}

TB_DEVICE uint32_t tb_lanes(const struct tb_block *b)
{
    (void)b;
    return 32;
}

TB_DEVICE uint32_t tb_lane(const struct tb_block *b)
{
    return b->thread % 32;
}

TB_DEVICE uint32_t tb_warp(const struct tb_block *b)
{
    return b->thread / 32;
}

/* All lanes see behind it each store that one of them made before it. */
TB_DEVICE void tb_warp_sync(const struct tb_block *b)
{
    (void)b;
    __syncwarp();
}

/* Bit i: what lane i gave is not 0. */
TB_DEVICE uint32_t tb_warp_vote(const struct tb_block *b, int mine)
{
    (void)b;
    return __ballot_sync(0xffffffffu, mine);
}

/* The number that lane `lane` gave; each may ask another lane. */
TB_DEVICE uint32_t tb_warp_from(const struct tb_block *b, uint32_t mine, uint32_t lane)
{
    (void)b;
    return __shfl_sync(0xffffffffu, mine, (int)lane);
}

/* The sum of what this lane and those before it gave. */
TB_DEVICE uint32_t tb_warp_upto(const struct tb_block *b, uint32_t mine)
{
    uint32_t sum = mine;
#pragma unroll
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t more = __shfl_up_sync(0xffffffffu, sum, step);
        sum += tb_lane(b) >= step ? more : 0;
    }
    return sum;
}

TB_DEVICE uint64_t tb_mul_high(uint64_t x, uint64_t y)
{
    return __umul64hi(x, y);
}

TB_DEVICE uint32_t tb_count_bits(uint64_t x)
{
    return (uint32_t)__popcll(x);
}

TB_DEVICE uint32_t tb_lowest_bit(uint64_t x)
{
    return (uint32_t)__ffsll((long long)x) - 1;
}

TB_DEVICE uint32_t tb_count_bits32(uint32_t x)
{
    return (uint32_t)__popc((int)x);
}

TB_DEVICE uint32_t tb_lowest_bit32(uint32_t x)
{
    return (uint32_t)__ffs((int)x) - 1;
}

/* 32 bits of both words from bit `shift` of the low one on; it is below 32. */
TB_DEVICE uint32_t tb_funnel(uint32_t low, uint32_t high, uint32_t shift)
{
    return __funnelshift_r(low, high, shift);
}

/* The low halves of two words side by side, the high ones, and the second and the last
 * byte of each. */
TB_DEVICE uint32_t tb_low_halves(uint32_t low, uint32_t high)
{
    return __byte_perm(low, high, 0x5410);
}

TB_DEVICE uint32_t tb_high_halves(uint32_t low, uint32_t high)
{
    return __byte_perm(low, high, 0x7632);
}

TB_DEVICE uint32_t tb_odd_bytes(uint32_t low, uint32_t high)
{
    return __byte_perm(low, high, 0x7531);
}

TB_DEVICE uint32_t tb_bit_length(uint32_t x)
{
    return 32u - (uint32_t)__clz((int)x);
}

struct tb_quad {
    uint32_t words[4];
};

TB_DEVICE struct tb_quad tb_load128(const uint8_t *at)
{
    const uint4 x = *(const uint4 *)at;
    struct tb_quad q;
    q.words[0] = x.x;
    q.words[1] = x.y;
    q.words[2] = x.z;
    q.words[3] = x.w;
    return q;
}

/* It is read soon. */
TB_DEVICE void tb_prefetch(const uint8_t *at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

TB_DEVICE uint64_t tb_load64(const uint8_t *at)
{
    return *(const uint64_t *)at;
}

TB_DEVICE uint32_t tb_load32(const uint8_t *at)
{
    return *(const uint32_t *)at;
}

TB_DEVICE uint32_t tb_load16(const uint8_t *at)
{
    return *(const uint16_t *)at;
}

TB_DEVICE void tb_store64(uint8_t *at, uint64_t x)
{
    *(uint64_t *)at = x;
}

TB_DEVICE void tb_store32(uint8_t *at, uint32_t x)
{
    *(uint32_t *)at = x;
}

TB_DEVICE void tb_store16(uint8_t *at, uint32_t x)
{
    *(uint16_t *)at = (uint16_t)x;
}

TB_DEVICE void tb_or32(uint32_t *at, uint32_t bits)
{
    (void)atomicOr(at, bits);
}

TB_DEVICE void tb_add32(uint32_t *at, uint32_t more)
{
    (void)atomicAdd(at, more);
}

#endif

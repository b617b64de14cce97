/* kernel_words_cuda.h - what kernels are made of, on a GPU. Each has its twin in
 * kernel_words_c.h. */
#ifndef TB_INTRA_KERNEL_WORDS_CUDA_H
#define TB_INTRA_KERNEL_WORDS_CUDA_H

#include <stdint.h>

#define TB_DEVICE static __device__ __forceinline__
/* Not __constant__: threads side by side read words side by side, which that memory gives
 * one after the other. */
#define TB_DEVICE_TABLE static __device__ const

struct tb_block {
    uint32_t thread, threads;
};

TB_DEVICE void tb_block_sync(const struct tb_block *b)
{
    (void)b;
    __syncthreads();
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

TB_DEVICE uint32_t tb_bit_length(uint32_t x)
{
    return 32u - (uint32_t)__clz((int)x);
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

/* kernel_words_c.h - what kernels are made of, as plain C: their inner text is compiled from the
 * same headers for the host, where tests run it with a block of real threads and hold it against
 * the codec and the digest of base/. Only for tests; a GPU has kernel_words_cuda.h. */
#ifndef TB_INTRA_KERNEL_WORDS_C_H
#define TB_INTRA_KERNEL_WORDS_C_H

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define TB_DEVICE       static inline __attribute__((unused))
#define TB_DEVICE_TABLE static const

/* A block of threads that share what they are given and meet at each sync. */
struct tb_block {
    uint32_t thread, threads;
    pthread_barrier_t *barrier; /* NULL: one thread */
};

TB_DEVICE void tb_block_sync(const struct tb_block *b)
{
    if (b->barrier != NULL) (void)pthread_barrier_wait(b->barrier);
}

TB_DEVICE uint64_t tb_mul_high(uint64_t x, uint64_t y)
{
    return (uint64_t)((unsigned __int128)x * y >> 64);
}

TB_DEVICE uint32_t tb_count_bits(uint64_t x)
{
    return (uint32_t)__builtin_popcountll(x);
}

TB_DEVICE uint32_t tb_lowest_bit(uint64_t x) /* not 0 */
{
    return (uint32_t)__builtin_ctzll(x);
}

TB_DEVICE uint32_t tb_bit_length(uint32_t x)
{
    return x == 0 ? 0 : 32u - (uint32_t)__builtin_clz(x);
}

/* Aligned ones; the bytes are a machine's of little end. */
TB_DEVICE uint64_t tb_load64(const uint8_t *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

TB_DEVICE uint32_t tb_load32(const uint8_t *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

TB_DEVICE uint32_t tb_load16(const uint8_t *at)
{
    uint16_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

TB_DEVICE void tb_store64(uint8_t *at, uint64_t x)
{
    memcpy(at, &x, sizeof x);
}

TB_DEVICE void tb_store32(uint8_t *at, uint32_t x)
{
    memcpy(at, &x, sizeof x);
}

TB_DEVICE void tb_store16(uint8_t *at, uint32_t x)
{
    const uint16_t low = (uint16_t)x;
    memcpy(at, &low, sizeof low);
}

TB_DEVICE void tb_or32(uint32_t *at, uint32_t bits)
{
    (void)__atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
}

TB_DEVICE void tb_add32(uint32_t *at, uint32_t more)
{
    (void)__atomic_fetch_add(at, more, __ATOMIC_RELAXED);
}

#endif

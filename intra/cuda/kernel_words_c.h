/* kernel_words_c.h - what kernels are made of, as plain C: their inner text is compiled from the
 * same headers for the host, where tests run it with a block of real threads and hold it against
 * the codec and the digest of base/. Only for tests; a GPU has kernel_words_cuda.h. */
#ifndef TB_INTRA_KERNEL_WORDS_C_H
#define TB_INTRA_KERNEL_WORDS_C_H

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define TB_DEVICE       static inline __attribute__((unused))
#define TB_DEVICE_APART static __attribute__((unused))
#define TB_UNROLL
#define TB_DEVICE_TABLE static const

#define TB_C_LANES_MAX  32u
#define TB_WARPS_MAX    16u

/* A number that each lane shows the others. */
struct tb_c_warp {
    pthread_barrier_t barrier;
    uint32_t shown[TB_C_LANES_MAX];
};

/* A block of threads that share what they are given and meet at each sync. Its warps have as many
 * lanes as a test wants: each is a thread, and they meet at a barrier of their own. */
struct tb_block {
    uint32_t thread, threads;
    pthread_barrier_t *barrier; /* NULL: one thread */
    uint32_t lanes;             /* of a warp; `threads` is a multiple of it */
    struct tb_c_warp *warp;     /* NULL: of one lane */
};

TB_DEVICE void tb_block_sync(const struct tb_block *b)
{
    if (b->barrier != NULL) (void)pthread_barrier_wait(b->barrier);
}

TB_DEVICE uint32_t tb_lanes(const struct tb_block *b)
{
    return b->lanes;
}

TB_DEVICE uint32_t tb_lane(const struct tb_block *b)
{
    return b->thread % b->lanes;
}

TB_DEVICE uint32_t tb_warp(const struct tb_block *b)
{
    return b->thread / b->lanes;
}

TB_DEVICE void tb_warp_sync(const struct tb_block *b)
{
    if (b->warp != NULL) (void)pthread_barrier_wait(&b->warp->barrier);
}

/* Shown by all of them until tb_warp_sync. */
TB_DEVICE void tb_c_show(const struct tb_block *b, uint32_t mine)
{
    b->warp->shown[tb_lane(b)] = mine;
    tb_warp_sync(b);
}

TB_DEVICE uint32_t tb_warp_vote(const struct tb_block *b, int mine)
{
    if (b->warp == NULL) return mine != 0;
    uint32_t votes = 0;
    tb_c_show(b, mine != 0);
    for (uint32_t i = 0; i < b->lanes; i++)
        votes |= b->warp->shown[i] << i;
    tb_warp_sync(b);
    return votes;
}

TB_DEVICE uint32_t tb_warp_from(const struct tb_block *b, uint32_t mine, uint32_t lane)
{
    if (b->warp == NULL) return mine;
    tb_c_show(b, mine);
    const uint32_t x = b->warp->shown[lane % b->lanes];
    tb_warp_sync(b);
    return x;
}

TB_DEVICE uint32_t tb_warp_upto(const struct tb_block *b, uint32_t mine)
{
    if (b->warp == NULL) return mine;
    uint32_t sum = 0;
    tb_c_show(b, mine);
    for (uint32_t i = 0; i <= tb_lane(b); i++)
        sum += b->warp->shown[i];
    tb_warp_sync(b);
    return sum;
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

TB_DEVICE uint32_t tb_count_bits32(uint32_t x)
{
    return (uint32_t)__builtin_popcount(x);
}

TB_DEVICE uint32_t tb_lowest_bit32(uint32_t x) /* not 0 */
{
    return (uint32_t)__builtin_ctz(x);
}

TB_DEVICE uint32_t tb_funnel(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> shift);
}

TB_DEVICE uint32_t tb_low_halves(uint32_t low, uint32_t high)
{
    return (low & 0xffff) | high << 16;
}

TB_DEVICE uint32_t tb_high_halves(uint32_t low, uint32_t high)
{
    return low >> 16 | (high & 0xffff0000u);
}

TB_DEVICE uint32_t tb_odd_bytes(uint32_t low, uint32_t high)
{
    return (low >> 8 & 0xff) | (low >> 16 & 0xff00) | (high << 8 & 0xff0000) | (high & 0xff000000u);
}

TB_DEVICE uint32_t tb_bit_length(uint32_t x)
{
    return x == 0 ? 0 : 32u - (uint32_t)__builtin_clz(x);
}

/* Aligned ones; the bytes are a machine's of little end. */
struct tb_quad {
    uint32_t words[4];
};

TB_DEVICE struct tb_quad tb_load128(const uint8_t *at)
{
    struct tb_quad q;
    memcpy(&q, at, sizeof q);
    return q;
}

TB_DEVICE void tb_prefetch(const uint8_t *at)
{
    __builtin_prefetch(at);
}

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

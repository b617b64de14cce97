/* kernel_digest.h - XXH3-128 of one chunk by one block of threads. The text of a kernel: include
 * kernel_words_*.h first.
 *
 * Between two scrambles the function adds: what the 16 stripes of 1024 bytes give to a lane may be
 * summed in any order. So all threads sum blocks of 1024 bytes, a tile of them at a time, and eight
 * then run through the sums and scramble, which is the only part that waits for itself. Source of
 * the function: XXH3_128bits of xxHash 0.8, seed 0 (Y. Collet, BSD licence). */
#ifndef TB_INTRA_KERNEL_DIGEST_H
#define TB_INTRA_KERNEL_DIGEST_H

#include "intra/cuda/kernel_jobs.h"

#define TB_XXH_BLOCK   1024u
#define TB_XXH_STRIPE  64u
#define TB_XXH_STRIPES 16u
#define TB_XXH_LANES   8u
#define TB_XXH_TILE    32u /* blocks: with 256 threads each has one lane of one */

/* XXH3's secret as words of little end. */
TB_DEVICE_TABLE uint64_t tb_xxh_secret[24] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u, 0x78e5c0cc4ee679cbu,
    0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u, 0xcb00c391bb52283cu, 0xa32e531b8b65d088u,
    0x4ef90da297486471u, 0xd8acdea946ef1938u, 0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au,
    0x647378d9c97e9fc8u, 0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
    0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu};

struct tb_digest_shared {
    uint64_t sums[TB_XXH_TILE][TB_XXH_LANES];
    uint64_t acc[TB_XXH_LANES];
};

TB_DEVICE uint64_t tb_xxh_secret_at(uint32_t offset)
{
    const uint32_t word = offset / 8, shift = offset % 8 * 8;
    if (shift == 0) return tb_xxh_secret[word];
    return tb_xxh_secret[word] >> shift | tb_xxh_secret[word + 1] << (64 - shift);
}

TB_DEVICE uint64_t tb_load64_anywhere(const uint8_t *at)
{
    uint64_t x = 0;
    for (uint32_t i = 0; i < 8; i++)
        x |= (uint64_t)at[i] << (8 * i);
    return x;
}

/* The share of a lane from its word and from its neighbour's. */
TB_DEVICE uint64_t tb_xxh_lane(uint64_t word, uint64_t neighbour, uint64_t secret)
{
    const uint64_t key = word ^ secret;
    return neighbour + (key & 0xffffffffu) * (key >> 32);
}

TB_DEVICE uint64_t tb_xxh_sum(const uint8_t *block, uint32_t lane, uint32_t stripes)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < stripes; s++) {
        const uint8_t *stripe = block + TB_XXH_STRIPE * s;
        sum += tb_xxh_lane(tb_load64(stripe + 8 * lane), tb_load64(stripe + 8 * (lane ^ 1u)),
                           tb_xxh_secret[s + lane]);
    }
    return sum;
}

TB_DEVICE uint64_t tb_xxh_scramble(uint64_t acc, uint32_t lane)
{
    return (acc ^ acc >> 47 ^ tb_xxh_secret[16 + lane]) * 0x9e3779b1u;
}

TB_DEVICE uint64_t tb_xxh_merge(const uint64_t *acc, uint32_t secret_offset, uint64_t start)
{
    uint64_t x = start;
    for (uint32_t i = 0; i < TB_XXH_LANES; i += 2) {
        const uint64_t a = acc[i] ^ tb_xxh_secret_at(secret_offset + 8 * i);
        const uint64_t b = acc[i + 1] ^ tb_xxh_secret_at(secret_offset + 8 * i + 8);
        x += a * b ^ tb_mul_high(a, b);
    }
    x = (x ^ x >> 37) * 0x165667919e3779f9u;
    return x ^ x >> 32;
}

TB_DEVICE void tb_store64_big(uint8_t *at, uint64_t x)
{
    for (uint32_t i = 0; i < 8; i++)
        at[i] = (uint8_t)(x >> (56 - 8 * i));
}

TB_DEVICE uint64_t tb_xxh_start(uint32_t lane)
{
    const uint64_t starts[TB_XXH_LANES] = {0xc2b2ae3du,         0x9e3779b185ebca87u, 0xc2b2ae3d27d4eb4fu,
                                           0x165667b19e3779f9u, 0x85ebca77c2b2ae63u, 0x85ebca77u,
                                           0x27d4eb2f165667c5u, 0x9e3779b1u};
    return starts[lane];
}

TB_DEVICE void tb_xxh_tile(const struct tb_block *b, struct tb_digest_shared *sh, const uint8_t *bytes,
                           uint32_t blocks)
{
    for (uint32_t i = b->thread; i < blocks * TB_XXH_LANES; i += b->threads)
        sh->sums[i / TB_XXH_LANES][i % TB_XXH_LANES] =
            tb_xxh_sum(bytes + TB_XXH_BLOCK * (i / TB_XXH_LANES), i % TB_XXH_LANES, TB_XXH_STRIPES);
    tb_block_sync(b);
    for (uint32_t lane = b->thread; lane < TB_XXH_LANES; lane += b->threads) {
        uint64_t acc = sh->acc[lane];
        for (uint32_t k = 0; k < blocks; k++)
            acc = tb_xxh_scramble(acc + sh->sums[k][lane], lane);
        sh->acc[lane] = acc;
    }
    tb_block_sync(b);
}

/* Stripes behind the last whole block, and the last 64 bytes once more. */
TB_DEVICE void tb_xxh_end(const struct tb_block *b, struct tb_digest_shared *sh,
                          const struct tb_digest_job *job, uint64_t blocks)
{
    const uint8_t *rest = job->bytes + TB_XXH_BLOCK * blocks, *last = job->bytes + job->count - TB_XXH_STRIPE;
    const uint32_t stripes = (uint32_t)((job->count - 1 - TB_XXH_BLOCK * blocks) / TB_XXH_STRIPE);
    for (uint32_t lane = b->thread; lane < TB_XXH_LANES; lane += b->threads)
        sh->acc[lane] +=
            tb_xxh_sum(rest, lane, stripes) + tb_xxh_lane(tb_load64_anywhere(last + 8 * lane),
                                                          tb_load64_anywhere(last + 8 * (lane ^ 1u)),
                                                          tb_xxh_secret_at(121 + 8 * lane));
    tb_block_sync(b);
    if (b->thread == 0) {
        const uint64_t count = job->count;
        tb_store64_big(job->digest, tb_xxh_merge(sh->acc, 117, ~(count * 0xc2b2ae3d27d4eb4fu)));
        tb_store64_big(job->digest + 8, tb_xxh_merge(sh->acc, 11, count * 0x9e3779b185ebca87u));
    }
    tb_block_sync(b);
}

TB_DEVICE void tb_kernel_digest(const struct tb_block *b, struct tb_digest_shared *sh,
                                const struct tb_digest_job *job)
{
    const uint64_t blocks = (job->count - 1) / TB_XXH_BLOCK;
    for (uint32_t lane = b->thread; lane < TB_XXH_LANES; lane += b->threads)
        sh->acc[lane] = tb_xxh_start(lane);
    tb_block_sync(b);
    for (uint64_t at = 0; at < blocks; at += TB_XXH_TILE) {
        const uint64_t left = blocks - at;
        tb_xxh_tile(b, sh, job->bytes + TB_XXH_BLOCK * at,
                    (uint32_t)(left < TB_XXH_TILE ? left : TB_XXH_TILE));
    }
    tb_xxh_end(b, sh, job, blocks);
}

#endif

/* kernel_blake3.h - BLAKE3-256 of one chunk by one block of threads (base/proof/blake3.h). The text
 * of a kernel: include kernel_words_*.h first.
 *
 * A thread hashes a leaf of 1024 bytes, and a tile of 256 leaves becomes one node level by level.
 * Nodes of full tiles wait on a stack until their sibling has come. Source of the function: the
 * paper's unkeyed hash ("BLAKE3: one function, fast everywhere", 2020). */
#ifndef TB_INTRA_KERNEL_BLAKE3_H
#define TB_INTRA_KERNEL_BLAKE3_H

#include "intra/cuda/kernel_jobs.h"

#define TB_B3_LEAF        1024u
#define TB_B3_BLOCK       64u
#define TB_B3_TILE        256u /* leaves */
#define TB_B3_DEPTH       32u  /* of a stack of tiles */

#define TB_B3_CHUNK_START 1u
#define TB_B3_CHUNK_END   2u
#define TB_B3_PARENT      4u
#define TB_B3_ROOT        8u

TB_DEVICE_TABLE uint32_t tb_b3_start[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                           0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};

struct tb_b3_node {
    uint32_t words[8];
};
struct tb_blake3_shared {
    struct tb_b3_node nodes[2][TB_B3_TILE]; /* a level, and the one above it */
    struct tb_b3_node stack[TB_B3_DEPTH];
    uint32_t depth;
};

TB_DEVICE uint32_t tb_b3_turn(uint32_t x, uint32_t bits)
{
    return x >> bits | x << (32u - bits);
}

TB_DEVICE void tb_b3_mix(uint32_t *v, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = tb_b3_turn(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = tb_b3_turn(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = tb_b3_turn(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = tb_b3_turn(v[b] ^ v[c], 7);
}

TB_DEVICE void tb_b3_round(uint32_t *v, const uint32_t *m)
{
    tb_b3_mix(v, 0, 4, 8, 12, m[0], m[1]);
    tb_b3_mix(v, 1, 5, 9, 13, m[2], m[3]);
    tb_b3_mix(v, 2, 6, 10, 14, m[4], m[5]);
    tb_b3_mix(v, 3, 7, 11, 15, m[6], m[7]);
    tb_b3_mix(v, 0, 5, 10, 15, m[8], m[9]);
    tb_b3_mix(v, 1, 6, 11, 12, m[10], m[11]);
    tb_b3_mix(v, 2, 7, 8, 13, m[12], m[13]);
    tb_b3_mix(v, 3, 4, 9, 14, m[14], m[15]);
}

/* The words of a block as the next round takes them. By name: an index that is computed would put
 * them into memory. */
TB_DEVICE void tb_b3_permute(uint32_t *m)
{
    const uint32_t m0 = m[0], m1 = m[1], m3 = m[3], m4 = m[4], m5 = m[5], m8 = m[8], m9 = m[9], m15 = m[15];
    m[0] = m[2];
    m[1] = m[6];
    m[2] = m3;
    m[3] = m[10];
    m[4] = m[7];
    m[5] = m0;
    m[6] = m4;
    m[7] = m[13];
    m[8] = m1;
    m[9] = m[11];
    m[10] = m[12];
    m[11] = m5;
    m[12] = m9;
    m[13] = m[14];
    m[14] = m15;
    m[15] = m8;
}

TB_DEVICE void tb_b3_compress(struct tb_b3_node *chain, uint32_t *m, uint32_t bytes, uint64_t number,
                              uint32_t flags)
{
    uint32_t v[16];
    for (uint32_t i = 0; i < 8; i++)
        v[i] = chain->words[i];
    for (uint32_t i = 0; i < 4; i++)
        v[8 + i] = tb_b3_start[i];
    v[12] = (uint32_t)number;
    v[13] = (uint32_t)(number >> 32);
    v[14] = bytes;
    v[15] = flags;
    for (uint32_t r = 0; r < 6; r++) {
        tb_b3_round(v, m);
        tb_b3_permute(m);
    }
    tb_b3_round(v, m);
    for (uint32_t i = 0; i < 8; i++)
        chain->words[i] = v[i] ^ v[8 + i];
}

TB_DEVICE void tb_b3_begin(struct tb_b3_node *chain)
{
    for (uint32_t i = 0; i < 8; i++)
        chain->words[i] = tb_b3_start[i];
}

/* A block at `at`, of which `bytes` are there; the rest counts as zeros. */
TB_DEVICE void tb_b3_words(const uint8_t *at, uint32_t bytes, uint32_t *m)
{
    if (bytes == TB_B3_BLOCK) {
        for (uint32_t i = 0; i < 16; i++)
            m[i] = tb_load32(at + 4 * i);
        return;
    }
    for (uint32_t i = 0; i < 16; i++)
        m[i] = 0;
    for (uint32_t i = 0; i < bytes; i++)
        m[i / 4] |= (uint32_t)at[i] << (8 * (i % 4));
}

/* A leaf of 1 to TB_B3_LEAF bytes. */
TB_DEVICE void tb_b3_leaf(const uint8_t *bytes, uint32_t count, uint64_t number, uint32_t root,
                          struct tb_b3_node *out)
{
    struct tb_b3_node chain;
    uint32_t m[16];
    tb_b3_begin(&chain);
    for (uint32_t at = 0; at < count; at += TB_B3_BLOCK) {
        const uint32_t left = count - at, block = left < TB_B3_BLOCK ? left : TB_B3_BLOCK;
        tb_b3_words(bytes + at, block, m);
        tb_b3_compress(&chain, m, block, number,
                       (at == 0 ? TB_B3_CHUNK_START : 0u) | (left == block ? TB_B3_CHUNK_END | root : 0u));
    }
    *out = chain;
}

/* out may be one of the children. */
TB_DEVICE void tb_b3_parent(const struct tb_b3_node *left, const struct tb_b3_node *right, uint32_t root,
                            struct tb_b3_node *out)
{
    struct tb_b3_node chain;
    uint32_t m[16];
    for (uint32_t i = 0; i < 8; i++) {
        m[i] = left->words[i];
        m[8 + i] = right->words[i];
    }
    tb_b3_begin(&chain);
    tb_b3_compress(&chain, m, TB_B3_BLOCK, 0, TB_B3_PARENT | root);
    *out = chain;
}

/* Leaves of a tile, down to one node in nodes[0][0]. root: it is all there is. */
TB_DEVICE void tb_b3_tile(const struct tb_block *b, struct tb_blake3_shared *sh, const uint8_t *bytes,
                          uint64_t count, uint64_t number, uint32_t root)
{
    uint32_t level = 0, width = (uint32_t)((count + TB_B3_LEAF - 1) / TB_B3_LEAF);
    for (uint32_t i = b->thread; i < width; i += b->threads) {
        const uint64_t at = (uint64_t)i * TB_B3_LEAF, left = count - at;
        tb_b3_leaf(bytes + at, left < TB_B3_LEAF ? (uint32_t)left : TB_B3_LEAF, number + i,
                   width == 1 ? root : 0, &sh->nodes[0][i]);
    }
    tb_block_sync(b);
    while (width > 1) {
        const struct tb_b3_node *from = sh->nodes[level];
        struct tb_b3_node *to = sh->nodes[level ^ 1u];
        for (uint32_t i = b->thread; i < width / 2; i += b->threads)
            tb_b3_parent(&from[2 * i], &from[2 * i + 1], width == 2 ? root : 0, &to[i]);
        if (width % 2 != 0 && b->thread == 0) to[width / 2] = from[width - 1];
        level ^= 1u;
        width = width / 2 + width % 2;
        tb_block_sync(b);
    }
    if (level != 0 && b->thread == 0) sh->nodes[0][0] = sh->nodes[1][0];
    tb_block_sync(b);
}

/* tiles: full ones so far, this one included. */
TB_DEVICE void tb_b3_push(struct tb_blake3_shared *sh, uint64_t tiles)
{
    struct tb_b3_node node = sh->nodes[0][0];
    for (; tiles % 2 == 0; tiles /= 2)
        tb_b3_parent(&sh->stack[--sh->depth], &node, 0, &node);
    sh->stack[sh->depth++] = node;
}

TB_DEVICE void tb_b3_end(struct tb_blake3_shared *sh, uint8_t *digest)
{
    struct tb_b3_node node = sh->nodes[0][0];
    for (uint32_t i = sh->depth; i-- > 0;)
        tb_b3_parent(&sh->stack[i], &node, i == 0 ? TB_B3_ROOT : 0, &node);
    for (uint32_t i = 0; i < 32; i++)
        digest[i] = (uint8_t)(node.words[i / 4] >> (8 * (i % 4)));
}

TB_DEVICE void tb_kernel_blake3(const struct tb_block *b, struct tb_blake3_shared *sh,
                                const struct tb_blake3_job *job)
{
    const uint64_t tile = (uint64_t)TB_B3_TILE * TB_B3_LEAF;
    uint64_t at = 0;
    if (b->thread == 0) sh->depth = 0;
    for (; job->count - at > tile; at += tile) {
        tb_b3_tile(b, sh, job->bytes + at, tile, at / TB_B3_LEAF, 0);
        if (b->thread == 0) tb_b3_push(sh, at / tile + 1);
        tb_block_sync(b);
    }
    tb_b3_tile(b, sh, job->bytes + at, job->count - at, at / TB_B3_LEAF, at == 0 ? TB_B3_ROOT : 0);
    if (b->thread == 0) tb_b3_end(sh, job->digest);
    tb_block_sync(b);
}

#endif

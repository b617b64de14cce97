/* blake3_walk.h - LANES nodes side by side, a word of each in one vector. The files that include it
 * set LANES (4, 8 or 16) and are compiled for their instructions.
 *
 * The compiler's vectors stand for registers, so the code is the same for each width, and gives the
 * same nodes where a processor has no such register. */
#ifndef TB_BASE_PROOF_BLAKE3_WALK_H
#define TB_BASE_PROOF_BLAKE3_WALK_H

#include <string.h>

#include "base/proof/blake3_kernels.h"

#if !defined(LANES)
#define LANES 4
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words of a block are read as they stand in memory"
#endif

typedef uint32_t lanes __attribute__((vector_size(LANES * 4)));
typedef uint8_t lanes_bytes __attribute__((vector_size(LANES * 4)));

/* ROWS_SWAPPED: rows a and b change those blocks of `h` words that stand across the diagonal.
 * log2(LANES) rounds of it turn LANES rows into columns. */
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#if LANES == 16
#define LOW_8(a, b)     PICK(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define HIGH_8(a, b)    PICK(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#define LOW_4(a, b)     PICK(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define HIGH_4(a, b)    PICK(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define LOW_2(a, b)     PICK(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_2(a, b)    PICK(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define LOW_1(a, b)     PICK(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30)
#define HIGH_1(a, b)    PICK(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31)
#define TRANSPOSE(rows) SWAPPED(rows, 8) SWAPPED(rows, 4) SWAPPED(rows, 2) SWAPPED(rows, 1)
#elif LANES == 8
#define LOW_4(a, b)     PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH_4(a, b)    PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define LOW_2(a, b)     PICK(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_2(a, b)    PICK(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW_1(a, b)     PICK(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define HIGH_1(a, b)    PICK(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#define TRANSPOSE(rows) SWAPPED(rows, 4) SWAPPED(rows, 2) SWAPPED(rows, 1)
#else
#define LOW_2(a, b)     PICK(a, b, 0, 1, 4, 5)
#define HIGH_2(a, b)    PICK(a, b, 2, 3, 6, 7)
#define LOW_1(a, b)     PICK(a, b, 0, 4, 2, 6)
#define HIGH_1(a, b)    PICK(a, b, 1, 5, 3, 7)
#define TRANSPOSE(rows) SWAPPED(rows, 2) SWAPPED(rows, 1)
#endif

#define SWAPPED(rows, h)                                                                                     \
    for (size_t r = 0; r < LANES; r++) {                                                                     \
        if ((r & (h)) != 0) continue;                                                                        \
        const lanes a = (rows)[r], b = (rows)[r + (h)];                                                      \
        (rows)[r] = LOW_##h(a, b);                                                                           \
        (rows)[r + (h)] = HIGH_##h(a, b);                                                                    \
    }

static inline __attribute__((always_inline)) void transpose(lanes rows[LANES])
{
    TRANSPOSE(rows)
}

static inline __attribute__((always_inline)) lanes splat(uint32_t word)
{
    return (lanes){0} + word;
}

static inline __attribute__((always_inline)) lanes load(const void *words)
{
    lanes loaded;
    memcpy(&loaded, words, sizeof loaded);
    return loaded;
}

static inline __attribute__((always_inline)) lanes turned(lanes x, int bits)
{
    return x >> bits | x << (32 - bits);
}

/* By whole bytes one shuffle does it, where no instruction turns a word. */
#if LANES == 8
#define TURN(b) (b) + 1, (b) + 2, (b) + 3, (b)
#define TURNED_8(x)                                                                                          \
    ((lanes)__builtin_shufflevector((lanes_bytes)(x), (lanes_bytes)(x), TURN(0), TURN(4), TURN(8), TURN(12), \
                                    TURN(16), TURN(20), TURN(24), TURN(28)))
#define TURN2(b) (b) + 2, (b) + 3, (b), (b) + 1
#define TURNED_16(x)                                                                                         \
    ((lanes)__builtin_shufflevector((lanes_bytes)(x), (lanes_bytes)(x), TURN2(0), TURN2(4), TURN2(8),        \
                                    TURN2(12), TURN2(16), TURN2(20), TURN2(24), TURN2(28)))
#else
#define TURNED_8(x)  turned(x, 8)
#define TURNED_16(x) turned(x, 16)
#endif

/* Section 2.2 of the paper: the quarter round. */
#define MIX(v, a, b, c, d, x, y)                                                                             \
    v[a] = v[a] + v[b] + (x);                                                                                \
    v[d] = TURNED_16(v[d] ^ v[a]);                                                                           \
    v[c] = v[c] + v[d];                                                                                      \
    v[b] = turned(v[b] ^ v[c], 12);                                                                          \
    v[a] = v[a] + v[b] + (y);                                                                                \
    v[d] = TURNED_8(v[d] ^ v[a]);                                                                            \
    v[c] = v[c] + v[d];                                                                                      \
    v[b] = turned(v[b] ^ v[c], 7);

#define MIX_ROUND(v, m, r)                                                                                   \
    MIX(v, 0, 4, 8, 12, m[tb_blake3_order[r][0]], m[tb_blake3_order[r][1]])                                  \
    MIX(v, 1, 5, 9, 13, m[tb_blake3_order[r][2]], m[tb_blake3_order[r][3]])                                  \
    MIX(v, 2, 6, 10, 14, m[tb_blake3_order[r][4]], m[tb_blake3_order[r][5]])                                 \
    MIX(v, 3, 7, 11, 15, m[tb_blake3_order[r][6]], m[tb_blake3_order[r][7]])                                 \
    MIX(v, 0, 5, 10, 15, m[tb_blake3_order[r][8]], m[tb_blake3_order[r][9]])                                 \
    MIX(v, 1, 6, 11, 12, m[tb_blake3_order[r][10]], m[tb_blake3_order[r][11]])                               \
    MIX(v, 2, 7, 8, 13, m[tb_blake3_order[r][12]], m[tb_blake3_order[r][13]])                                \
    MIX(v, 3, 4, 9, 14, m[tb_blake3_order[r][14]], m[tb_blake3_order[r][15]])

/* One block of each lane: `chain` goes in and comes out. */
static inline __attribute__((always_inline)) void compress(lanes chain[8], const lanes m[16],
                                                           lanes number_low, lanes number_high,
                                                           uint32_t flags)
{
    lanes v[16];
    for (size_t i = 0; i < 8; i++)
        v[i] = chain[i];
    for (size_t i = 0; i < 4; i++)
        v[8 + i] = splat(tb_blake3_start[i]);
    v[12] = number_low;
    v[13] = number_high;
    v[14] = splat(TB_BLAKE3_BLOCK_BYTES);
    v[15] = splat(flags);
    MIX_ROUND(v, m, 0)
    MIX_ROUND(v, m, 1)
    MIX_ROUND(v, m, 2)
    MIX_ROUND(v, m, 3)
    MIX_ROUND(v, m, 4)
    MIX_ROUND(v, m, 5)
    MIX_ROUND(v, m, 6)
    for (size_t i = 0; i < 8; i++)
        chain[i] = v[i] ^ v[8 + i];
}

/* Word w of lane l's block stands at blocks + l * stride. */
static inline __attribute__((always_inline)) void words_of(const uint8_t *blocks, size_t stride, lanes m[16])
{
    for (size_t part = 0; part < 16 / LANES; part++) {
        for (size_t l = 0; l < LANES; l++)
            m[part * LANES + l] = load(blocks + l * stride + part * LANES * 4);
        transpose(m + part * LANES);
    }
}

static inline __attribute__((always_inline)) void chain_begin(lanes chain[8])
{
    for (size_t i = 0; i < 8; i++)
        chain[i] = splat(tb_blake3_start[i]);
}

/* Lanes become nodes: the rows of chain are the words. */
static inline __attribute__((always_inline)) void chain_out(const lanes chain[8], struct tb_blake3_node *out)
{
    uint32_t words[8][LANES];
    for (size_t i = 0; i < 8; i++)
        memcpy(words[i], &chain[i], sizeof words[i]);
    for (size_t l = 0; l < LANES; l++)
        for (size_t i = 0; i < 8; i++)
            out[l].words[i] = words[i][l];
}

/* Leaves are read side by side, a block of each at a time: so many streams that no processor
 * fetches all of them ahead by itself. From memory this is a third faster with AVX-512. */
#define AHEAD_BYTES 256

static inline __attribute__((always_inline)) void fetch_ahead(const uint8_t *bytes, size_t at)
{
    const size_t next = at + AHEAD_BYTES, rows = next / TB_BLAKE3_LEAF_BYTES * LANES;
    const uint8_t *from = bytes + rows * TB_BLAKE3_LEAF_BYTES + next % TB_BLAKE3_LEAF_BYTES;
    for (size_t l = 0; l < LANES; l++)
        __builtin_prefetch(from + l * TB_BLAKE3_LEAF_BYTES); /* behind the end nothing happens */
}

static void leaves_side_by_side(const uint8_t *bytes, uint64_t number, struct tb_blake3_node *out)
{
    uint32_t low[LANES], high[LANES];
    for (size_t l = 0; l < LANES; l++) {
        low[l] = (uint32_t)(number + l);
        high[l] = (uint32_t)((number + l) >> 32);
    }
    const lanes number_low = load(low), number_high = load(high);
    lanes chain[8], m[16];
    chain_begin(chain);
    for (size_t at = 0; at < TB_BLAKE3_LEAF_BYTES; at += TB_BLAKE3_BLOCK_BYTES) {
        fetch_ahead(bytes, at);
        words_of(bytes + at, TB_BLAKE3_LEAF_BYTES, m);
        const bool last = at + TB_BLAKE3_BLOCK_BYTES == TB_BLAKE3_LEAF_BYTES;
        compress(chain, m, number_low, number_high,
                 (at == 0 ? TB_BLAKE3_CHUNK_START : 0u) | (last ? TB_BLAKE3_CHUNK_END : 0u));
    }
    chain_out(chain, out);
}

static void parents_side_by_side(const struct tb_blake3_node *children, struct tb_blake3_node *out)
{
    lanes chain[8], m[16];
    chain_begin(chain);
    words_of((const uint8_t *)children, TB_BLAKE3_BLOCK_BYTES, m);
    compress(chain, m, splat(0), splat(0), TB_BLAKE3_PARENT);
    chain_out(chain, out);
}

static void walk_leaves(const uint8_t *bytes, size_t count, uint64_t number, struct tb_blake3_node *out)
{
    for (; count >= LANES;
         count -= LANES, bytes += (size_t)LANES * TB_BLAKE3_LEAF_BYTES, number += LANES, out += LANES)
        leaves_side_by_side(bytes, number, out);
    if (count == 0) return;
    uint8_t padded[LANES * TB_BLAKE3_LEAF_BYTES];
    struct tb_blake3_node nodes[LANES];
    memcpy(padded, bytes, count * TB_BLAKE3_LEAF_BYTES);
    memset(padded + count * TB_BLAKE3_LEAF_BYTES, 0, sizeof padded - count * TB_BLAKE3_LEAF_BYTES);
    leaves_side_by_side(padded, number, nodes);
    memcpy(out, nodes, count * sizeof *nodes);
}

static void walk_parents(const struct tb_blake3_node *children, size_t count, struct tb_blake3_node *out)
{
    struct tb_blake3_node padded[2 * LANES], nodes[LANES];
    for (; count >= LANES; count -= LANES, children += 2 * LANES, out += LANES) {
        parents_side_by_side(children, nodes); /* out may be children */
        memcpy(out, nodes, sizeof nodes);
    }
    if (count == 0) return;
    memset(padded, 0, sizeof padded);
    memcpy(padded, children, 2 * count * sizeof *padded);
    parents_side_by_side(padded, nodes);
    memcpy(out, nodes, count * sizeof *nodes);
}

#endif

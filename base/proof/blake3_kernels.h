/* blake3_kernels.h - many nodes of a BLAKE3 tree at once, by one set of vector instructions. All
 * give the same nodes. Internal to blake3.c and its test. Pure. */
#ifndef TB_BASE_PROOF_BLAKE3_KERNELS_H
#define TB_BASE_PROOF_BLAKE3_KERNELS_H

#include "base/proof/blake3.h"
#include "base/vector.h"

#define TB_BLAKE3_BLOCK_BYTES 64

/* Domain flags of the paper, table 3. */
enum tb_blake3_flag {
    TB_BLAKE3_CHUNK_START = 1,
    TB_BLAKE3_CHUNK_END = 2,
    TB_BLAKE3_PARENT = 4,
    TB_BLAKE3_ROOT = 8,
};

struct tb_blake3_kernels {
    /* The nodes of `count` whole leaves that stand one after another; the first has this number. */
    void (*leaves)(const uint8_t *bytes, size_t count, uint64_t number, struct tb_blake3_node *nodes_out);
    /* Node i is the parent of children 2i and 2i+1, none of them the root. nodes_out may be
     * children. */
    void (*parents)(const struct tb_blake3_node *children, size_t count, struct tb_blake3_node *nodes_out);
};

extern const struct tb_blake3_kernels tb_blake3_portable;
/* Where tb_vector_here says so. */
extern const struct tb_blake3_kernels tb_blake3_avx2, tb_blake3_avx512;

const struct tb_blake3_kernels *tb_blake3_kernels(enum tb_vector vector);

/* As tb_blake3_of, by these instructions. */
struct tb_blake3 tb_blake3_by(const struct tb_blake3_kernels *kernels, const void *bytes, size_t count);

/* Where a hash begins, and where the words of a block stand in each of the seven rounds (tables 1
 * and 2 of the paper; each row is the row above it permuted). */
#define TB_BLAKE3_ROUNDS 7
static const uint32_t tb_blake3_start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint8_t tb_blake3_order[TB_BLAKE3_ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
    {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1},
    {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
    {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4},
    {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
    {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13},
};

#endif

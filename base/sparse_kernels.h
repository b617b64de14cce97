/* sparse_kernels.h - what of the sparse form looks at every element, as masks of 64 elements: bit i of word w is element
 * 64 w + i. Each variant gives the same for every input. Inside sparse*.c only. */
#ifndef TB_BASE_SPARSE_KERNELS_H
#define TB_BASE_SPARSE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vector.h"

#define TB_SPARSE_SECTION 65536u /* elements */
#define TB_SPARSE_WORDS   (TB_SPARSE_SECTION / 64)
/* elements; of two versions in bf16, 16 KiB: with those after it, a first cache */
#define TB_SPARSE_BLOCK 4096u

enum tb_sparse_kind {
    TB_SPARSE_BF16 = 1,
    TB_SPARSE_F16 = 2,
    TB_SPARSE_F8 = 3,
    TB_SPARSE_F32 = 4,
    TB_SPARSE_BYTES = 5,
};

/* An element of `width` 1, 2 or 4 bytes as an integer. */
static inline __attribute__((always_inline)) uint32_t tb_sparse_element(const uint8_t *at, unsigned width)
{
    if (width == 4)
        return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    return width == 2 ? (uint32_t)at[0] | (uint32_t)at[1] << 8 : at[0];
}

/* The keys of one class: low to high, both included. */
struct tb_sparse_class {
    uint8_t low, high;
};

struct tb_sparse_pair {
    const uint8_t *base, *bytes;
    unsigned width; /* 1, 2 or 4 bytes an element */
};

/* Changes of one class so far, in order. */
struct tb_sparse_found {
    uint16_t *gaps;        /* members of the class between one and the last one before it */
    uint32_t *differences; /* modulo the width, the rest of the 32 bits is anything */
    size_t count;
    uint32_t members;     /* seen */
    uint32_t behind_last; /* members up to the last change, it included */
};

/* Where they are to be. */
struct tb_sparse_places {
    const uint16_t *gaps;
    uint16_t *at;
    size_t count;
};

struct tb_sparse_kernels {
    /* Which of `words` x 64 elements differ. */
    void (*changed)(struct tb_sparse_pair pair, size_t words, uint64_t *changed_out);
    /* The exponents, or what a kind has of them (docs/protocol.md); not for BYTES. */
    void (*keys)(const uint8_t *base, size_t words, enum tb_sparse_kind kind, uint8_t *keys_out);
    void (*members)(const uint8_t *keys, size_t words, struct tb_sparse_class class, uint64_t *members_out);
    /* Adds the changed ones among the members; `members` NULL: all are. */
    void (*collect)(struct tb_sparse_pair pair, const uint64_t *changed, const uint64_t *members,
                    size_t words, struct tb_sparse_found *found);
    /* False: the gaps lead behind the last member. */
    bool (*find)(const uint64_t *members, size_t words, const struct tb_sparse_places *places);
};

extern const struct tb_sparse_kernels tb_sparse_portable;
/* The variant that `vector` asks for, which must be here. */
const struct tb_sparse_kernels *tb_sparse_kernels(enum tb_vector vector);

#endif

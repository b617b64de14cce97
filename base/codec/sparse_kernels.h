/* sparse_kernels.h - what of the sparse form looks at every element or every change; masks are of
 * 64 elements: bit i of word w is element 64 w + i. Each variant gives the same for every input.
 * Inside sparse*.c only. */
#ifndef TB_BASE_SPARSE_KERNELS_H
#define TB_BASE_SPARSE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/codec/bits.h"
#include "base/codec/sparse.h"
#include "base/vector.h"

#define TB_SPARSE_SECTION 65536u /* elements */
#define TB_SPARSE_WORDS   (TB_SPARSE_SECTION / 64)
/* elements; of two versions in bf16, 16 KiB: with those after it, a first cache */
#define TB_SPARSE_BLOCK       4096u
#define TB_SPARSE_BLOCK_WORDS (TB_SPARSE_BLOCK / 64)

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

/* The classes of a section, as nested sets: row j is the elements whose keys are in a class
 * before j, so row 0 is empty, row `classes` is all, and class j is what row j + 1 has more than
 * row j. Counting and comparing is then done once for all classes, and the key of an element is
 * looked at once. Rows are longer than a section: of one length with a first cache they would
 * push each other out of it. */
struct tb_sparse_nest {
    unsigned classes;
    uint8_t bounds[TB_SPARSE_CLASSES_MAX]; /* row j has the keys below bounds[j - 1], 0 < j < classes */
    uint8_t class_of[256];                 /* by key */
    uint64_t rows[TB_SPARSE_CLASSES_MAX + 1][TB_SPARSE_WORDS + 16];
    uint16_t before[TB_SPARSE_CLASSES_MAX + 1]
                   [TB_SPARSE_WORDS + 64]; /* how many of the row are in the words before */
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

/* Changes of all classes so far, in order. */
struct tb_sparse_mixed {
    uint8_t *classes;
    uint16_t *ranks;       /* members of its class before it */
    uint32_t *differences; /* as above */
    size_t count;
};

/* A block of a section, from word `first` of it on. */
struct tb_sparse_block {
    struct tb_sparse_pair pair;
    const uint64_t *changed;
    const uint8_t *keys;
    size_t first, words;
};

/* Where they are to be. */
struct tb_sparse_places {
    const uint16_t *gaps;
    uint16_t *at;
    size_t count;
};

/* The elements that codes are made of: `bytes` 2 or 4 each. */
struct tb_sparse_numbers {
    const void *numbers;
    unsigned bytes;
    size_t count;
};

#define TB_SPARSE_GAP_BITS 16u /* of a gap written plain */
#define TB_SPARSE_SIGNS    32u /* in one call */

struct tb_sparse_amounts {
    const uint32_t *differences; /* modulo the width, not 0 */
    unsigned count;              /* at most TB_SPARSE_SIGNS */
    unsigned width;
};

struct tb_sparse_signs {
    uint32_t negative; /* bit i: difference i is below 0 */
    uint32_t odd;      /* it is neither 1 nor -1 */
};

/* The memory that the next section reads or writes. It is asked for while this section is coded:
 * memory then works while the core does. */
struct tb_sparse_ahead {
    const uint8_t *one, *other; /* fetched from here on */
    size_t left;                /* bytes of each */
    size_t step;                /* of them, for each TB_SPARSE_BATCH of codes */
};

#define TB_SPARSE_BATCH 32u

static inline __attribute__((always_inline)) void tb_sparse_ahead_fetch(struct tb_sparse_ahead *ahead)
{
    if (ahead->left == 0) return;
    const size_t step = ahead->step < ahead->left ? ahead->step : ahead->left;
    for (size_t i = 0; i < step; i += 64) {
        __builtin_prefetch(ahead->one + i, 0, 2);
        __builtin_prefetch(ahead->other + i, 0, 2);
    }
    ahead->one += step;
    ahead->other += step;
    ahead->left -= step;
}

struct tb_sparse_kernels {
    /* Which of `words` x 64 elements differ. */
    void (*changed)(struct tb_sparse_pair pair, size_t words, uint64_t *changed_out);
    /* The exponents, or what a kind has of them (docs/protocol.md); not for BYTES. */
    void (*keys)(const uint8_t *base, size_t words, enum tb_sparse_kind kind, uint8_t *keys_out);
    /* Rows 1 to classes - 1 of the words from `first` on; those before are there. */
    void (*nest)(const uint8_t *keys, size_t first, size_t words, struct tb_sparse_nest *nest);
    /* Adds the changed ones of a block: of one class, or of those of a nest, whose rows are
     * there. */
    void (*collect)(struct tb_sparse_pair pair, const uint64_t *changed, size_t words,
                    struct tb_sparse_found *found);
    void (*collect_mixed)(const struct tb_sparse_block *block, const struct tb_sparse_nest *nest,
                          struct tb_sparse_mixed *mixed);
    /* Of class j, which has a member for each gap; `before` of words behind the section's last is
     * as tb_sparse_decode fills it. */
    void (*find)(const struct tb_sparse_nest *nest, unsigned j, const struct tb_sparse_places *places);
    struct tb_sparse_signs (*signs)(const struct tb_sparse_amounts *amounts);
    /* The zeros that Rice codes with k write; what is written plain counts as 31 of them. */
    uint64_t (*zeros)(const struct tb_sparse_numbers *numbers, unsigned k);
    void (*gaps_code)(struct tb_bit_writer *w, const uint16_t *gaps, size_t count, unsigned k,
                      struct tb_sparse_ahead *ahead);
    void (*gaps_decode)(struct tb_bit_reader *r, uint16_t *gaps_out, size_t count, unsigned k,
                        struct tb_sparse_ahead *ahead);
    /* Each is so many places behind the one before it. How many are before the end of the last:
     * above the section's, if damaged. */
    uint64_t (*places_decode)(struct tb_bit_reader *r, uint16_t *places_out, size_t count, unsigned k,
                              struct tb_sparse_ahead *ahead);
};

extern const struct tb_sparse_kernels tb_sparse_portable;
extern const struct tb_sparse_kernels tb_sparse_neon; /* of aarch64 */
/* The variant that `vector` asks for, which must be here. */
const struct tb_sparse_kernels *tb_sparse_kernels(enum tb_vector vector);

#endif

/* planes_kernels.h - what of the planes' form looks at every element, by groups of 64. Each variant
 * gives the same for every input. Inside planes*.c and delta.c only. */
#ifndef TB_BASE_PLANES_KERNELS_H
#define TB_BASE_PLANES_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vector.h"

#define TB_CASCADE_GROUP      64u
#define TB_CASCADE_LEVELS_MAX 4u
#define TB_PLANES_WIDTH_MAX   4u
#define TB_PLANES_WIDE        255u /* a folded difference that no byte holds */

/* A code of keys. Of level j palette[4 j] to [4 j + 2] are its keys, shifted left by raw_bits; with
 * one bit an element all three are the same. Code 3 is an escape to the next level, behind the last
 * one a literal; palette[4 j + 3] is 0. */
struct tb_cascade {
    uint8_t palette[4 * TB_CASCADE_LEVELS_MAX];
    /* by hot byte: its place in the palette; of a literal, that of the last level's escape */
    uint8_t index[256];
    uint8_t levels;   /* 1 to TB_CASCADE_LEVELS_MAX */
    uint8_t two;      /* bit j: level j has two bits an element */
    uint8_t raw_bits; /* the lowest of a hot byte, which are no key's */
};

/* The codes of a level, 64 elements a word: with two bits their low bits in one word and the
 * high ones in the next. */
struct tb_cascade_stream {
    uint8_t *at; /* of the word that is not full */
    uint64_t low, high;
    uint32_t count;
};

/* Memory that the next tile reads and writes: of each, `lines` of 64 bytes are asked for with every
 * group of this one, so that it works while the core codes. */
struct tb_planes_ahead {
    struct {
        const uint8_t *at;
        size_t lines; /* 0: none */
    } of[2];
};

/* Where they go: what is known to be of a size, the first level and raw bits, at
 * once in its place. */
struct tb_cascade_writer {
    const struct tb_cascade *cascade;
    uint8_t *raw, *first;
    struct tb_cascade_stream next[TB_CASCADE_LEVELS_MAX - 1];
    uint8_t *literals;
    struct tb_planes_ahead ahead;
};

/* Levels behind the first in memory that may be read for a word of each kind behind their last. */
struct tb_cascade_codes {
    const uint8_t *words;
    uint32_t at, count;
};

struct tb_cascade_reader {
    const struct tb_cascade *cascade;
    const uint8_t *raw, *first;
    struct tb_cascade_codes next[TB_CASCADE_LEVELS_MAX - 1];
    const uint8_t *literals;
    uint32_t literals_left;
    struct tb_planes_ahead ahead;
};

/* Elements of `width` bytes taken apart: plane k of the rest begins at rest + k x stride. */
struct tb_planes_apart {
    uint8_t *hot, *rest;
    size_t stride;
};

struct tb_planes_kernels {
    /* Elements rotated left by one bit; the highest byte is the hot one. */
    void (*split)(const uint8_t *elements, unsigned width, size_t groups, struct tb_planes_apart to);
    void (*join)(struct tb_planes_apart from, unsigned width, size_t groups, uint8_t *elements_out);
    /* Differences to a base folded into a byte: 2 d for d >= 0, else -2 d - 1;
     * TB_PLANES_WIDE if it is no less. */
    void (*fold)(const uint8_t *bytes, const uint8_t *base, unsigned width, size_t groups, uint8_t *hot_out);
    void (*unfold)(const uint8_t *hot, const uint8_t *base, unsigned width, size_t groups,
                   uint8_t *bytes_out);
    /* Differences of `count` bytes, whole elements of 1, 2, 4 or 8, modulo their
     * width; and back, in place. */
    void (*subtract)(const uint8_t *bytes, const uint8_t *base, unsigned width, size_t count, uint8_t *out);
    void (*add)(uint8_t *bytes, const uint8_t *base, unsigned width, size_t count);
    /* Hot bytes, readable up to a whole group. */
    void (*code)(struct tb_cascade_writer *w, const uint8_t *hot, size_t count);
    /* False: a level has fewer codes than the one before it escapes. Writes whole groups. */
    bool (*decode)(struct tb_cascade_reader *r, size_t count, uint8_t *hot_out);
};

extern const struct tb_planes_kernels tb_planes_portable;
extern const struct tb_planes_kernels tb_planes_neon; /* of aarch64 */
/* The variant that `vector` asks for, which must be here. */
const struct tb_planes_kernels *tb_planes_kernels(enum tb_vector vector);

#endif

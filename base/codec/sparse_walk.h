/* sparse_walk.h - from masks to changes and back: the same text compiled for each variant, because
 * counting bits is one instruction on some and twenty on others. The variant defines
 *   nth_bit      the place of set bit n of a word that has more;
 *   below        64 keys: which are below a bound, that is not 0;
 *   struct finder, finder_of, finder_word: the last word of a section with no more than `rank`
 *                members of a class before it, asked for in ascending order of ranks. */
#ifndef TB_BASE_SPARSE_WALK_H
#define TB_BASE_SPARSE_WALK_H

#include "base/assert.h"
#include "base/codec/sparse_kernels.h"

#define INLINE static inline __attribute__((always_inline)) /* one copy a width */

INLINE unsigned count_bits(uint64_t x)
{
    return (unsigned)__builtin_popcountll(x);
}

/* Asks for a word of the next block. Coding what this one has takes as long as
 * memory needs for the next. */
INLINE void ahead(const uint8_t *word, unsigned width)
{
    for (unsigned line = 0; line < width; line++)
        __builtin_prefetch(word + width * TB_SPARSE_BLOCK + 64 * line);
}

INLINE void found_add(struct tb_sparse_found *f, struct tb_sparse_pair pair, unsigned width, size_t at,
                      uint32_t rank)
{
    f->gaps[f->count] = (uint16_t)(rank - f->behind_last);
    f->differences[f->count++] =
        tb_sparse_element(pair.bytes + width * at, width) - tb_sparse_element(pair.base + width * at, width);
    f->behind_last = rank + 1;
}

/* The places of a word's bits behind those of the words before it: four at once, because no
 * processor foresees a branch for each, and the rest in the rare word that has more. The caller
 * overwrites the places behind the last. */
INLINE size_t places_take(uint64_t left, unsigned first, uint16_t *places, size_t count)
{
    const size_t end = count + count_bits(left);
    for (;;) {
        for (unsigned i = 0; i < 4; i++, left &= left - 1)
            places[count + i] = (uint16_t)(first + ((unsigned)__builtin_ctzll(left | UINT64_C(1) << 63)));
        if (left == 0) return end;
        count += 4;
    }
}

/* At most a block. */
INLINE void collect_all(struct tb_sparse_pair pair, unsigned width, const uint64_t *changed, size_t words,
                        struct tb_sparse_found *found)
{
    uint16_t places[TB_SPARSE_BLOCK + 4];
    size_t count = 0;
    for (size_t w = 0; w < words; w++) {
        ahead(pair.base + 64 * width * w, width);
        ahead(pair.bytes + 64 * width * w, width);
        count = places_take(changed[w], (unsigned)(64 * w), places, count);
    }
    struct tb_sparse_found f = *found;
    for (size_t i = 0; i < count; i++)
        found_add(&f, pair, width, places[i], f.members + places[i]);
    f.members += 64 * (uint32_t)words;
    *found = f;
}

static void collect(struct tb_sparse_pair pair, const uint64_t *changed, size_t words,
                    struct tb_sparse_found *found)
{
    TB_ASSERT(words <= TB_SPARSE_BLOCK_WORDS);
    if (pair.width == 1)
        collect_all(pair, 1, changed, words, found);
    else if (pair.width == 2)
        collect_all(pair, 2, changed, words, found);
    else
        collect_all(pair, 4, changed, words, found);
}

static void nest(const uint8_t *keys, size_t first, size_t words, struct tb_sparse_nest *nest)
{
    TB_ASSERT(first + words <= TB_SPARSE_WORDS && nest->classes <= TB_SPARSE_CLASSES_MAX);
    for (unsigned j = 1; j < nest->classes; j++) {
        uint64_t *row = nest->rows[j];
        uint16_t *before = nest->before[j];
        unsigned sum = first == 0 ? 0 : before[first - 1] + count_bits(row[first - 1]);
        for (size_t w = 0; w < words; w++) {
            row[first + w] = below(keys + 64 * w, nest->bounds[j - 1]);
            before[first + w] = (uint16_t)sum;
            sum += count_bits(row[first + w]);
        }
    }
}

/* Members of row j before element `bit` of word w. */
INLINE uint32_t row_before(const struct tb_sparse_nest *nest, unsigned j, size_t w, unsigned bit)
{
    return nest->before[j][w] + count_bits(nest->rows[j][w] & ((UINT64_C(1) << bit) - 1));
}

INLINE void mixed_width(const struct tb_sparse_block *block, unsigned width,
                        const struct tb_sparse_nest *nest, struct tb_sparse_mixed *mixed)
{
    const uint8_t *base = block->pair.base, *bytes = block->pair.bytes, *keys = block->keys;
    uint16_t places[TB_SPARSE_BLOCK + 4];
    size_t count = 0;
    for (size_t w = 0; w < block->words; w++) {
        ahead(base + 64 * width * w, width);
        ahead(bytes + 64 * width * w, width);
        count = places_take(block->changed[w], (unsigned)(64 * w), places, count);
    }
    uint8_t *classes = mixed->classes + mixed->count;
    uint16_t *ranks = mixed->ranks + mixed->count;
    uint32_t *differences = mixed->differences + mixed->count;
    for (size_t i = 0; i < count; i++) {
        const size_t at = places[i], w = block->first + at / 64;
        const unsigned j = nest->class_of[keys[at]], bit = at % 64;
        classes[i] = (uint8_t)j;
        ranks[i] = (uint16_t)(row_before(nest, j + 1, w, bit) - row_before(nest, j, w, bit));
        differences[i] =
            tb_sparse_element(bytes + width * at, width) - tb_sparse_element(base + width * at, width);
    }
    mixed->count += count;
}

static void collect_mixed(const struct tb_sparse_block *block, const struct tb_sparse_nest *nest,
                          struct tb_sparse_mixed *mixed)
{
    TB_ASSERT(block->words <= TB_SPARSE_BLOCK_WORDS);
    if (block->pair.width == 1)
        mixed_width(block, 1, nest, mixed);
    else if (block->pair.width == 2)
        mixed_width(block, 2, nest, mixed);
    else
        mixed_width(block, 4, nest, mixed);
}

static void find(const struct tb_sparse_nest *nest, unsigned j, const struct tb_sparse_places *places)
{
    TB_ASSERT(j < nest->classes);
    const uint16_t *more = nest->before[j + 1], *less = nest->before[j];
    struct finder finder = finder_of(more, less);
    uint32_t rank = 0;
    for (size_t i = 0; i < places->count; i++, rank++) {
        rank += places->gaps[i];
        const size_t w = finder_word(&finder, more, less, rank);
        const uint64_t members = nest->rows[j + 1][w] & ~nest->rows[j][w];
        const unsigned before = (uint16_t)(more[w] - less[w]);
        places->at[i] = (uint16_t)(64 * w + nth_bit(members, rank - before));
    }
}

#undef INLINE

#endif

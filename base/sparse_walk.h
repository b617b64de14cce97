/* sparse_walk.h - from masks to changes and back: the same text compiled for each variant, because counting bits is one
 * instruction on some and twenty on others. The variant defines nth_bit: the place of set bit n of a word that has more. */
#ifndef TB_BASE_SPARSE_WALK_H
#define TB_BASE_SPARSE_WALK_H

#include "base/sparse_kernels.h"

#define INLINE static inline __attribute__((always_inline)) /* one copy a width */

INLINE unsigned count_bits(uint64_t x)
{
    return (unsigned)__builtin_popcountll(x);
}

/* Asks for a word of the next block. Coding what this one has takes as long as memory needs for the next. */
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

INLINE void collect_members(struct tb_sparse_pair pair, unsigned width, const uint64_t *changed,
                            const uint64_t *members, size_t words, struct tb_sparse_found *found)
{
    struct tb_sparse_found f = *found;
    for (size_t w = 0; w < words; w++) {
        const uint64_t m = members[w];
        for (uint64_t left = changed[w] & m; left != 0; left &= left - 1) {
            const uint32_t rank = f.members + count_bits(m & ((left & -left) - 1));
            found_add(&f, pair, width, 64 * w + (unsigned)__builtin_ctzll(left), rank);
        }
        f.members += count_bits(m);
    }
    *found = f;
}

/* The places of a word's bits behind those of the words before it: four at once, because a branch for each is foreseen by
 * no processor, and the rest in the rare word that has more. What is behind the last is overwritten. */
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

INLINE void collect_width(struct tb_sparse_pair pair, unsigned width, const uint64_t *changed,
                          const uint64_t *members, size_t words, struct tb_sparse_found *found)
{
    if (members == NULL)
        collect_all(pair, width, changed, words, found);
    else
        collect_members(pair, width, changed, members, words, found);
}

static void collect(struct tb_sparse_pair pair, const uint64_t *changed, const uint64_t *members,
                    size_t words, struct tb_sparse_found *found)
{
    if (pair.width == 1)
        collect_width(pair, 1, changed, members, words, found);
    else if (pair.width == 2)
        collect_width(pair, 2, changed, members, words, found);
    else
        collect_width(pair, 4, changed, members, words, found);
}

static bool find(const uint64_t *members, size_t words, const struct tb_sparse_places *places)
{
    size_t w = 0;
    uint64_t left = words > 0 ? members[0] : 0;
    for (size_t i = 0; i < places->count; i++) {
        uint32_t gap = places->gaps[i];
        for (unsigned here; gap >= (here = count_bits(left)); left = members[w]) {
            gap -= here;
            if (++w >= words) return false;
        }
        const unsigned bit = nth_bit(left, gap);
        places->at[i] = (uint16_t)(64 * w + bit);
        left &= UINT64_MAX << bit << 1;
    }
    return true;
}

#undef INLINE

#endif

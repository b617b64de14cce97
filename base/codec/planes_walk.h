/* planes_walk.h - a cascade coded and decoded, 64 elements a step: the same text compiled for each
 * variant. A variant defines, before this:
 *   extract, deposit  the bits of a word that a mask names, to or from its lowest ones
 *   group_codes       of each level the low and the high bit of 64 elements' codes; the bits of an
 *                     element that a level before has are of any value
 *   group_bits        one bit of 64 hot bytes
 *   group_keys        64 hot bytes from the four bits of their places in the palette, and
 *                     from their raw bits */
#ifndef TB_BASE_PLANES_WALK_H
#define TB_BASE_PLANES_WALK_H

#include "base/assert.h"
#include "base/codec/bits.h"
#include "base/codec/planes_kernels.h"

#define WALK static inline __attribute__((always_inline)) /* one copy for each number of levels */

WALK unsigned walk_count(uint64_t x)
{
    return (unsigned)__builtin_popcountll(x);
}

WALK uint64_t walk_valid(size_t left)
{
    return left < 64 ? tb_bits_mask((unsigned)left) : UINT64_MAX;
}

/* For the group that begins with element `at` of a tile. */
WALK void walk_ahead(const struct tb_planes_ahead *ahead, size_t at)
{
    for (unsigned k = 0; k < 2; k++) {
        for (size_t i = 0; i < ahead->of[k].lines; i++)
            __builtin_prefetch(ahead->of[k].at + at * ahead->of[k].lines + 64 * i);
    }
}

WALK bool walk_two(const struct tb_cascade *c, unsigned level)
{
    return (c->two >> level & 1) != 0;
}

WALK uint8_t *walk_store(uint8_t *at, uint64_t low, uint64_t high, bool two)
{
    tb_bits_store(at, low);
    if (two) tb_bits_store(at + 8, high);
    return at + (two ? 16 : 8);
}

/* Adds the lowest `count` bits of both. The word that is not full yet is stored each time and later
 * again: cheaper than a branch that nobody foresees. */
WALK void walk_put(struct tb_cascade_stream *s, uint64_t low, uint64_t high, unsigned count, bool two)
{
    const unsigned have = s->count & 63;
    s->low |= low << have;
    s->high |= high << have;
    uint8_t *next = walk_store(s->at, s->low, s->high, two);
    const bool full = have + count >= 64;
    s->at = full ? next : s->at;
    s->low = full ? low >> 1 >> (63 - have) : s->low;
    s->high = full ? high >> 1 >> (63 - have) : s->high;
    s->count += count;
}

WALK void walk_code(struct tb_cascade_writer *to, const uint8_t *hot, size_t count, unsigned levels)
{
    struct tb_cascade_writer w = *to; /* in registers, which what it writes can not alias */
    const struct tb_cascade c = *to->cascade;
    for (size_t at = 0; at < count; at += TB_CASCADE_GROUP) {
        uint64_t low[TB_CASCADE_LEVELS_MAX], high[TB_CASCADE_LEVELS_MAX], left = walk_valid(count - at);
        for (unsigned b = 0; b < c.raw_bits; b++, w.raw += 8)
            tb_bits_store(w.raw, group_bits(hot + at, b) & left);
        walk_ahead(&w.ahead, at);
        group_codes(&c, hot + at, levels, low, high);
        w.first = walk_store(w.first, low[0] & left, high[0] & left, walk_two(&c, 0));
        for (unsigned j = 1; j < levels; j++) {
            left &= low[j - 1] & high[j - 1];
            walk_put(&w.next[j - 1], extract(low[j], left), extract(high[j], left), walk_count(left),
                     walk_two(&c, j));
        }
        for (left &= low[levels - 1] & high[levels - 1]; left != 0; left &= left - 1)
            *w.literals++ = (uint8_t)(hot[at + (unsigned)__builtin_ctzll(left)] >> c.raw_bits);
    }
    for (unsigned j = 1; j < levels; j++) /* what the last word did not hold */
        walk_store(w.next[j - 1].at, w.next[j - 1].low, w.next[j - 1].high, walk_two(&c, j));
    *to = w;
}

static void code(struct tb_cascade_writer *to, const uint8_t *hot, size_t count)
{
    TB_ASSERT(to->cascade->levels >= 1 && to->cascade->levels <= TB_CASCADE_LEVELS_MAX);
    switch (to->cascade->levels) {
    case 1:
        walk_code(to, hot, count, 1);
        break;
    case 2:
        walk_code(to, hot, count, 2);
        break;
    case 3:
        walk_code(to, hot, count, 3);
        break;
    default:
        walk_code(to, hot, count, 4);
        break;
    }
}

struct walk_pair {
    uint64_t low, high;
};

/* The first level's codes of a group. */
WALK struct walk_pair walk_first(struct tb_cascade_reader *r, bool two)
{
    const uint64_t low = tb_bits_load(r->first);
    const struct walk_pair pair = {low, two ? tb_bits_load(r->first + 8) : low};
    r->first += two ? 16 : 8;
    return pair;
}

/* 64 codes from the next one on. */
WALK struct walk_pair walk_take(const struct tb_cascade_codes *codes, bool two)
{
    const size_t step = two ? 16 : 8;
    const uint8_t *word = codes->words + step * (codes->at / 64);
    const unsigned had = codes->at & 63;
    const uint64_t low = tb_bits_load(word) >> had | tb_bits_load(word + step) << 1 << (63 - had);
    if (!two) return (struct walk_pair){low, low};
    return (struct walk_pair){low, tb_bits_load(word + 8) >> had | tb_bits_load(word + 24)
                                                                       << 1 << (63 - had)};
}

/* Adds the literals of the elements in `left`. */
WALK bool walk_literals(struct tb_cascade_reader *r, uint64_t left, unsigned raw_bits, uint8_t *hot)
{
    const unsigned count = walk_count(left);
    if (count > r->literals_left) return false;
    r->literals_left -= count;
    for (; left != 0; left &= left - 1) {
        uint8_t *at = hot + (unsigned)__builtin_ctzll(left);
        *at = (uint8_t)(*at | *r->literals++ << raw_bits);
    }
    return true;
}

/* The places in the palette, bit by bit: two of the code, two of the level that has it. */
WALK bool walk_places(struct tb_cascade_reader *r, const struct tb_cascade *c, unsigned levels,
                      uint64_t valid, uint64_t place[4], uint64_t *left_out)
{
    struct walk_pair codes = walk_first(r, walk_two(c, 0));
    uint64_t left = valid;
    place[0] = place[1] = place[2] = place[3] = 0;
    for (unsigned j = 0;; j++) {
        const uint64_t low = codes.low & left, high = codes.high & left;
        const uint64_t escaped = low & high;
        const uint64_t here = j + 1 < levels ? left & ~escaped : left;
        place[0] |= low & here;
        place[1] |= high & here;
        if ((j & 1) != 0) place[2] |= here;
        if ((j & 2) != 0) place[3] |= here;
        left = escaped;
        if (j + 1 == levels) break;
        struct tb_cascade_codes *next = &r->next[j];
        const unsigned count = walk_count(left);
        if (count > next->count - next->at) return false;
        codes = walk_take(next, walk_two(c, j + 1));
        codes.low = deposit(codes.low, left);
        codes.high = deposit(codes.high, left);
        next->at += count;
    }
    *left_out = left;
    return true;
}

WALK bool walk_decode(struct tb_cascade_reader *from, size_t count, uint8_t *hot, unsigned levels)
{
    struct tb_cascade_reader r = *from;
    const struct tb_cascade c = *from->cascade;
    for (size_t at = 0; at < count; at += TB_CASCADE_GROUP) {
        uint64_t place[4], left, raw[8];
        for (unsigned b = 0; b < c.raw_bits; b++, r.raw += 8)
            raw[b] = tb_bits_load(r.raw);
        walk_ahead(&r.ahead, at);
        if (!walk_places(&r, &c, levels, walk_valid(count - at), place, &left)) return false;
        group_keys(&c, levels, place, raw, hot + at);
        if (!walk_literals(&r, left, c.raw_bits, hot + at)) return false;
    }
    *from = r;
    return true;
}

static bool decode(struct tb_cascade_reader *from, size_t count, uint8_t *hot)
{
    TB_ASSERT(from->cascade->levels >= 1 && from->cascade->levels <= TB_CASCADE_LEVELS_MAX);
    switch (from->cascade->levels) {
    case 1:
        return walk_decode(from, count, hot, 1);
    case 2:
        return walk_decode(from, count, hot, 2);
    case 3:
        return walk_decode(from, count, hot, 3);
    default:
        return walk_decode(from, count, hot, 4);
    }
}

#undef WALK

#endif

/* planes_cascade.c - the choice of a cascade by a sample of hot bytes: the levels that take the
 * fewest bits. */
#include "base/codec/planes_cascade.h"

#include <string.h>

#include "base/assert.h"

static void frequent_add(struct tb_frequent *f, uint8_t key, uint32_t seen)
{
    TB_ASSERT(f->seen[0] >= f->seen[TB_CASCADE_KEYS_MAX - 1]);
    f->all += seen;
    if (seen <= f->seen[TB_CASCADE_KEYS_MAX - 1]) return;
    size_t i = TB_CASCADE_KEYS_MAX - 1;
    for (; i > 0 && f->seen[i - 1] < seen; i--) {
        f->seen[i] = f->seen[i - 1];
        f->key[i] = f->key[i - 1];
    }
    f->seen[i] = seen;
    f->key[i] = key;
}

struct tb_frequent tb_frequent_of(const uint32_t *by_hot, unsigned raw_bits)
{
    TB_ASSERT(raw_bits < 8);
    struct tb_frequent f = {{0}, {0}, 0};
    for (unsigned key = 0; key < 256u >> raw_bits; key++) {
        uint32_t seen = 0;
        for (unsigned low = 0; low < 1u << raw_bits; low++)
            seen += by_hot[key << raw_bits | low];
        frequent_add(&f, (uint8_t)key, seen);
    }
    return f;
}

/* Bits that the sample takes with these levels. */
static uint64_t levels_cost(const struct tb_frequent *f, unsigned levels, unsigned two)
{
    uint64_t bits = 0, left = f->all;
    TB_ASSERT(levels >= 1 && levels <= TB_CASCADE_LEVELS_MAX && two >> levels == 0);
    for (unsigned j = 0, key = 0; j < levels; j++) {
        const unsigned keys = (two >> j & 1) != 0 ? 3 : 1;
        bits += left * (keys == 3 ? 2 : 1);
        for (unsigned k = 0; k < keys; k++)
            left -= f->seen[key++];
    }
    TB_ASSERT(left <= f->all); /* no key is counted twice */
    return bits + 8 * left;
}

void tb_cascade_choose(const struct tb_frequent *f, unsigned raw_bits, struct tb_cascade *c)
{
    TB_ASSERT(raw_bits < 8);
    uint64_t best = (uint64_t)f->all * (8 - raw_bits);
    c->levels = 0;
    c->two = 0;
    for (unsigned levels = 1; levels <= TB_CASCADE_LEVELS_MAX; levels++) {
        const uint64_t before = best - best / 64;
        uint64_t least = before;
        for (unsigned two = 0; two < 1u << levels; two++) {
            const uint64_t bits = levels_cost(f, levels, two);
            if (bits >= least) continue;
            least = bits;
            c->levels = (uint8_t)levels;
            c->two = (uint8_t)two;
        }
        if (least < before) best = least;
    }
    c->raw_bits = (uint8_t)(c->levels > 0 ? raw_bits : 0);
}

/* 1 or 3: with one bit an element or two. */
static unsigned level_keys(const struct tb_cascade *c, unsigned level)
{
    TB_ASSERT(level < c->levels);
    return (c->two >> level & 1) != 0 ? 3 : 1;
}

void tb_cascade_fill(struct tb_cascade *c, const uint8_t *keys)
{
    TB_ASSERT(c->levels >= 1 && c->levels <= TB_CASCADE_LEVELS_MAX);
    memset(c->palette, 0, sizeof c->palette);
    memset(c->index, 4 * (c->levels - 1) + 3, sizeof c->index);
    for (unsigned j = 0; j < c->levels; j++) {
        const unsigned count = level_keys(c, j);
        for (unsigned k = 3; k-- > 0;)
            c->palette[4 * j + k] = (uint8_t)(keys[k < count ? k : 0] << c->raw_bits);
        keys += count;
    }
    for (unsigned j = c->levels; j-- > 0;) { /* an earlier place of a key stands */
        for (unsigned k = level_keys(c, j); k-- > 0;)
            memset(c->index + c->palette[4 * j + k], (int)(4 * j + k), (size_t)1 << c->raw_bits);
    }
}

void tb_cascade_single(struct tb_cascade *c)
{
    for (uint8_t *p = c->palette; p < c->palette + sizeof c->palette; p += 4)
        if (p[2] == p[1]) p[2] = p[0];
}

size_t tb_cascade_keys(const struct tb_cascade *c)
{
    size_t count = 0;
    for (unsigned j = 0; j < c->levels; j++)
        count += level_keys(c, j);
    TB_ASSERT(count <= TB_CASCADE_KEYS_MAX);
    return count;
}

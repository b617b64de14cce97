/* kernel_sparse.h - what encoding and patching know alike of the sparse form (base/codec/sparse.h,
 * docs/protocol.md): sections of elements, and their classes. The text of kernels: include
 * kernel_words_*.h first.
 *
 * A thread has 32 elements at a time, and what it finds of them is a mask: bit i is element i. */
#ifndef TB_INTRA_KERNEL_SPARSE_H
#define TB_INTRA_KERNEL_SPARSE_H

#include "intra/cuda/kernel_block.h"

/* Of enum tb_sparse_kind. */
#define TB_KIND_BF16          1u
#define TB_KIND_F16           2u
#define TB_KIND_F8            3u
#define TB_KIND_F32           4u
#define TB_KIND_BYTES         5u
#define TB_KIND_END           6u

#define TB_FORM_HEADER_BYTES  4u
#define TB_FORM_ZEROS_MAX     16u /* of a Rice code; then the number is plain */
#define TB_FORM_GAP_BITS      16u
#define TB_FORM_COUNT_BITS    5u
#define TB_FORM_GAP_K_BITS    4u
#define TB_FORM_AMOUNT_K_BITS 5u

#define TB_GROUP              32u /* elements that a thread has at a time */
#define TB_CLASS_PAIRS        (TB_KERNEL_CLASSES_MAX / 2)

/* A block's own, of a section's changes: in the order of elements, then class by class. */
struct tb_sparse_scratch {
    uint32_t differences[TB_KERNEL_SECTION];
    uint16_t places[TB_KERNEL_SECTION]; /* ranks in their classes */
    uint16_t odd[TB_KERNEL_SECTION];    /* which of a class are neither 1 nor -1 */
    uint16_t mixed_at[TB_KERNEL_SECTION], mixed_ranks[TB_KERNEL_SECTION];
    uint8_t mixed_classes[TB_KERNEL_SECTION];
};

TB_DEVICE uint32_t tb_kind_width(uint32_t kind)
{
    if (kind == TB_KIND_F32) return 4;
    return kind == TB_KIND_BF16 || kind == TB_KIND_F16 ? 2 : 1;
}

TB_DEVICE uint8_t tb_kind_key(uint32_t kind, uint32_t element)
{
    if (kind == TB_KIND_BF16) return (uint8_t)(element >> 7);
    if (kind == TB_KIND_F16) return (uint8_t)(element >> 8 & 0x7f);
    if (kind == TB_KIND_F32) return (uint8_t)(element >> 23);
    return kind == TB_KIND_F8 ? (uint8_t)(element & 0x7f) : 0;
}

struct tb_section {
    const uint8_t *base, *bytes;
    uint32_t count, kind, width; /* elements */
};

/* ---- keys of a group ---- */

/* In pairs, so that one subtraction compares two with a bound: pair i < 8 has elements i
 * and 8 + i, pair 8 + i has 16 + i and 24 + i, each with a bit above it. */
struct tb_keys {
    uint32_t pairs[TB_GROUP / 2];
};

#define TB_KEYS_ABOVE 0x01000100u

TB_DEVICE void tb_keys_of_2(const uint8_t *at, uint32_t shift, uint32_t mask, struct tb_keys *k)
{
    TB_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const struct tb_quad low = tb_load128(at + 32 * h), high = tb_load128(at + 32 * h + 16);
        TB_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t x = low.words[i], y = high.words[i];
            k->pairs[8 * h + 2 * i] = (tb_low_halves(x, y) >> shift & mask) | TB_KEYS_ABOVE;
            k->pairs[8 * h + 2 * i + 1] = (tb_high_halves(x, y) >> shift & mask) | TB_KEYS_ABOVE;
        }
    }
}

TB_DEVICE void tb_keys_of_4(const uint8_t *at, struct tb_keys *k)
{
    TB_UNROLL
    for (uint32_t h = 0; h < 4; h++) {
        const uint32_t first = 64 * (h / 2) + 16 * (h % 2);
        const struct tb_quad x = tb_load128(at + first), y = tb_load128(at + first + 32);
        TB_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            k->pairs[4 * h + i] = (x.words[i] >> 23 & 0xff) | (y.words[i] >> 7 & 0xff0000) | TB_KEYS_ABOVE;
    }
}

TB_DEVICE void tb_keys_of_1(const uint8_t *at, struct tb_keys *k)
{
    TB_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const struct tb_quad q = tb_load128(at + 16 * h);
        TB_UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t shift = 8 * (i % 4);
            k->pairs[8 * h + i] =
                (q.words[i / 4] >> shift & 0x7f) | (q.words[2 + i / 4] >> shift & 0x7f) << 16 | TB_KEYS_ABOVE;
        }
    }
}

/* One by one, of a section's last ones. */
TB_DEVICE void tb_keys_of_rest(const struct tb_section *s, uint32_t first, struct tb_keys *k)
{
    for (uint32_t i = 0; first + i < s->count; i++) {
        const uint32_t key = tb_kind_key(s->kind, tb_element_load(s->base, s->width, first + i));
        const uint32_t pair = i % 8 + i / 16 * 8, shift = i / 8 % 2 * 16;
        TB_UNROLL
        for (uint32_t p = 0; p < TB_GROUP / 2; p++)
            k->pairs[p] |= p == pair ? key << shift : 0;
    }
}

/* Of the elements from `first` on; of none behind the section. */
TB_DEVICE void tb_keys_load(const struct tb_section *s, uint32_t first, struct tb_keys *k)
{
    const uint8_t *at = s->base + (uint64_t)s->width * first;
    TB_UNROLL
    for (uint32_t i = 0; i < TB_GROUP / 2; i++)
        k->pairs[i] = TB_KEYS_ABOVE;
    if (s->kind == TB_KIND_BYTES) return;
    if (first + TB_GROUP > s->count)
        tb_keys_of_rest(s, first, k);
    else if (s->kind == TB_KIND_BF16)
        tb_keys_of_2(at, 7, 0x00ff00ff, k);
    else if (s->kind == TB_KIND_F16)
        tb_keys_of_2(at, 8, 0x007f007f, k);
    else if (s->kind == TB_KIND_F32)
        tb_keys_of_4(at, k);
    else
        tb_keys_of_1(at, k);
}

/* Which of the 32 keys are not below the bound. */
TB_DEVICE uint32_t tb_keys_from(const struct tb_keys *k, uint32_t bound)
{
    const uint32_t pair = bound * 0x00010001u;
    uint32_t from = 0;
    TB_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        from += tb_odd_bytes(k->pairs[i] - pair, k->pairs[8 + i] - pair) << i;
    return from;
}

/* ---- members of classes ---- */

TB_DEVICE uint32_t tb_low_bits(uint32_t count) /* at most 32 */
{
    return count >= 32 ? ~0u : (1u << count) - 1;
}

TB_DEVICE uint32_t tb_group_valid(const struct tb_section *s, uint32_t first)
{
    return first >= s->count ? 0 : tb_low_bits(s->count - first);
}

/* Place of bit number `rank` of those that are set. */
TB_DEVICE uint32_t tb_bit_at(uint32_t mask, uint32_t rank)
{
    uint32_t at = 0;
    TB_UNROLL
    for (uint32_t half = 16; half > 0; half /= 2) {
        const uint32_t low = tb_count_bits32(mask >> at & ((1u << half) - 1));
        const uint32_t more = rank >= low;
        rank -= more ? low : 0;
        at += more ? half : 0;
    }
    return at;
}

/* Threads note here their groups of a tile, and how many members stand before them. A loop over
 * classes finds it here. In registers, each turn of the loop would be code of its own. */
struct tb_ranks_shared {
    uint32_t members[TB_KERNEL_CLASSES_MAX][TB_KERNEL_THREADS]; /* masks */
    uint32_t before[TB_CLASS_PAIRS][TB_KERNEL_THREADS];         /* in the warp, 16 bits each */
    uint32_t counts[2][TB_WARPS_MAX][TB_CLASS_PAIRS];           /* of a warp's tile, likewise */
    uint32_t behind[TB_WARPS_MAX][TB_KERNEL_CLASSES_MAX];       /* of tiles before, for each */
    uint32_t start[TB_WARPS_MAX][TB_KERNEL_CLASSES_MAX];        /* of all before the warp */
    uint32_t count[TB_WARPS_MAX][TB_KERNEL_CLASSES_MAX];        /* of the warp's tile */
};

TB_DEVICE uint32_t tb_tile_elements(const struct tb_block *b)
{
    return b->threads * TB_GROUP;
}

TB_DEVICE void tb_ranks_begin(const struct tb_block *b, struct tb_ranks_shared *sh)
{
    for (uint32_t c = tb_lane(b); c < TB_KERNEL_CLASSES_MAX; c += tb_lanes(b))
        sh->behind[tb_warp(b)][c] = 0;
    tb_warp_sync(b);
}

/* The thread's members of each class, and how many, two classes in a word. */
TB_DEVICE void tb_group_members(const struct tb_block *b, struct tb_ranks_shared *sh,
                                const struct tb_section *s, const uint8_t *bounds, uint32_t classes,
                                uint32_t first, uint32_t counts[TB_CLASS_PAIRS])
{
    struct tb_keys keys;
    tb_keys_load(s, first, &keys);
    const uint32_t valid = tb_group_valid(s, first);
    uint32_t from = valid;
    TB_UNROLL
    for (uint32_t c = 0; c < TB_KERNEL_CLASSES_MAX; c++) {
        if (c % 2 == 0) counts[c / 2] = 0;
        if (c >= classes) continue;
        const uint32_t next = c + 1 < classes ? tb_keys_from(&keys, bounds[c]) & valid : 0;
        sh->members[c][b->thread] = from & ~next;
        counts[c / 2] += tb_count_bits32(from & ~next) << 16 * (c % 2);
        from = next;
    }
}

/* All threads, tile by tile from 0 on. */
TB_DEVICE void tb_group_ranks(const struct tb_block *b, struct tb_ranks_shared *sh, uint32_t classes,
                              uint32_t tile, const uint32_t mine[TB_CLASS_PAIRS])
{
    const uint32_t warp = tb_warp(b), warps = b->threads / tb_lanes(b);
    uint32_t(*counts)[TB_CLASS_PAIRS] = sh->counts[tile % 2];
    TB_UNROLL
    for (uint32_t h = 0; h < TB_CLASS_PAIRS; h++) {
        if (2 * h >= classes) continue;
        const uint32_t upto = tb_warp_upto(b, mine[h]);
        sh->before[h][b->thread] = upto - mine[h];
        if (tb_lane(b) + 1 == tb_lanes(b)) counts[warp][h] = upto;
    }
    tb_block_sync(b);
    for (uint32_t c = tb_lane(b); c < classes; c += tb_lanes(b)) {
        uint32_t before = 0, all = 0;
        for (uint32_t w = 0; w < warps; w++) {
            const uint32_t count = counts[w][c / 2] >> 16 * (c % 2) & 0xffff;
            before += w < warp ? count : 0;
            all += count;
        }
        sh->start[warp][c] = sh->behind[warp][c] + before;
        sh->behind[warp][c] += all;
        sh->count[warp][c] = counts[warp][c / 2] >> 16 * (c % 2) & 0xffff;
    }
    tb_warp_sync(b);
}

/* The first element of the thread's group; what classes it has is in sh. */
TB_DEVICE uint32_t tb_group_look(const struct tb_block *b, struct tb_ranks_shared *sh,
                                 const struct tb_section *s, const uint8_t *bounds, uint32_t classes,
                                 uint32_t tile)
{
    const uint32_t first = tile * tb_tile_elements(b) + TB_GROUP * b->thread;
    const uint32_t next = first + tb_tile_elements(b);
    uint32_t counts[TB_CLASS_PAIRS];
    if (next < s->count) tb_prefetch(s->base + (uint64_t)s->width * next);
    tb_group_members(b, sh, s, bounds, classes, first, counts);
    tb_group_ranks(b, sh, classes, tile, counts);
    return first;
}

/* The rank of the group's first member of class c. */
TB_DEVICE uint32_t tb_group_rank(const struct tb_block *b, const struct tb_ranks_shared *sh, uint32_t c)
{
    return sh->start[tb_warp(b)][c] + (sh->before[c / 2][b->thread] >> 16 * (c % 2) & 0xffff);
}

#endif

/* extents.c - a sorted array is enough: an arena has a few hundred pieces, and one is
 * taken for gigabytes. */
#include "gateway/arena/extents.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

void tb_extents_init(struct tb_extents *e, struct tb_extent *memory, uint32_t count_max, struct tb_extent all)
{
    TB_ASSERT(count_max > 0 && all.offset % TB_EXTENT_GRAIN == 0 && all.bytes % TB_EXTENT_GRAIN == 0);
    *e = (struct tb_extents){
        .free = memory, .count = 1, .count_max = count_max, .free_bytes = all.bytes, .all = all};
    memory[0] = all;
}

static void insert(struct tb_extents *e, uint32_t at, struct tb_extent piece)
{
    TB_ASSERT(at <= e->count && e->count < e->count_max);
    memmove(&e->free[at + 1], &e->free[at], (e->count - at) * sizeof *e->free);
    e->free[at] = piece;
    e->count++;
}

static void erase(struct tb_extents *e, uint32_t at)
{
    TB_ASSERT(at < e->count);
    e->count--;
    memmove(&e->free[at], &e->free[at + 1], (e->count - at) * sizeof *e->free);
}

/* Cuts a piece out of free extent `at`, which contains it. */
static void cut(struct tb_extents *e, uint32_t at, struct tb_extent piece)
{
    const struct tb_extent whole = e->free[at];
    const struct tb_extent before = {whole.offset, piece.offset - whole.offset};
    const uint64_t end = piece.offset + piece.bytes;
    const struct tb_extent after = {end, whole.offset + whole.bytes - end};
    TB_ASSERT(piece.offset >= whole.offset && end <= whole.offset + whole.bytes);
    e->free_bytes -= piece.bytes;
    erase(e, at);
    if (after.bytes > 0) insert(e, at, after);
    if (before.bytes > 0) insert(e, at, before);
}

enum tb_status tb_extents_take(struct tb_extents *e, uint64_t bytes, uint64_t align, uint64_t *offset_out)
{
    TB_ASSERT(bytes > 0 && bytes % TB_EXTENT_GRAIN == 0 && align >= TB_EXTENT_GRAIN &&
              (align & (align - 1)) == 0);
    for (uint32_t i = 0; i < e->count; i++) {
        const struct tb_extent f = e->free[i];
        const uint64_t offset = (f.offset + align - 1) & ~(align - 1);
        const uint64_t lost = offset - f.offset;
        if (lost > f.bytes || f.bytes - lost < bytes) continue;
        cut(e, i, (struct tb_extent){offset, bytes});
        *offset_out = offset;
        return TB_OK;
    }
    return TB_SITE_NOMEM;
}

/* The first free extent that ends past `offset`, or count. */
static uint32_t find(const struct tb_extents *e, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = e->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (e->free[middle].offset + e->free[middle].bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool sound(const struct tb_extents *e, struct tb_extent piece)
{
    if (piece.bytes == 0 || piece.bytes % TB_EXTENT_GRAIN != 0 || piece.offset % TB_EXTENT_GRAIN != 0)
        return false;
    return piece.offset >= e->all.offset && piece.bytes <= e->all.bytes &&
           piece.offset - e->all.offset <= e->all.bytes - piece.bytes;
}

enum tb_status tb_extents_take_at(struct tb_extents *e, struct tb_extent piece)
{
    if (!sound(e, piece)) return TB_CONFLICT;
    const uint32_t at = find(e, piece.offset);
    if (at == e->count || e->free[at].offset > piece.offset) return TB_CONFLICT;
    const struct tb_extent f = e->free[at];
    if (f.offset + f.bytes - piece.offset < piece.bytes) return TB_CONFLICT;
    cut(e, at, piece);
    return TB_OK;
}

void tb_extents_give(struct tb_extents *e, struct tb_extent piece)
{
    TB_ASSERT(sound(e, piece));
    const uint32_t at = find(e, piece.offset);
    const uint64_t end = piece.offset + piece.bytes;
    TB_ASSERT(at == e->count || e->free[at].offset >= end);
    e->free_bytes += piece.bytes;
    TB_ASSERT(e->free_bytes <= e->all.bytes);
    const bool joins_next = at < e->count && e->free[at].offset == end;
    const bool joins_last = at > 0 && e->free[at - 1].offset + e->free[at - 1].bytes == piece.offset;
    if (joins_last) {
        e->free[at - 1].bytes += piece.bytes;
        if (!joins_next) return;
        e->free[at - 1].bytes += e->free[at].bytes;
        erase(e, at);
    } else if (joins_next) {
        e->free[at].offset = piece.offset;
        e->free[at].bytes += piece.bytes;
    } else {
        insert(e, at, piece);
    }
}

void tb_extents_check(const struct tb_extents *e)
{
    uint64_t bytes = 0, end = 0;
    TB_ASSERT(e->count <= e->count_max);
    for (uint32_t i = 0; i < e->count; i++) {
        const struct tb_extent f = e->free[i];
        TB_ASSERT(sound(e, f));
        TB_ASSERT(i == 0 || f.offset > end); /* two that touch would be one */
        end = f.offset + f.bytes;
        bytes += f.bytes;
    }
    TB_ASSERT(bytes == e->free_bytes);
}

uint64_t tb_extents_largest(const struct tb_extents *e)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < e->count; i++)
        if (e->free[i].bytes > largest) largest = e->free[i].bytes;
    return largest;
}

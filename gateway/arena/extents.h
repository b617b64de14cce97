/* extents.h - which parts of the arena are free: first fit over sorted extents that never touch.
 * Pure; memory is the caller's.
 *
 * Offsets and sizes are multiples of TB_EXTENT_GRAIN. Between n taken pieces lie at most n + 1 free
 * ones, so a table of that many is never too small. */
#ifndef TB_GATEWAY_EXTENTS_H
#define TB_GATEWAY_EXTENTS_H

#include <stdint.h>

#include "tombolo/status.h"

#define TB_EXTENT_GRAIN ((uint64_t)4096)

struct tb_extent {
    uint64_t offset; /* bytes */
    uint64_t bytes;
};

struct tb_extents {
    struct tb_extent *free; /* ascending, disjoint, not adjacent */
    uint32_t count;
    uint32_t count_max;
    uint64_t free_bytes;
    struct tb_extent all;
};

/* All of `all` is free. */
void tb_extents_init(struct tb_extents *e, struct tb_extent *memory, uint32_t count_max,
                     struct tb_extent all);
/* The lowest free piece of `bytes` at a multiple of `align` (a power of two).
 * TB_SITE_NOMEM: there is none. */
TB_MUST_USE enum tb_status tb_extents_take(struct tb_extents *e, uint64_t bytes, uint64_t align,
                                           uint64_t *offset_out);
/* Exactly this piece. TB_CONFLICT: not all of it is free, or it is not inside, not on
 * the grain, or empty. */
TB_MUST_USE enum tb_status tb_extents_take_at(struct tb_extents *e, struct tb_extent piece);
/* Gives back a piece that was taken; to give what is free is the caller's mistake (TB_ASSERT). */
void tb_extents_give(struct tb_extents *e, struct tb_extent piece);
/* Ascending, disjoint, not adjacent, on the grain, inside `all`; together they are free_bytes. */
void tb_extents_check(const struct tb_extents *e);
uint64_t tb_extents_largest(const struct tb_extents *e);

#endif

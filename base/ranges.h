/* ranges.h - sets of indexes as sorted, disjoint, non-adjacent half-open ranges in fixed memory.
 * Pure; never allocates: what does not fit is refused and the set stays as it was. */
#ifndef TB_BASE_RANGES_H
#define TB_BASE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "tombolo/status.h"

struct tb_range {
    uint32_t first; /* index */
    uint32_t end;   /* index; first == end is empty */
};

struct tb_ranges {
    struct tb_range *items; /* the caller's memory */
    uint32_t count;
    uint32_t count_max;
};

void tb_ranges_init(struct tb_ranges *s, struct tb_range *memory, uint32_t count_max);
/* TB_SITE_NOMEM when the result would need more than count_max ranges; TB_BAD_ARGUMENT for first > end. */
TB_MUST_USE enum tb_status tb_ranges_add(struct tb_ranges *s, struct tb_range r);
TB_MUST_USE enum tb_status tb_ranges_remove(struct tb_ranges *s, struct tb_range r);
bool tb_ranges_has(const struct tb_ranges *s, uint32_t index);
uint64_t tb_ranges_size(const struct tb_ranges *s); /* indexes in the set */
/* The set bits of a bitmap as ranges; stops with TB_SITE_NOMEM when they do not fit. */
TB_MUST_USE enum tb_status tb_ranges_from_bitmap(struct tb_ranges *s, const uint64_t *words, uint32_t count);
/* On the wire: u32 count, then (u32 first, u32 end) ascending. Decode refuses overlaps, disorder, empties,
 * anything at or past `index_end`, more than count_max: TB_PEER_GARBLED. */
void tb_ranges_encode(const struct tb_ranges *s, struct tb_writer *w);
TB_MUST_USE enum tb_status tb_ranges_decode(struct tb_reader *r, uint32_t index_end, struct tb_ranges *s_out);

#endif

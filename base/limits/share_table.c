/* share_table.c - counts by owner, in a table with open addresses. */
#include "base/limits/share_table.h"

#include <stddef.h>

#include "base/assert.h"

uint32_t tb_share_places(uint32_t bound)
{
    if (bound < TB_SHARE_LEAST) return 0;
    uint32_t count = 2 * TB_SHARE_LEAST;
    while (count / 2 < bound && count < UINT32_C(1) << 31)
        count *= 2;
    return count;
}

void tb_share_init(struct tb_share_table *t, struct tb_share *places, uint32_t bound)
{
    const uint32_t count = tb_share_places(bound);
    TB_ASSERT((count == 0) == (places == NULL));
    *t = (struct tb_share_table){.places = places, .place_count = count, .bound = bound};
}

uint32_t tb_share_most(const struct tb_share_table *t)
{
    return t->places == NULL ? t->bound : t->bound / 4;
}

static uint32_t home_of(const struct tb_share_table *t, uint64_t owner)
{
    return (uint32_t)((owner * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (t->place_count - 1);
}

/* The place of the owner, or the free one where it would stand. There are twice as many places as
 * rows, so one is free. */
static uint32_t place_of(const struct tb_share_table *t, uint64_t owner)
{
    TB_ASSERT(t->used <= t->place_count / 2);
    uint32_t at = home_of(t, owner);
    while (t->places[at].used != 0 && t->places[at].owner != owner)
        at = (at + 1) & (t->place_count - 1);
    return at;
}

uint32_t tb_share_used(const struct tb_share_table *t, uint64_t owner)
{
    return t->places == NULL || owner == TB_SHARE_OURS ? 0 : t->places[place_of(t, owner)].used;
}

bool tb_share_room(const struct tb_share_table *t, uint64_t owner, bool preferred)
{
    if (t->places == NULL || owner == TB_SHARE_OURS) return true;
    if (tb_share_used(t, owner) >= tb_share_most(t)) return false;
    if (t->used >= t->bound) return false; /* rows that ended, and are not free yet, count too */
    return preferred || t->used < t->bound - t->bound / 4;
}

void tb_share_take(struct tb_share_table *t, uint64_t owner)
{
    if (t->places == NULL || owner == TB_SHARE_OURS) return;
    struct tb_share *place = &t->places[place_of(t, owner)];
    TB_ASSERT(t->used < t->bound);
    place->owner = owner;
    place->used++;
    t->used++;
}

/* An owner that stands behind a place that came free moves up, so that it is still found. */
static void close_gap(struct tb_share_table *t, uint32_t gap)
{
    TB_ASSERT((t->place_count & (t->place_count - 1)) == 0 && gap < t->place_count);
    const uint32_t mask = t->place_count - 1;
    for (uint32_t at = (gap + 1) & mask; t->places[at].used != 0; at = (at + 1) & mask) {
        const uint32_t home = home_of(t, t->places[at].owner);
        if (((at - home) & mask) < ((at - gap) & mask)) continue;
        t->places[gap] = t->places[at];
        t->places[at].used = 0;
        gap = at;
    }
}

void tb_share_give(struct tb_share_table *t, uint64_t owner)
{
    if (t->places == NULL || owner == TB_SHARE_OURS) return;
    const uint32_t at = place_of(t, owner);
    TB_ASSERT(t->places[at].used > 0 && t->used > 0);
    t->used--;
    if (--t->places[at].used == 0) close_gap(t, at);
}

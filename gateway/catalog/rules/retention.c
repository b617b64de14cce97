/* retention.c - which versions leave the arena, and which never do.
 *
 * Never: the head, a version with readers or an operator's pin, the last copy of one of the newest
 * `keep`. First to go: the oldest whole one, then superseded partial ones, then bases of crossings
 * under way, which only room can take: nothing that a trainer waits for depends on a link. Nothing
 * goes during recovery, for readers may not have come back yet. */
#include "gateway/catalog/rules/retention.h"
#include "base/assert.h"

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/source_links.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"

void tb_catalog_evict(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (tb_version_leaves(v)) return;
    TB_ASSERT(!tb_version_lives(v) || (!v->pinned && !c->recovering));
    tb_version_copy_moves(v, TB_VERSION_COPY_EVICTED);
    tb_version_crossing_moves(v, TB_VERSION_CROSSING_UNASKS);
    tb_table_unmark(&c->versions, version, TB_CATALOG_CROSS);
    tb_table_mark(&c->versions, version, TB_CATALOG_EVICT);
    tb_plan_drop_source(c, version, GATEWAY);
    if (tb_version_lives(v)) tb_groups_unpin(c, version);
    tb_catalog_touch_version(c, version);
}

/* Live versions of the model that are newer than this one. */
static uint32_t newer_count(const struct tb_catalog *c, const struct version *v, bool whole_only)
{
    uint32_t count = 0;
    EACH(c->versions, i)
    {
        const struct version *other = version_at(c, i);
        if (other->model != v->model || !tb_version_lives(other) || !tb_version_older(v, other)) continue;
        if (!whole_only || tb_version_here(other)) count++;
    }
    return count;
}

bool tb_version_retained(const struct tb_catalog *c, const struct version *v)
{
    return tb_version_lives(v) && newer_count(c, v, false) < model_at(c, v->model)->config.keep;
}

/* A site that makes room says nothing of what it was taking: one that took nothing for a lease
 * time, after which it turns to another version itself, takes it no more (P6). */
static bool is_taking(const struct tb_catalog *c, const struct reference *ref)
{
    if (ref->kind != TB_REFERENCE_SITE || ref->whole || ref->held_chunks == 0) return false;
    return site_at(c, ref->owner)->up && tb_time_since(ref->moved_at, c->now) < c->config.lease_ns;
}

/* Another site that is taking it from here; a slow one holds nothing up for ever. */
static bool site_reads(const struct tb_catalog *c, const struct version *v)
{
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (is_taking(c, ref) && tb_time_since(ref->since, c->now) <= c->config.pin_max_ns) return true;
    }
    return false;
}

enum reason { GOES, IS_HEAD, HAS_READERS, LAST_COPY, ARRIVING };

/* Why a version with memory here stays. */
static enum reason stays(const struct tb_catalog *c, const struct version *v)
{
    if (tb_which_is(&model_at(c, v->model)->head, &v->key.uid)) return IS_HEAD;
    if (v->pinned || tb_groups_pin(c, v)) return HAS_READERS;
    /* P6: a version that may be lost, and is superseded, holds up nothing newer. */
    if (v->lacks && newer_count(c, v, false) > 0) return GOES;
    if (site_reads(c, v)) return HAS_READERS;
    /* The last copy of something superseded is nobody's loss: else a home whose sites sleep could
     * never take a version again. */
    if (v->whole && !tb_version_safe_elsewhere(c, v) &&
        newer_count(c, v, true) < model_at(c, v->model)->config.keep)
        return LAST_COPY;
    if (!v->whole && newer_count(c, v, true) == 0 &&
        !(tb_version_crossing_stuck(c, v) && newer_count(c, v, false) > 0)) /* P6 */
        return ARRIVING;
    return GOES;
}

/* Whole before partial, then the older: what goes first is less. */
static bool goes_before(const struct version *a, const struct version *b)
{
    if (a->base != b->base) return b->base;
    if (a->whole != b->whole) return a->whole;
    if (a->model == b->model) return tb_version_older(a, b);
    return a->whole_at < b->whole_at; /* of different models the one that came first */
}

static bool may_go(const struct tb_catalog *c, const struct version *v)
{
    return tb_version_lives(v) && tb_version_reserved(v) && !tb_version_leaves(v) && stays(c, v) == GOES;
}

/* There are `keep` newer ones here. A version spared beyond them, as a base or for its readers,
 * takes no other's place among them: the next version arrives as a delta against the newest. */
static bool is_over_count(const struct tb_catalog *c, const struct version *v)
{
    return v->whole && !v->base && newer_count(c, v, true) >= model_at(c, v->model)->config.keep;
}

/* by_count: because there are more whole ones than `keep`. */
static uint32_t next_victim(const struct tb_catalog *c, uint32_t model, bool by_count)
{
    uint32_t best = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (model != NONE && v->model != model) continue;
        if ((by_count && !is_over_count(c, v)) || !may_go(c, v)) continue;
        if (best == NONE || goes_before(v, version_at(c, best))) best = i;
    }
    return best;
}

static uint32_t whole_count(const struct tb_catalog *c, uint32_t model)
{
    uint32_t count = 0;
    EACH(c->versions, i) if (version_at(c, i)->model == model && tb_version_here(version_at(c, i))) count++;
    return count;
}

void tb_retention_settle(struct tb_catalog *c, uint32_t model)
{
    if (c->recovering) return;
    const uint32_t keep = model_at(c, model)->config.keep;
    for (uint32_t count = whole_count(c, model); count > keep; count--) {
        const uint32_t victim = next_victim(c, model, true);
        if (victim == NONE) return;
        tb_catalog_evict(c, victim);
    }
}

/* ---- looked at ---- */

/* A version within `keep`, or the base of a crossing, goes only where another needs its room. */
static const char *why_free(const struct tb_catalog *c, const struct version *v, bool *goes_out)
{
    if (c->recovering) return "the gateway has just started: its readers may come back";
    if (v->base) return "the base of a delta that crosses";
    if (tb_version_retained(c, v)) return "among the newest that `keep` names";
    *goes_out = true;
    return v->whole ? "older than those that `keep` names" : "not whole, and superseded";
}

const char *tb_retention_why(const struct tb_catalog *c, const struct version *v, bool *goes_out)
{
    TB_ASSERT(tb_version_reserved(v));
    *goes_out = false;
    if (tb_version_leaves(v)) return "it is leaving";
    if (!tb_version_lives(v)) return "it is not ready yet";
    switch (stays(c, v)) {
    case GOES:
        return why_free(c, v, goes_out);
    case IS_HEAD:
        return "the head of its model";
    case HAS_READERS:
        return v->pinned ? "an operator pinned it" : "readers use it, or a site draws it";
    case LAST_COPY:
        return "no other site is known to have it";
    case ARRIVING:
        return "it is arriving";
    }
    return "";
}

/* ---- room ---- */

static void count_room(const struct tb_catalog *c, const struct version *v, struct tb_catalog_room *room)
{
    if (!tb_version_reserved(v)) return;
    if (tb_version_leaves(v)) {
        room->evictable += v->bytes;
        return;
    }
    if (v->life == TB_LIFE_OPEN) {
        room->arriving += v->bytes;
        return;
    }
    switch (stays(c, v)) {
    case GOES:
        room->evictable += v->bytes;
        return;
    case IS_HEAD:
        room->heads += v->bytes;
        return;
    case HAS_READERS:
        room->pinned += v->bytes;
        return;
    case LAST_COPY:
        room->last_copies += v->bytes;
        return;
    case ARRIVING:
        room->arriving += v->bytes;
        return;
    }
}

static uint64_t going_bytes(const struct tb_catalog *c)
{
    uint64_t bytes = 0;
    EACH(c->versions, i) if (tb_version_leaves(version_at(c, i))) bytes += version_at(c, i)->bytes;
    return bytes;
}

enum tb_status tb_retention_make_room(struct tb_catalog *c, uint64_t bytes_needed,
                                      struct tb_catalog_room *room_out)
{
    struct tb_catalog_room room = {.needed = bytes_needed};
    EACH(c->versions, i) count_room(c, version_at(c, i), &room);
    *room_out = room;
    if (bytes_needed == 0) return TB_OK;
    if (going_bytes(c) >= bytes_needed) return TB_AGAIN;
    if (room.evictable < bytes_needed) return TB_SITE_NOMEM;
    if (c->recovering) return TB_AGAIN;
    while (going_bytes(c) < bytes_needed) {
        const uint32_t victim = next_victim(c, NONE, false);
        if (victim == NONE) break; /* one eviction made another version somebody's last copy */
        tb_catalog_evict(c, victim);
    }
    return TB_AGAIN;
}

/* unpublish.c - a rank takes its memory back: the requests. When it gets it: unpublish_rules.c. */
#include "gateway/catalog/unpublish.h"

#include "base/assert.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/source_links.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/settle.h"
#include "gateway/catalog/rules/unpublish_rules.h"

static bool mine(const struct reference *ref, uint32_t session, uint32_t shard)
{
    if (ref->kind != TB_REFERENCE_PUBLISHER || ref->owner != session) return false;
    return shard == TB_CATALOG_ALL_SHARDS || ref->shard == shard;
}

bool tb_catalog_unpublishing(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                             uint32_t shard)
{
    const bool all = shard == TB_CATALOG_ALL_SHARDS;
    for (uint32_t r = 0; r < c->references.high; r++) { /* also what ended and is not told yet */
        const struct reference *ref = reference_at(c, r);
        if (!ref->row.live || ref->kind != TB_REFERENCE_PUBLISHER) continue;
        if (!tb_id_equal(&ref->session_id, session) || !tb_id_equal(&ref->uid, uid)) continue;
        if (tb_reference_hidden(ref) && !ref->row.dead && (all || ref->shard == shard)) return true;
        const bool named = ref->unpublish_shard == shard || ref->unpublish_shard == TB_CATALOG_ALL_SHARDS;
        if ((all || named) && tb_table_marked(&ref->row, TB_CATALOG_UNPUBLISHED)) return true;
    }
    return false;
}

/* A hidden one turns out to be gone at `until`: it goes then, or with the drain that it was
 * hidden for, and alone. */
static void part(struct tb_catalog *c, uint32_t r, tb_time_ns until)
{
    struct reference *ref = reference_at(c, r);
    const uint32_t leader = ref->unpublish_with;
    TB_ASSERT(tb_reference_hidden(ref) && tb_reference_answers(reference_at(c, leader)));
    const tb_time_ns before = reference_at(c, leader)->drain_until;
    if (leader == r) tb_unpublish_hand_over(c, r);
    tb_reference_sight_moves(ref, TB_SIGHT_IS_GOING);
    ref->unpublish_with = r;
    ref->unpublish_shard = ref->shard;
    ref->drain_until = tb_time_min(before, until);
}

static enum tb_status unpublish(struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                                uint32_t shard, tb_time_ns drain_ns, bool gone)
{
    const tb_time_ns until =
        tb_time_add(c->now, drain_ns < c->config.drain_ns ? drain_ns : c->config.drain_ns);
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = tb_version_find(c, uid);
    uint32_t leader = NONE;
    bool any = false;
    for (uint32_t r = i == NONE ? NONE : version_at(c, i)->holders; r != NONE; r = reference_at(c, r)->next) {
        struct reference *ref = reference_at(c, r);
        if (!mine(ref, s, shard)) continue;
        any = true;
        if (tb_reference_hidden(ref)) {
            if (gone) part(c, r, until);
            continue;
        }
        if (leader == NONE) leader = r;
        tb_reference_sight_moves(ref, TB_SIGHT_IS_HIDDEN);
        ref->unpublish_with = leader;
        if (ref->followers > 0) tb_plan_drop_source(c, i, r); /* they go on elsewhere with what they hold */
    }
    if (!any) return tb_catalog_unpublishing(c, session, uid, shard) ? TB_DONE_BEFORE : TB_NOT_FOUND;
    tb_catalog_touch_version(c, i);
    if (leader == NONE) return tb_catalog_settle(c, TB_DONE_BEFORE);
    struct reference *ref = reference_at(c, leader);
    tb_reference_sight_moves(ref, gone ? TB_SIGHT_IS_GOING : TB_SIGHT_LEADS);
    ref->unpublish_shard = shard;
    ref->drain_until = until;
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_unpublish(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                    const struct tb_id *uid, uint32_t shard, tb_time_ns drain_ns)
{
    tb_catalog_enter(c, now);
    return unpublish(c, session, uid, shard, drain_ns, false);
}

enum tb_status tb_catalog_unpublish_gone(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                         const struct tb_id *uid, uint32_t shard, tb_time_ns drain_ns)
{
    tb_catalog_enter(c, now);
    if (shard == TB_CATALOG_ALL_SHARDS) return TB_BAD_ARGUMENT;
    return unpublish(c, session, uid, shard, drain_ns, true);
}

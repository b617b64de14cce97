/* unpublish.c - a rank takes its memory back, and nothing that retention needs is lost by it.
 *
 * The references are hidden at once. They go when each of the rank's shards is safe elsewhere, or is no
 * longer needed; when the drain passes first, they come back into sight and the rank is told so (P10). But
 * where the memory itself goes then, so does the reference: what is lost by it is lost, and told (P3). */
#include "gateway/catalog/tables.h"

static bool mine(const struct reference *ref, uint32_t session, uint32_t shard)
{
    if (ref->kind != TB_REFERENCE_PUBLISHER || ref->owner != session) return false;
    return shard == TB_CATALOG_ALL_SHARDS || ref->shard == shard;
}

/* Hidden by the request that `leader` answers. */
static bool leaves_with(const struct reference *ref, uint32_t leader)
{
    return ref->kind == TB_REFERENCE_PUBLISHER && ref->hidden && ref->unpublish_with == leader;
}

static bool published_by_another(const struct tb_catalog *c, const struct version *v,
                                 const struct reference *own)
{
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind != TB_REFERENCE_PUBLISHER || ref->shard != own->shard) continue;
        if (ref->owner != own->owner && !ref->hidden) return true;
    }
    return false;
}

static bool safe_without(const struct tb_catalog *c, const struct version *v, const struct reference *ref)
{
    if (tb_version_status(c, v) != TB_OK) return true;
    if (v->state != TB_VERSION_OPEN && !tb_version_retained(c, v)) return true;
    if (ref->shard != NONE && !v->evicting && tb_shard_whole(v, ref->shard)) return true;
    if (ref->shard != NONE && published_by_another(c, v, ref)) return true;
    return tb_version_lives(v) && tb_version_whole_elsewhere(c, v);
}

static bool all_safe(const struct tb_catalog *c, const struct version *v, uint32_t leader)
{
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (leaves_with(ref, leader) && !safe_without(c, v, ref)) return false;
    }
    return true;
}

static void answer(struct tb_catalog *c, uint32_t r, enum tb_status status)
{
    struct reference *ref = reference_at(c, r);
    const uint32_t version = ref->version;
    const bool gone = status != TB_OK && ref->gone && ref->unpublish_shard != TB_CATALOG_ALL_SHARDS;
    ref->unpublish_answers = false;
    ref->unpublished = gone ? TB_PEER_REVOKED : status;
    tb_row_mark(&c->references, r, TB_CATALOG_UNPUBLISHED);
    EACH_HOLDER(c, version_at(c, version), i)
    {
        if (!leaves_with(reference_at(c, i), r)) continue;
        if (status == TB_OK)
            tb_reference_end(c, i);
        else if (reference_at(c, i)->gone)
            tb_reference_lost(c, i);
        else
            reference_at(c, i)->hidden = false;
    }
}

void tb_unpublish_settle(struct tb_catalog *c, uint32_t version)
{
    EACH_HOLDER(c, version_at(c, version), r)
    {
        const struct reference *ref = reference_at(c, r);
        if (!ref->unpublish_answers) continue;
        const bool late = ref->drain_until <= c->now;
        if (all_safe(c, version_at(c, version), r))
            answer(c, r, TB_OK);
        else if (late)
            answer(c, r, TB_TIMEOUT);
    }
}

static enum tb_status unpublish(struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                                uint32_t shard, tb_time_ns drain_ns, bool gone)
{
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = tb_version_find(c, uid);
    uint32_t leader = NONE;
    bool any = false;
    for (uint32_t r = i == NONE ? NONE : version_at(c, i)->holders; r != NONE; r = reference_at(c, r)->next) {
        struct reference *ref = reference_at(c, r);
        if (!mine(ref, s, shard)) continue;
        any = true;
        ref->gone = ref->gone || gone; /* also one that another request hid: it does not come back */
        if (ref->hidden) continue;
        if (leader == NONE) leader = r;
        ref->hidden = true;
        ref->unpublish_with = leader;
        if (ref->followers > 0) tb_plan_drop_source(c, i, r); /* they go on elsewhere with what they hold */
    }
    if (leader == NONE) return any ? TB_DONE_BEFORE : TB_NOT_FOUND;
    struct reference *ref = reference_at(c, leader);
    ref->unpublish_answers = true;
    ref->unpublish_shard = shard;
    ref->drain_until = tb_time_add(c->now, drain_ns < c->config.drain_ns ? drain_ns : c->config.drain_ns);
    tb_catalog_touch_version(c, i);
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

tb_time_ns tb_unpublish_deadline(const struct tb_catalog *c)
{
    tb_time_ns at = TB_TIME_NEVER;
    EACH(c->references, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->unpublish_answers) at = tb_time_min(at, ref->drain_until);
    }
    return at;
}

/* unpublish.c - a rank takes its memory back, and nothing that retention needs is lost by it.
 *
 * The references are hidden at once. They go when each of the rank's shards is safe elsewhere, or is no
 * longer needed; when the drain passes first, they come back into sight and the rank is told so (P10). But
 * where the memory itself goes then, so does the reference: what is lost by it is lost, and told (P3). It waits with no other
 * for that, and nobody else's drain ends by it. */
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

/* A spot rank may go at any time: what it holds is no reason to believe that the shard is safe. */
static bool published_by_another(const struct tb_catalog *c, const struct version *v,
                                 const struct reference *own)
{
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind != TB_REFERENCE_PUBLISHER || ref->shard != own->shard) continue;
        if (ref->owner != own->owner && !ref->hidden && !session_at(c, ref->owner)->info.spot) return true;
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
    ref->unpublish_answers = false;
    ref->unpublished = status != TB_OK && ref->gone ? TB_PEER_REVOKED : status;
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

bool tb_catalog_unpublishing(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                             uint32_t shard)
{
    const bool all = shard == TB_CATALOG_ALL_SHARDS;
    for (uint32_t r = 0; r < c->references.high; r++) { /* also what ended and is not told yet */
        const struct reference *ref = reference_at(c, r);
        if (!ref->row.live || ref->kind != TB_REFERENCE_PUBLISHER) continue;
        if (!tb_id_equal(&ref->session_id, session) || !tb_id_equal(&ref->uid, uid)) continue;
        if (ref->hidden && !ref->row.dead && (all || ref->shard == shard)) return true;
        const bool named = ref->unpublish_shard == shard || ref->unpublish_shard == TB_CATALOG_ALL_SHARDS;
        if ((all || named) && tb_row_marked(&ref->row, TB_CATALOG_UNPUBLISHED)) return true;
    }
    return false;
}

/* The others that it was hidden with have their answer from another one of them. */
static void hand_over(struct tb_catalog *c, uint32_t leader)
{
    const struct reference *ref = reference_at(c, leader);
    uint32_t heir = NONE;
    EACH_HOLDER(c, version_at(c, ref->version), r)
    {
        struct reference *other = reference_at(c, r);
        if (r == leader || !leaves_with(other, leader)) continue;
        if (heir == NONE) {
            heir = r;
            other->unpublish_answers = true;
            other->unpublish_shard = ref->unpublish_shard;
            other->drain_until = ref->drain_until;
        }
        other->unpublish_with = heir;
    }
}

/* A hidden one turns out to be gone at `until`: it goes then, or with the drain that it was hidden for, and alone. */
static void part(struct tb_catalog *c, uint32_t r, tb_time_ns until)
{
    struct reference *ref = reference_at(c, r);
    const uint32_t leader = ref->unpublish_with;
    const tb_time_ns before = reference_at(c, leader)->drain_until;
    if (leader == r) hand_over(c, r);
    ref->gone = true;
    ref->unpublish_answers = true;
    ref->unpublish_with = r;
    ref->unpublish_shard = ref->shard;
    ref->drain_until = tb_time_min(before, until);
}

void tb_unpublish_take_back(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    if (ref->unpublish_answers) hand_over(c, reference);
    ref->hidden = ref->gone = ref->unpublish_answers = false;
    ref->unpublished = TB_TIMEOUT;
    ref->unpublish_shard = ref->shard;
    tb_row_mark(&c->references, reference, TB_CATALOG_UNPUBLISHED);
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
        if (ref->hidden) {
            if (gone) part(c, r, until);
            continue;
        }
        if (leader == NONE) leader = r;
        ref->hidden = true;
        ref->gone = gone;
        ref->unpublish_with = leader;
        if (ref->followers > 0) tb_plan_drop_source(c, i, r); /* they go on elsewhere with what they hold */
    }
    if (!any) return tb_catalog_unpublishing(c, session, uid, shard) ? TB_DONE_BEFORE : TB_NOT_FOUND;
    tb_catalog_touch_version(c, i);
    if (leader == NONE) return tb_catalog_settle(c, TB_DONE_BEFORE);
    struct reference *ref = reference_at(c, leader);
    ref->unpublish_answers = true;
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

/* unpublish_rules.c - a rank takes its memory back, and no byte that retention needs is lost by it.
 *
 * The references are hidden at once. They go when each of the rank's shards is safe elsewhere or no
 * longer needed. When the drain passes first, they come back into sight, and the rank is told so
 * (P10).
 *
 * Where the memory itself goes at the end of the drain, the reference goes too, and the loss is
 * told (P3). It waits for no other reference, and ends no other's drain. */
#include "gateway/catalog/rules/unpublish_rules.h"
#include "base/assert.h"

#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/retention.h"

/* Hidden by the request that `leader` answers. */
static bool leaves_with(const struct reference *ref, uint32_t leader)
{
    return ref->kind == TB_REFERENCE_PUBLISHER && tb_reference_hidden(ref) && ref->unpublish_with == leader;
}

/* P3: nothing that another rank or a worker says makes a shard safe. */
static bool safe_without(const struct tb_catalog *c, const struct version *v, const struct reference *ref)
{
    if (tb_version_status(c, v) != TB_OK) return true;
    if (v->life != TB_LIFE_OPEN && !tb_version_retained(c, v)) return true;
    if (ref->shard != NONE && !tb_version_leaves(v) && tb_shard_whole(v, ref->shard)) return true;
    return tb_version_lives(v) && tb_version_safe_elsewhere(c, v);
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

/* The others that it was hidden with have their answer from another one of them. */
void tb_unpublish_hand_over(struct tb_catalog *c, uint32_t leader)
{
    const struct reference *ref = reference_at(c, leader);
    TB_ASSERT(tb_reference_hidden(ref));
    uint32_t heir = NONE;
    EACH_HOLDER(c, version_at(c, ref->version), r)
    {
        struct reference *other = reference_at(c, r);
        if (r == leader || !leaves_with(other, leader)) continue;
        if (heir == NONE) {
            heir = r;
            tb_reference_sight_moves(other, TB_SIGHT_LEADS);
            other->unpublish_shard = ref->unpublish_shard;
            other->drain_until = ref->drain_until;
        }
        other->unpublish_with = heir;
    }
}

static void answer(struct tb_catalog *c, uint32_t r, enum tb_status status)
{
    struct reference *ref = reference_at(c, r);
    const uint32_t version = ref->version;
    TB_ASSERT(tb_reference_answers(ref) && ref->unpublish_with == r);
    ref->unpublished = status != TB_OK && ref->sight == TB_SIGHT_GOES ? TB_PEER_REVOKED : status;
    tb_table_mark(&c->references, r, TB_CATALOG_UNPUBLISHED);
    EACH_HOLDER(c, version_at(c, version), i)
    {
        if (!leaves_with(reference_at(c, i), r)) continue;
        if (status == TB_OK)
            tb_reference_end(c, i);
        else if (reference_at(c, i)->sight == TB_SIGHT_GOES)
            tb_reference_lost(c, i);
        else
            tb_reference_sight_moves(reference_at(c, i), TB_SIGHT_COMES_BACK);
    }
}

void tb_unpublish_settle(struct tb_catalog *c, uint32_t version)
{
    EACH_HOLDER(c, version_at(c, version), r)
    {
        const struct reference *ref = reference_at(c, r);
        if (!tb_reference_answers(ref)) continue;
        const bool late = ref->drain_until <= c->now;
        if (all_safe(c, version_at(c, version), r))
            answer(c, r, TB_OK);
        else if (late)
            answer(c, r, TB_TIMEOUT);
    }
}

void tb_unpublish_take_back(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    TB_ASSERT(tb_reference_hidden(ref));
    if (tb_reference_answers(ref)) tb_unpublish_hand_over(c, reference);
    tb_reference_sight_moves(ref, TB_SIGHT_COMES_BACK);
    ref->unpublished = TB_TIMEOUT;
    ref->unpublish_shard = ref->shard;
    tb_table_mark(&c->references, reference, TB_CATALOG_UNPUBLISHED);
}

tb_time_ns tb_unpublish_deadline(const struct tb_catalog *c)
{
    tb_time_ns at = TB_TIME_NEVER;
    EACH(c->references, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (tb_reference_answers(ref)) at = tb_time_min(at, ref->drain_until);
    }
    return at;
}

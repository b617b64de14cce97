/* landing_rules.c - the ranks and workers that home may read for bytes that it lacks: ranks first,
 * then workers. Where no worker has all of it, home reads all that have a part (P6). */
#include "gateway/catalog/rules/landing_rules.h"
#include "base/assert.h"

#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_rows.h"

/* Workers with a part of a version that home reads at once for what rotted here: a hop each, of
 * some thousands there may be. */
#define LANDING_PARTS_MAX 32

/* Workers are read only for what no rank holds: while ranks are there, workers have better to
 * do. */
static bool lacks_unpublished_shard(const struct tb_catalog *c, const struct version *v)
{
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        if (!tb_shard_whole(v, s) && !tb_shard_published(c, v, s)) return true;
    return false;
}

static bool landing_possible(const struct version *v)
{
    const bool coming = v->life == TB_LIFE_OPEN || tb_version_lives(v);
    return coming && tb_version_reserved(v) && !v->whole && !tb_version_leaves(v);
}

static bool rank_wanted(const struct version *v, const struct reference *ref)
{
    return landing_possible(v) && ref->kind == TB_REFERENCE_PUBLISHER && ref->shard != NONE &&
           !tb_shard_whole(v, ref->shard);
}

/* Holds a part of what was here, and serves it. */
static bool serves_a_part(const struct reference *ref)
{
    return !ref->whole && ref->held_chunks > 0 && ref->export_id != 0;
}

static bool whole_worker_serves(const struct tb_catalog *c, const struct version *v)
{
    EACH_WORKER(c, v, r) if (reference_at(c, r)->whole && reference_at(c, r)->export_id != 0) return true;
    return false;
}

static void tell_landing(struct tb_catalog *c, uint32_t r, bool wanted)
{
    struct reference *ref = reference_at(c, r);
    if (wanted == ref->landing) return;
    tb_reference_set_landing(c, ref, wanted);
    const bool untold = tb_table_marked(&ref->row, TB_CATALOG_LAND_FROM);
    tb_table_unmark(&c->references, r, wanted ? TB_CATALOG_LAND_END : TB_CATALOG_LAND_FROM);
    if (wanted)
        tb_table_mark(&c->references, r, TB_CATALOG_LAND_FROM);
    else if (!untold)
        tb_table_mark(&c->references, r, TB_CATALOG_LAND_END);
}

void tb_landing_settle(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (!model_at(c, v->model)->config.is_home) return;
    EACH_HOLDER(c, v, r) tell_landing(c, r, rank_wanted(v, reference_at(c, r)));
    const bool from_workers = tb_version_lives(v) && landing_possible(v) && lacks_unpublished_shard(c, v);
    if (!from_workers && v->landing_workers == 0) return;
    const bool from_whole = from_workers && whole_worker_serves(c, v);
    const bool from_parts = from_workers && !from_whole && v->had_more;
    uint32_t parts = 0;
    EACH_WORKER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        const bool part = from_parts && serves_a_part(ref) && !ref->was_asked && parts < LANDING_PARTS_MAX;
        parts += part;
        tell_landing(c, r, part || (from_whole && ref->whole && ref->export_id != 0));
    }
}

bool tb_landing_ask_others(struct tb_catalog *c, uint32_t version)
{
    TB_ASSERT(model_at(c, version_at(c, version)->model)->config.is_home);
    /* Without room in the arena nobody is ever asked: a site that was not asked yet is
     * nothing to wait for (P6). */
    if (!landing_possible(version_at(c, version))) return false;
    bool more = false;
    EACH_WORKER(c, version_at(c, version), r)
    {
        struct reference *ref = reference_at(c, r);
        if (ref->landing) ref->was_asked = true;
        more = more || (serves_a_part(ref) && !ref->was_asked);
    }
    return more;
}

/* version_rows.c - the rows of versions: small questions about one, and what begins or ends one. An
 * end is a mark; settling draws its conclusions (version_rules.c). */
#include "gateway/catalog/rows/version_rows.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"

const char *tb_catalog_state_name(enum tb_catalog_state state)
{
    static const char *const names[TB_CATALOG_STATE_END] = {
        "", "open", "ready", "kept", "retired", "lost", "broken", "withdrawn", "abandoned"};
    return (unsigned)state < TB_CATALOG_STATE_END ? names[state] : "";
}

enum tb_status tb_catalog_state_status(enum tb_catalog_state state)
{
    static const enum tb_status statuses[TB_CATALOG_STATE_END] = {
        [TB_VERSION_RETIRED] = TB_SUPERSEDED,          [TB_VERSION_ENDED_LOST] = TB_VERSION_LOST,
        [TB_VERSION_ENDED_BROKEN] = TB_VERSION_BROKEN, [TB_VERSION_ENDED_WITHDRAWN] = TB_VERSION_WITHDRAWN,
        [TB_VERSION_ENDED_ABANDONED] = TB_SUPERSEDED,
    };
    return (unsigned)state < TB_CATALOG_STATE_END ? statuses[state] : TB_OK;
}

/* ---- small questions ---- */

uint32_t tb_version_find(const struct tb_catalog *c, const struct tb_id *uid)
{
    EACH(c->versions, i) if (tb_id_equal(&version_at(c, i)->key.uid, uid)) return i;
    return NONE;
}

int tb_which_compare(const struct which *a, const struct which *b)
{
    if (a->run_order != b->run_order) return a->run_order < b->run_order ? -1 : 1;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return 0;
}

struct which tb_which_of(const struct version *v)
{
    return (struct which){.uid = v->key.uid, .run_order = v->key.run_order, .number = v->key.number};
}

bool tb_which_held_back(const struct tb_catalog *c, uint32_t model, const struct which *w)
{
    const uint32_t pin = model_at(c, model)->pin;
    if (pin == NONE) return false;
    const struct which pinned = tb_which_of(version_at(c, pin));
    return tb_which_compare(w, &pinned) > 0;
}

bool tb_which_is(const struct which *w, const struct tb_id *uid)
{
    return !tb_id_is_zero(&w->uid) && tb_id_equal(&w->uid, uid);
}

bool tb_version_lives(const struct version *v)
{
    return v->life == TB_LIFE_READY || v->life == TB_LIFE_KEPT;
}

struct version *tb_version_enter(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                 uint32_t *version_out)
{
    tb_catalog_enter(c, now);
    *version_out = tb_version_find(c, uid);
    return *version_out == NONE ? NULL : version_at(c, *version_out);
}

bool tb_version_here(const struct version *v)
{
    return tb_version_lives(v) && v->whole && !tb_version_leaves(v);
}

bool tb_version_older(const struct version *a, const struct version *b)
{
    const struct which wa = tb_which_of(a), wb = tb_which_of(b);
    return tb_which_compare(&wa, &wb) < 0;
}

bool tb_version_run_fenced(const struct tb_catalog *c, const struct version *v)
{
    const uint32_t run = tb_catalog_run_find(c, v->model, &v->key.run);
    return run != NONE && run_at(c, run)->info.fenced;
}

enum tb_status tb_version_status(const struct tb_catalog *c, const struct version *v)
{
    if (v->life == TB_LIFE_ABANDONED && !v->was_ready && tb_version_run_fenced(c, v)) return TB_FENCED;
    return tb_catalog_state_status(tb_version_state(v));
}

uint32_t tb_versions_of(const struct tb_catalog *c, uint32_t model)
{
    uint32_t used = 0;
    EACH(c->versions, i) used += version_at(c, i)->model == model;
    return used;
}

bool tb_version_newer_here(const struct tb_catalog *c, const struct version *v)
{
    EACH(c->versions, i)
    {
        const struct version *other = version_at(c, i);
        if (other->model == v->model && tb_version_here(other) && tb_version_older(v, other)) return true;
    }
    return false;
}

bool tb_shard_published(const struct tb_catalog *c, const struct version *v, uint32_t shard)
{
    TB_ASSERT(shard < v->key.shard_count);
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_PUBLISHER && ref->shard == shard) return true;
    }
    return false;
}

bool tb_shard_whole(const struct version *v, uint32_t shard)
{
    TB_ASSERT(shard < v->key.shard_count);
    const struct shard *s = &v->shards[shard];
    return tb_version_reserved(v) && s->known && s->held_chunks == s->info.chunk_count;
}

/* Spot workers serve but are no reason to believe that a version is safe. */
bool tb_version_whole_elsewhere(const struct tb_catalog *c, const struct version *v)
{
    EACH_REFERENCE(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (!ref->whole || ref->reads_only || ref->kind == TB_REFERENCE_PUBLISHER) continue;
        if (ref->kind == TB_REFERENCE_SITE || !session_at(c, ref->owner)->info.spot) return true;
    }
    return false;
}

static bool is_durable(const struct tb_catalog_model *m, const struct tb_name *gateway)
{
    TB_ASSERT(m->durable_count <= TB_CATALOG_DURABLE_MAX);
    for (uint32_t i = 0; i < m->durable_count; i++)
        if (tb_catalog_same_name(&m->durable[i], gateway)) return true;
    return false;
}

bool tb_version_safe_elsewhere(const struct tb_catalog *c, const struct version *v)
{
    const struct tb_catalog_model *m = &model_at(c, v->model)->config;
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_SITE && ref->whole_itself && is_durable(m, &ref->name)) return true;
    }
    return false;
}

/* P7: bytes that never become a chunk are no sign of one. Eight streams with 16 MiB each,
 * at 1 MB/s, take 134 s. */
#define CAME_LEASES 16u

tb_time_ns tb_version_sign(const struct tb_catalog *c, const struct version *v, tb_time_ns chunk_at)
{
    const tb_time_ns most = tb_time_add(chunk_at, CAME_LEASES * c->config.lease_ns);
    return v->came_at > chunk_at ? tb_time_min(v->came_at, most) : chunk_at;
}

/* ---- changes ---- */

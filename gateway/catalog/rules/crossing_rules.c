/* crossing_rules.c - what crosses to here next, and from where.
 *
 * A newer ready version replaces one whose crossing has not begun, unless the model wants every
 * one: then the oldest is next. One begun is finished, or given up for one that will be whole
 * sooner (crossing_abandonment.h). One arrives at a time for a model. */
#include "gateway/catalog/rules/crossing_rules.h"
#include "base/assert.h"

#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"

static bool can_ask(const struct tb_catalog *c, const struct version *v, uint32_t site)
{
    if (!site_at(c, site)->up) return false;
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind != TB_REFERENCE_SITE || ref->owner != site) continue;
        /* A third site's report may be old, so the site itself must have said it. Sites announce
         * nothing to home, which takes either. */
        return ref->has && (ref->heard_in != 0 || model_at(c, v->model)->config.is_home);
    }
    return false;
}

static bool has_whole(const struct tb_catalog *c, const struct version *v, uint32_t site)
{
    EACH_REFERENCE(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_SITE && ref->owner == site) return ref->whole;
    }
    return false;
}

struct sources {
    struct tb_name *names;
    uint32_t count;
};

static void add_source(const struct tb_catalog *c, const struct version *v, uint32_t site, struct sources *to)
{
    if (site == NONE || to->count == TB_CATALOG_FROM_MAX || !can_ask(c, v, site)) return;
    for (uint32_t i = 0; i < to->count; i++)
        if (tb_catalog_same_name(&to->names[i], &site_at(c, site)->name)) return;
    TB_ASSERT(to->count < TB_CATALOG_FROM_MAX);
    to->names[to->count++] = site_at(c, site)->name;
}

/* Those of the list, or home and then all. */
static void add_sources(const struct tb_catalog *c, const struct version *v, bool only_whole,
                        struct sources *to)
{
    const struct tb_catalog_model *m = &model_at(c, v->model)->config;
    for (uint32_t f = 0; f < m->from_count; f++) {
        const uint32_t site = tb_catalog_site_find(c, &m->from[f]);
        if (!only_whole || has_whole(c, v, site)) add_source(c, v, site, to);
    }
    if (m->from_count > 0) return;
    const uint32_t home = tb_catalog_site_find(c, &m->home);
    if (!only_whole || has_whole(c, v, home)) add_source(c, v, home, to);
    EACH(c->sites, s) if (!only_whole || has_whole(c, v, s)) add_source(c, v, s, to);
}

/* P6: sites that draw a version from each other while a third has it whole would draw for ever:
 * once a crossing stands, a site that has it whole is asked first. */
uint32_t tb_catalog_crossing_from(const struct tb_catalog *c, const struct version *v,
                                  struct tb_name from_out[TB_CATALOG_FROM_MAX])
{
    struct sources from = {from_out, 0};
    if (tb_version_crossing_stands(c, v)) add_sources(c, v, true, &from);
    add_sources(c, v, false, &from);
    return from.count;
}

/* CROSS is said again when the sites that can be asked changed. */
void tb_version_crossing_again(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (!tb_version_lives(v) || v->whole || tb_version_leaves(v) ||
        !(tb_version_cross_begun(v) || tb_version_cross_asked(v)))
        return;
    struct tb_name from[TB_CATALOG_FROM_MAX];
    if (tb_catalog_crossing_from(c, v, from) > 0) tb_table_mark(&c->versions, version, TB_CATALOG_CROSS);
}

/* Home asks others only for what no rank and no worker of its own can give. */
static bool home_needs(const struct tb_catalog *c, const struct version *v)
{
    EACH_WORKER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->whole && ref->export_id != 0) return false;
    }
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        if (!tb_shard_whole(v, s) && !tb_shard_published(c, v, s)) return true;
    return false;
}

static bool lacking(const struct version *v, uint32_t model)
{
    return v->model == model && tb_version_lives(v) && !v->whole && !tb_version_leaves(v);
}

static bool may_cross(const struct tb_catalog *c, const struct version *v, uint32_t model)
{
    struct tb_name from[TB_CATALOG_FROM_MAX];
    if (!lacking(v, model) || tb_version_cross_begun(v) || v->refused_until > c->now) return false;
    if (model_at(c, model)->config.is_home && !home_needs(c, v)) return false;
    if (!tb_version_reserved(v) && !v->wanted && !v->pinned && tb_version_newer_here(c, v)) return false;
    return tb_catalog_crossing_from(c, v, from) > 0;
}

/* Readers wait for a pinned version. A version with space goes on next. Then the newest comes, or
 * the oldest where every version crosses. */
static bool preferred(const struct tb_catalog *c, const struct version *a, const struct version *b)
{
    if (a->pinned != b->pinned) return a->pinned;
    if (tb_version_reserved(a) != tb_version_reserved(b)) return tb_version_reserved(a);
    return model_at(c, a->model)->config.every ? tb_version_older(a, b) : tb_version_older(b, a);
}

static uint32_t choose(const struct tb_catalog *c, uint32_t model)
{
    uint32_t best = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (!may_cross(c, v, model)) continue;
        if (best == NONE || preferred(c, v, version_at(c, best))) best = i;
    }
    return best;
}

/* One that nobody has any more cannot be finished: its space goes. */
static void give_up_orphans(struct tb_catalog *c, uint32_t model)
{
    if (c->recovering || model_at(c, model)->config.is_home) return;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (!lacking(v, model) || !tb_version_reserved(v)) continue;
        bool somewhere = tb_version_whole_elsewhere(c, v);
        EACH_HOLDER(c, v, r)
        {
            const struct reference *ref = reference_at(c, r);
            somewhere = somewhere || (ref->kind == TB_REFERENCE_SITE && ref->has);
        }
        if (!somewhere) tb_version_end(c, i, TB_VERSION_IS_ABANDONED, "no_site_has_it");
    }
}

static bool stands_still(const struct tb_catalog *c, const struct version *v)
{
    return tb_time_since(tb_version_sign(c, v, v->moved_at), c->now) >= c->config.lease_ns;
}

bool tb_version_crossing_stands(const struct tb_catalog *c, const struct version *v)
{
    return tb_version_cross_begun(v) && stands_still(c, v);
}

/* It stands, or nobody can be asked for it any more and it brought nothing for as long. (What home
 * lacks comes from its ranks.) */
bool tb_version_crossing_stuck(const struct tb_catalog *c, const struct version *v)
{
    struct tb_name from[TB_CATALOG_FROM_MAX];
    if (tb_version_cross_begun(v) || model_at(c, v->model)->config.is_home)
        return tb_version_crossing_stands(c, v);
    return stands_still(c, v) && tb_catalog_crossing_from(c, v, from) == 0;
}

/* One that no site can give at the moment, or gives nothing of, holds up no other (P6): sites that
 * complete each other may all lack the same chunk. It goes on when one can. */
static bool begun_and_moving(const struct tb_catalog *c, uint32_t model)
{
    struct tb_name from[TB_CATALOG_FROM_MAX];
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (!lacking(v, model) || !tb_version_cross_begun(v) || tb_version_crossing_stands(c, v)) continue;
        if (tb_catalog_crossing_from(c, v, from) > 0) return true;
    }
    return false;
}

void tb_catalog_crossing_settle(struct tb_catalog *c, uint32_t model)
{
    const struct tb_catalog_model *m = &model_at(c, model)->config;
    if (!m->subscribed && !m->is_home) return;
    give_up_orphans(c, model);
    const uint32_t next = begun_and_moving(c, model) ? NONE : choose(c, model);
    EACH(c->versions, i)
    {
        struct version *v = version_at(c, i);
        if (v->model != model) continue;
        if (v->refused_until <= c->now) v->refused_until = 0;
        if (i == next || !tb_version_cross_asked(v)) continue;
        tb_version_crossing_moves(v, TB_VERSION_CROSSING_UNASKS);
        tb_table_unmark(&c->versions, i, TB_CATALOG_CROSS);
    }
    if (next == NONE || tb_version_cross_asked(version_at(c, next))) return;
    TB_ASSERT(version_at(c, next)->model == model && !version_at(c, next)->whole);
    tb_version_crossing_moves(version_at(c, next), TB_VERSION_CROSSING_ASKS);
    tb_table_mark(&c->versions, next, TB_CATALOG_CROSS);
}

static bool newer_can_cross(const struct tb_catalog *c, const struct version *v)
{
    EACH(c->versions, i)
    {
        const struct version *other = version_at(c, i);
        if (tb_version_older(v, other) && may_cross(c, other, v->model)) return true;
    }
    return false;
}

bool tb_version_crossing_may_end(const struct tb_catalog *c, const struct version *v)
{
    const struct tb_catalog_model *m = &model_at(c, v->model)->config;
    if (!lacking(v, v->model) || !tb_version_cross_begun(v) || v->wanted || v->pinned || m->every ||
        m->is_home)
        return false;
    return newer_can_cross(c, v);
}

tb_time_ns tb_catalog_crossing_deadline(const struct tb_catalog *c)
{
    tb_time_ns at = TB_TIME_NEVER;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (tb_version_lives(v) && !v->whole && v->refused_until != 0 && !tb_version_cross_asked(v) &&
            !tb_version_cross_begun(v))
            at = tb_time_min(at, v->refused_until);
    }
    return at;
}

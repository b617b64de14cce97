/* version_removal.c - the rows of versions: each has a reason to exist, and leaves when it has
 * none.
 *
 * A version that ended, and that nobody holds, is the past: the newest few of a model stay, so that
 * a late question gets its answer. A version that a follower was told of and that no site offers
 * any more is retired: to a later announcement it is new again. Each model has a share of the
 * table; from seven eighths of it on the least useful rows make room ahead of need, so one model
 * takes no row from another (P7).
 *
 * Kept by: tests/unit/catalog/forget.c, each seed of sim/world. */
#include "gateway/catalog/rules/version_removal.h"

#include "base/assert.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"

/* Of a model, ended and held by nobody. */
#define PAST_KEPT 8u

static bool ended(const struct version *v)
{
    return v->life != TB_LIFE_OPEN && !tb_version_lives(v);
}

static bool busy(const struct version *v)
{
    return tb_version_reserved(v) || tb_version_leaves(v) || v->pinned || v->row.todos != 0 ||
           v->unsaved != 0;
}

/* A rank or a worker here has something of it. */
static bool held_inside(const struct tb_catalog *c, const struct version *v)
{
    if (v->workers != NONE) return true;
    EACH_HOLDER(c, v, r) if (reference_at(c, r)->kind == TB_REFERENCE_PUBLISHER) return true;
    return false;
}

/* Nobody takes back hearsay about a site, so hearsay is no reason for a row. */
static bool held_by_peer(const struct tb_catalog *c, const struct version *v)
{
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_SITE && ref->told_in != 0 && (ref->whole || ref->has)) return true;
    }
    return false;
}

static bool waited_for(const struct tb_catalog *c, const struct version *v)
{
    EACH(c->waits, w)
    {
        const struct wait *wait = wait_at(c, w);
        if (wait->q.kind >= TB_CATALOG_WAIT_SITE_HOLDS && tb_id_equal(&wait->q.uid, &v->key.uid)) return true;
    }
    return false;
}

enum tb_version_reason tb_version_reason(const struct tb_catalog *c, const struct version *v)
{
    if (v->row.todos != 0 || v->unsaved != 0) return TB_REASON_TO_SAY;
    if (v->pinned) return TB_REASON_PINNED;
    if (tb_version_reserved(v) || tb_version_leaves(v)) return TB_REASON_HERE;
    if (held_inside(c, v)) return TB_REASON_HELD_INSIDE;
    if (held_by_peer(c, v)) return TB_REASON_HELD_BY_PEER;
    if (waited_for(c, v)) return TB_REASON_WAITED_FOR;
    if (tb_which_is(&model_at(c, v->model)->head, &v->key.uid)) return TB_REASON_HEAD;
    if (v->life == TB_LIFE_OPEN || tb_version_lives(v))
        return c->recovering || model_at(c, v->model)->config.is_home ? TB_REASON_NOT_JUDGED : TB_REASON_NONE;
    return TB_REASON_PAST;
}

/* ---- what leaves ---- */

/* Only sites hold it. */
static void end_references(struct tb_catalog *c, uint32_t version)
{
    const struct version *v = version_at(c, version);
    TB_ASSERT(v->workers == NONE);
    while (v->holders != NONE)
        tb_reference_end(c, v->holders);
}

static void forget(struct tb_catalog *c, uint32_t version)
{
    TB_ASSERT(ended(version_at(c, version)) && !busy(version_at(c, version)));
    end_references(c, version);
    tb_table_free(&c->versions, version);
}

static bool is_past(const struct tb_catalog *c, const struct version *v)
{
    return ended(v) && tb_version_reason(c, v) == TB_REASON_PAST;
}

static void forget_past(struct tb_catalog *c, uint32_t model)
{
    uint32_t count = 0;
    EACH(c->versions, i) count += version_at(c, i)->model == model && is_past(c, version_at(c, i));
    for (; count > PAST_KEPT; count--) {
        uint32_t oldest = NONE;
        EACH(c->versions, i)
        {
            const struct version *v = version_at(c, i);
            if (v->model != model || !is_past(c, v)) continue;
            if (oldest == NONE || tb_version_older(v, version_at(c, oldest))) oldest = i;
        }
        TB_ASSERT(oldest != NONE); /* there are `count` of them */
        forget(c, oldest);
    }
}

/* Told of and not taken: nothing of it is here, and no reader here has it. */
static bool only_told(const struct tb_catalog *c, const struct version *v)
{
    return (v->life == TB_LIFE_OPEN || tb_version_lives(v)) && !tb_version_reserved(v) &&
           !tb_version_leaves(v) && !v->pinned && !held_inside(c, v);
}

static void retire(struct tb_catalog *c, uint32_t version)
{
    TB_ASSERT(only_told(c, version_at(c, version)));
    end_references(c, version); /* at once: their rows are wanted */
    tb_version_end(c, version, TB_VERSION_IS_UNHELD, "no_site_has_it");
}

static bool is_head(const struct tb_catalog *c, const struct version *v)
{
    return tb_which_is(&model_at(c, v->model)->head, &v->key.uid);
}

static void retire_unheld(struct tb_catalog *c, uint32_t model)
{
    if (c->recovering || model_at(c, model)->config.is_home) return;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model == model && only_told(c, v) && !held_by_peer(c, v) && !is_head(c, v)) retire(c, i);
    }
}

/* ---- a share that is nearly full ---- */

/* Retired, and only to be said so: on its way out. */
static bool is_going(const struct version *v)
{
    return v->life == TB_LIFE_UNHELD && v->holders == NONE;
}

/* Ended, and only sites hold it or wait for it. */
static bool may_be_forgotten(const struct tb_catalog *c, const struct version *v)
{
    return ended(v) && !busy(v) && !held_inside(c, v);
}

/* One that would not cross any more, where every version crosses; else any but the newest. */
static bool may_be_retired(const struct tb_catalog *c, const struct version *v)
{
    const struct tb_catalog_model *m = &model_at(c, v->model)->config;
    if (m->is_home || !only_told(c, v) || v->wanted || is_head(c, v)) return false;
    return !m->every || tb_version_newer_here(c, v);
}

static bool may_lose_sites(const struct tb_catalog *c, const struct version *v)
{
    return v->holders != NONE && (may_be_forgotten(c, v) || may_be_retired(c, v));
}

static uint32_t oldest_that(const struct tb_catalog *c, uint32_t model,
                            bool (*is)(const struct tb_catalog *, const struct version *))
{
    uint32_t oldest = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if ((model != NONE && v->model != model) || !is(c, v)) continue;
        if (oldest == NONE || tb_version_older(v, version_at(c, oldest))) oldest = i;
    }
    return oldest;
}

/* Rows of a model beyond which the least useful leave. */
static uint32_t comfortable(const struct tb_catalog *c)
{
    const uint32_t share = c->limits.model_versions;
    return share - (share + 7) / 8;
}

bool tb_version_useless(const struct tb_catalog *c, uint32_t model, const struct tb_version_key *key)
{
    const struct model *m = model_at(c, model);
    const struct version told = {.key = *key, .model = model};
    if (m->config.is_home || tb_versions_of(c, model) < comfortable(c)) return false;
    if (m->config.every) return tb_version_newer_here(c, &told);
    const struct which w = tb_which_of(&told);
    return !tb_id_is_zero(&m->head.uid) && tb_which_compare(&w, &m->head) < 0;
}

static void keep_room(struct tb_catalog *c, uint32_t model)
{
    const uint32_t most = comfortable(c);
    uint32_t used = tb_versions_of(c, model);
    EACH(c->versions, i) used -= version_at(c, i)->model == model && is_going(version_at(c, i));
    for (; used > most; used--) {
        const uint32_t past = oldest_that(c, model, may_be_forgotten);
        const uint32_t told = past == NONE ? oldest_that(c, model, may_be_retired) : NONE;
        if (past != NONE)
            forget(c, past);
        else if (told != NONE)
            retire(c, told); /* its row goes once that is on disk */
        else
            return;
    }
}

void tb_versions_forget(struct tb_catalog *c, uint32_t model)
{
    retire_unheld(c, model);
    forget_past(c, model);
    keep_room(c, model);
}

bool tb_versions_past(const struct tb_catalog *c, uint32_t model)
{
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model == model && !(may_be_forgotten(c, v) && !waited_for(c, v))) return false;
    }
    return true;
}

void tb_versions_forget_past(struct tb_catalog *c, uint32_t model)
{
    TB_ASSERT(tb_versions_past(c, model));
    EACH(c->versions, i) if (version_at(c, i)->model == model) forget(c, i);
}

void tb_versions_make_room(struct tb_catalog *c, uint32_t model)
{
    const bool share_full = tb_versions_of(c, model) >= c->limits.model_versions;
    if (!share_full && c->versions.used < c->versions.cap) return;
    const uint32_t oldest = oldest_that(c, share_full ? model : NONE, may_be_forgotten);
    if (oldest != NONE) forget(c, oldest);
}

bool tb_versions_lose_sites(struct tb_catalog *c, uint32_t except)
{
    const uint32_t oldest = oldest_that(c, NONE, may_lose_sites);
    if (oldest == NONE || oldest == except) return false;
    if (ended(version_at(c, oldest)))
        forget(c, oldest);
    else
        retire(c, oldest);
    return true;
}

/* wait_rules.c - waits for a version or for a site, and the changes that answer them. */
#include "gateway/catalog/rules/wait_rules.h"
#include "base/assert.h"

#include <string.h>

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/record_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"

static void answer_version(struct tb_catalog *c, uint32_t wait, uint32_t version)
{
    const struct version *v = version_at(c, version);
    struct wait *w = wait_at(c, wait);
    TB_ASSERT(tb_version_lives(v));
    w->key = v->key;
    w->bytes = v->bytes;
    w->whole = tb_version_here(v);
    tb_wait_answer(c, wait, TB_OK);
}

/* ---- versions ---- */

/* P2: a version's row may be forgotten, but not how new it is while a worker computes from it. */
static bool newer_than_active(const struct tb_catalog *c, const struct version *v, const struct tb_id *after)
{
    const struct which w = tb_which_of(v);
    EACH(c->members, m)
    {
        const struct which *active = &member_at(c, m)->active;
        if (tb_which_is(active, after)) return tb_which_compare(active, &w) < 0;
    }
    return !tb_id_equal(&v->key.uid, after);
}

static bool newer_than(const struct tb_catalog *c, const struct version *v, const struct tb_id *after)
{
    if (tb_id_is_zero(after)) return true;
    if (v->pinned) return !tb_id_equal(&v->key.uid, after); /* the way back: an operator pinned it */
    const uint32_t i = tb_version_find(c, after);
    if (i == NONE) return newer_than_active(c, v, after);
    const struct version *a = version_at(c, i);
    /* The way back: after a withdrawal any other version is good. */
    return a->life == TB_LIFE_WITHDRAWN || tb_version_older(a, v);
}

static bool coming_here(const struct version *v)
{
    return tb_version_lives(v) && tb_version_reserved(v) && !tb_version_leaves(v);
}

static uint64_t newest_run(const struct tb_catalog *c, uint32_t model)
{
    uint64_t order = 0;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || !tb_version_lives(v) || tb_version_held_back(c, v)) continue;
        if (v->key.run_order > order) order = v->key.run_order;
    }
    return order;
}

static bool satisfies(const struct tb_catalog *c, const struct wait *w, const struct version *v)
{
    if ((model_at(c, v->model)->pin != NONE && !v->pinned) || v->awaits) return false;
    switch (w->q.kind) {
    case TB_CATALOG_WAIT_MINIMUM:
        return tb_version_here(v) && v->key.number >= w->q.number &&
               v->key.run_order == newest_run(c, v->model);
    case TB_CATALOG_WAIT_LATEST:
        return tb_version_here(v) && newer_than(c, v, &w->q.after);
    case TB_CATALOG_WAIT_NEXT:
        return coming_here(v) && newer_than(c, v, &w->q.after);
    default:
        return false;
    }
}

static uint32_t newest_that_satisfies(const struct tb_catalog *c, const struct wait *w, uint32_t model)
{
    uint32_t best = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || !satisfies(c, w, v)) continue;
        if (best == NONE || tb_version_older(version_at(c, best), v)) best = i;
    }
    return best;
}

/* The version that the member's group meets at: its attempt, or after go the group's version. True:
 * *version_out is the only answer there may be (NONE: not yet). */
static bool group_decides(const struct tb_catalog *c, const struct wait *w, uint32_t model,
                          uint32_t *version_out)
{
    const uint32_t member = w->session == NONE ? NONE : tb_member_only(c, w->session, model);
    if (member == NONE) return false;
    const struct member *m = member_at(c, member);
    const struct group *g = group_at(c, m->group);
    const bool in_attempt = !tb_id_is_zero(&g->attempt.uid);
    const struct which *at = in_attempt ? &g->attempt : &g->go;
    if (tb_id_is_zero(&at->uid) || (!in_attempt && tb_which_is(&m->active, &at->uid))) return false;
    const uint32_t v = tb_version_find(c, &at->uid);
    if (v == NONE || !newer_than(c, version_at(c, v), &w->q.after)) return false;
    if (!in_attempt && !satisfies(c, w, version_at(c, v)))
        return false; /* it left: the group meets at another */
    if (in_attempt && w->q.kind == TB_CATALOG_WAIT_MINIMUM && version_at(c, v)->key.number < w->q.number)
        return false;
    *version_out = satisfies(c, w, version_at(c, v)) ? v : NONE;
    return true;
}

static void look_for_newest(struct tb_catalog *c, uint32_t wait)
{
    const struct wait *w = wait_at(c, wait);
    const uint32_t model = tb_catalog_model_find(c, &w->q.model);
    TB_ASSERT(model != NONE); /* it was there when the wait began, and models stay */
    uint32_t v = NONE;
    if (!group_decides(c, w, model, &v)) v = newest_that_satisfies(c, w, model);
    if (v != NONE) answer_version(c, wait, v);
}

/* The newest run that has the number; of several attempts at it the one that did not fail. */
static uint32_t exact_version(const struct tb_catalog *c, uint32_t model, uint64_t run_order, uint64_t number)
{
    uint32_t best = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || v->key.number != number || (run_order != 0 && v->key.run_order != run_order))
            continue;
        if (v->life == TB_LIFE_OPEN || (tb_version_status(c, v) != TB_OK && !v->was_ready)) continue;
        if (tb_version_held_back(c, v)) continue;
        if (best == NONE || tb_version_older(version_at(c, best), v)) best = i;
    }
    return best;
}

static void look_for_exact(struct tb_catalog *c, uint32_t wait)
{
    const struct tb_catalog_wait *q = &wait_at(c, wait)->q;
    const uint32_t i = exact_version(c, tb_catalog_model_find(c, &q->model), q->run_order, q->number);
    if (i == NONE) return;
    struct version *v = version_at(c, i);
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK)
        tb_wait_answer(c, wait, ended);
    else if (tb_version_here(v) && !v->awaits)
        answer_version(c, wait, i);
    else if (!v->wanted && q->deadline > c->now) {
        v->wanted = true;
        tb_catalog_touch_model(c, v->model);
    }
}

/* ---- sites ---- */

static bool own_site(const struct tb_catalog *c, const struct tb_name *site)
{
    return site->text[0] == 0 || tb_catalog_same_name(site, &c->config.site);
}

static bool site_says(const struct tb_catalog *c, const struct wait *w, uint32_t version)
{
    const struct version *v = version_at(c, version);
    const bool activated = w->q.kind == TB_CATALOG_WAIT_SITE_ACTIVATED;
    if (own_site(c, &w->q.site)) return activated ? v->activated_here : tb_version_here(v);
    return tb_record_reached(c, &w->q.site, v, activated);
}

/* Groups that went past a version have no use for it any more: a newer one that is
 * activated counts as well. */
static bool site_reached(const struct tb_catalog *c, const struct wait *w, uint32_t version)
{
    if (site_says(c, w, version)) return true;
    if (w->q.kind != TB_CATALOG_WAIT_SITE_ACTIVATED) return false;
    const struct version *v = version_at(c, version);
    EACH(c->versions, i)
    {
        const struct version *other = version_at(c, i);
        if (other->model == v->model && tb_version_older(v, other) && site_says(c, w, i)) return true;
    }
    return false;
}

static void look_at_site(struct tb_catalog *c, uint32_t wait)
{
    const struct wait *w = wait_at(c, wait);
    const uint32_t i = tb_version_find(c, &w->q.uid);
    if (i == NONE) { /* it was there when the wait began */
        tb_wait_answer(c, wait, TB_SUPERSEDED);
        return;
    }
    /* Retired here, it may still be activated elsewhere; what ended otherwise is not waited for. */
    const enum tb_status ended = tb_version_status(c, version_at(c, i));
    if (site_reached(c, w, i))
        tb_wait_answer(c, wait, TB_OK);
    else if (ended != TB_OK &&
             (tb_version_state(version_at(c, i)) != TB_VERSION_RETIRED || own_site(c, &w->q.site)))
        tb_wait_answer(c, wait, ended);
}

/* ---- all of them ---- */

static void look(struct tb_catalog *c, uint32_t i)
{
    const struct wait *w = wait_at(c, i);
    if (w->q.kind >= TB_CATALOG_WAIT_SITE_HOLDS)
        look_at_site(c, i);
    else if (w->q.kind == TB_CATALOG_WAIT_EXACT)
        look_for_exact(c, i);
    else
        look_for_newest(c, i);
    if (!tb_wait_answered(w) && w->q.deadline <= c->now)
        tb_wait_answer(c, i, w->q.deadline == 0 ? TB_AGAIN : TB_TIMEOUT);
}

void tb_waits_settle(struct tb_catalog *c)
{
    if (!c->waits_touched) return;
    c->waits_touched = false;
    EACH(c->waits, i) if (!tb_wait_answered(wait_at(c, i))) look(c, i);
}

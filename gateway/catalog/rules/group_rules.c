/* group_rules.c - when a group goes: the ranks of one engine get one version and switch together.
 *
 * Promise P2: a group sees one whole version, never a mix, and never backwards unless an operator
 * withdrew the newer one or pinned the older one. The rule is in groups.h above
 * tb_catalog_subscribe; `go` is given in one place, tb_group_settle. */
#include "gateway/catalog/rules/group_rules.h"
#include "base/assert.h"

#include <string.h>

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"

static bool all_staged(const struct tb_catalog *c, uint32_t group, const struct tb_id *uid)
{
    uint32_t staged = 0;
    EACH_MEMBER(c, group, i)
    {
        const struct member *m = member_at(c, i);
        if (tb_which_is(&m->staging, uid) && tb_member_staged_whole(c, m)) staged++;
    }
    TB_ASSERT(staged <= group_at(c, group)->count);
    return staged == group_at(c, group)->count;
}

/* A newer version that is here may replace one that still crosses; never the other way, so members
 * do not chase each other. */
bool tb_group_replaces_attempt(const struct tb_catalog *c, const struct group *g, const struct version *v)
{
    TB_ASSERT(v->model == g->model && !tb_id_is_zero(&g->attempt.uid));
    const struct which w = tb_which_of(v);
    const uint32_t old = tb_version_find(c, &g->attempt.uid);
    return tb_which_compare(&w, &g->attempt) > 0 && tb_version_here(v) && !tb_version_held_back(c, v) &&
           (old == NONE || !tb_version_here(version_at(c, old)));
}

/* P6: a version that still crosses while a newer one is whole here has come to a stand: nobody
 * waits for it. */
static bool overtaken(const struct tb_catalog *c, const struct group *g)
{
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model == g->model && !tb_version_leaves(v) && tb_group_replaces_attempt(c, g, v)) return true;
    }
    return false;
}

/* P2: an operator's pin decides what the group may not stage: a newer version than the pinned one,
 * or, once the pin is gone, one that is older than what the group has. */
static bool may_not_be_staged(const struct tb_catalog *c, const struct group *g)
{
    if (tb_which_held_back(c, g->model, &g->attempt)) return true;
    if (tb_id_is_zero(&g->go.uid) || tb_which_compare(&g->attempt, &g->go) > 0) return false;
    const uint32_t pin = model_at(c, g->model)->pin, had = tb_version_find(c, &g->go.uid);
    if (pin != NONE && tb_which_is(&g->attempt, &version_at(c, pin)->key.uid)) return false;
    return had != NONE && version_at(c, had)->life != TB_LIFE_WITHDRAWN;
}

void tb_group_settle(struct tb_catalog *c, uint32_t group)
{
    struct group *g = group_at(c, group);
    if (!tb_id_is_zero(&g->attempt.uid) && may_not_be_staged(c, g))
        tb_group_attempt_end(c, group, TB_SUPERSEDED, false);
    if (!tb_id_is_zero(&g->attempt.uid) && !all_staged(c, group, &g->attempt.uid) && overtaken(c, g))
        tb_group_attempt_end(c, group, TB_SUPERSEDED, false);
    if (!tb_id_is_zero(&g->attempt.uid) && all_staged(c, group, &g->attempt.uid)) {
        g->go = g->attempt;
        g->go_at = c->now;
        g->go_unpinned = false;
        g->attempt = (struct which){.run_order = 0};
        tb_catalog_touch_model(c, g->model); /* what the group had before is no longer pinned */
    }
    if (tb_id_is_zero(&g->go.uid) || tb_which_held_back(c, g->model, &g->go)) return;
    EACH_MEMBER(c, group, i)
    {
        struct member *m = member_at(c, i);
        if (m->go_told || !tb_which_is(&m->staging, &g->go.uid) || !tb_member_staged_whole(c, m)) continue;
        m->go_told = true;
        tb_table_mark(&c->members, i, TB_CATALOG_GO);
    }
}

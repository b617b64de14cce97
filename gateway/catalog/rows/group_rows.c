/* group_rows.c - reader groups and members as rows: who is one, what each stages, and how an
 * attempt ends. */
#include "gateway/catalog/rows/group_rows.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"

uint32_t tb_member_find(const struct tb_catalog *c, uint32_t session, uint32_t subscription)
{
    EACH_MEMBERSHIP(c, session, i) if (member_at(c, i)->subscription == subscription) return i;
    return NONE;
}

bool tb_member_active(const struct tb_catalog *c, uint32_t session, const struct tb_id *uid)
{
    if (session == NONE) return false; /* it has ended */
    EACH_MEMBERSHIP(c, session, i) if (tb_which_is(&member_at(c, i)->active, uid)) return true;
    return false;
}

uint32_t tb_member_only(const struct tb_catalog *c, uint32_t session, uint32_t model)
{
    uint32_t found = NONE;
    EACH_MEMBERSHIP(c, session, i)
    {
        if (group_at(c, member_at(c, i)->group)->model != model) continue;
        if (found != NONE) return NONE;
        found = i;
    }
    return found;
}

bool tb_member_staged_whole(const struct tb_catalog *c, const struct member *m)
{
    const uint32_t v = tb_id_is_zero(&m->staging.uid) ? NONE : tb_version_find(c, &m->staging.uid);
    const uint32_t r = v == NONE ? NONE : tb_reference_find(c, TB_REFERENCE_WORKER, v, m->session);
    return r != NONE && reference_at(c, r)->whole;
}

bool tb_group_activated(const struct tb_catalog *c, uint32_t group, const struct which *w)
{
    uint32_t there = 0;
    EACH_MEMBER(c, group, i)
    {
        const struct member *m = member_at(c, i);
        if (!tb_id_is_zero(&m->active.uid) && tb_which_compare(&m->active, w) >= 0) there++;
    }
    TB_ASSERT(there <= group_at(c, group)->count);
    return there == group_at(c, group)->count;
}

bool tb_which_withdrawn(const struct tb_catalog *c, const struct which *w)
{
    const uint32_t v = tb_id_is_zero(&w->uid) ? NONE : tb_version_find(c, &w->uid);
    return v != NONE && version_at(c, v)->life == TB_LIFE_WITHDRAWN;
}

/* A member computes only from a version that was marked go, in this life of the catalog or in the
 * one before. P2: of a version that is not known here, a member's word on how new it is moves
 * nobody else: one member could hold its group back for ever. */
void tb_group_adopt(struct tb_catalog *c, uint32_t group, const struct which *w)
{
    struct group *g = group_at(c, group);
    const bool newer = tb_id_is_zero(&g->go.uid) || tb_which_compare(w, &g->go) > 0;
    if (tb_id_is_zero(&w->uid) || tb_version_find(c, &w->uid) == NONE || !newer || tb_which_withdrawn(c, w))
        return;
    if (tb_which_held_back(c, g->model, w)) return; /* the member goes back to the pinned one */
    g->go = *w;
    g->go_at = c->now;
    g->go_unpinned = false;
    if (tb_which_is(&g->attempt, &w->uid)) g->attempt = (struct which){.run_order = 0};
    tb_catalog_touch_group(c, group);
}

void tb_groups_learn(struct tb_catalog *c, uint32_t version)
{
    const struct version *v = version_at(c, version);
    EACH(c->members, i)
    {
        struct member *m = member_at(c, i);
        if (group_at(c, m->group)->model != v->model || !tb_which_is(&m->active, &v->key.uid)) continue;
        m->active = tb_which_of(v);
        tb_group_adopt(c, m->group, &m->active);
    }
}

static void tell(struct tb_catalog *c, uint32_t member, const struct which *w, enum tb_status status)
{
    struct member *m = member_at(c, member);
    TB_ASSERT(!tb_id_is_zero(&w->uid) && status != TB_OK);
    m->tell_uid = w->uid;
    m->tell = status;
    tb_table_mark(&c->members, member, TB_CATALOG_TELL);
}

/* `told`: the version's own end has told its readers already. */
void tb_group_attempt_end(struct tb_catalog *c, uint32_t group, enum tb_status status, bool told)
{
    struct group *g = group_at(c, group);
    TB_ASSERT(status != TB_OK);
    const struct which attempt = g->attempt;
    if (tb_id_is_zero(&attempt.uid)) return;
    g->attempt = (struct which){.run_order = 0};
    EACH_MEMBER(c, group, i)
    {
        struct member *m = member_at(c, i);
        if (!tb_which_is(&m->staging, &attempt.uid)) continue;
        m->staging = (struct which){.run_order = 0};
        m->ended = attempt;
        m->ended_status = status;
        if (!told) tell(c, i, &attempt, status);
    }
    tb_catalog_touch_group(c, group);
}

void tb_groups_version_ended(struct tb_catalog *c, uint32_t version, enum tb_status status)
{
    const struct tb_id *uid = &version_at(c, version)->key.uid;
    TB_ASSERT(status != TB_OK);
    EACH(c->groups, g)
    if (tb_which_is(&group_at(c, g)->attempt, uid)) tb_group_attempt_end(c, g, status, true);
}

void tb_groups_touch(struct tb_catalog *c, uint32_t model)
{
    EACH(c->groups, g) if (group_at(c, g)->model == model) tb_catalog_touch_group(c, g);
}

/* At the end of its group's list, so that members are told in the order of their coming. */
void tb_member_link(struct tb_catalog *c, uint32_t member)
{
    struct member *m = member_at(c, member);
    TB_ASSERT(m->index < group_at(c, m->group)->count);
    uint32_t *at = &group_at(c, m->group)->members;
    while (*at != NONE)
        at = &member_at(c, *at)->group_next;
    *at = member;
    m->group_next = NONE;
    m->session_next = session_at(c, m->session)->members;
    session_at(c, m->session)->members = member;
}

static void unlink_member(struct tb_catalog *c, uint32_t member)
{
    const struct member *m = member_at(c, member);
    uint32_t *at = &group_at(c, m->group)->members;
    while (*at != member)
        at = &member_at(c, *at)->group_next;
    *at = m->group_next;
    at = &session_at(c, m->session)->members;
    while (*at != member)
        at = &member_at(c, *at)->session_next;
    *at = m->session_next;
}

void tb_member_end(struct tb_catalog *c, uint32_t member)
{
    const uint32_t group = member_at(c, member)->group;
    TB_ASSERT(member_at(c, member)->row.live);
    tb_catalog_touch_model(c, group_at(c, group)->model);
    unlink_member(c, member);
    tb_table_free(&c->members, member);
    tb_group_attempt_end(c, group, TB_GROUP_BROKEN, false);
    if (group_at(c, group)->members == NONE) tb_table_free(&c->groups, group);
}

void tb_member_progress(struct tb_catalog *c, uint32_t session, uint32_t version)
{
    const struct tb_id *uid = &version_at(c, version)->key.uid;
    EACH_MEMBERSHIP(c, session, i)
    {
        const struct member *m = member_at(c, i);
        if (tb_which_is(&m->staging, uid)) tb_catalog_touch_group(c, m->group);
    }
}

void tb_member_release(struct tb_catalog *c, uint32_t session, uint32_t version)
{
    const struct tb_id uid = version_at(c, version)->key.uid;
    EACH_MEMBERSHIP(c, session, i)
    {
        struct member *m = member_at(c, i);
        if (!tb_which_is(&m->staging, &uid)) continue;
        m->staging = (struct which){.run_order = 0};
        if (tb_which_is(&group_at(c, m->group)->attempt, &uid))
            tb_group_attempt_end(c, m->group, TB_GROUP_BROKEN, false);
    }
}

void tb_member_retell(struct tb_catalog *c, uint32_t session)
{
    EACH_MEMBERSHIP(c, session, i)
    {
        struct member *m = member_at(c, i);
        for (uint32_t kind = 1; kind < 32; kind++)
            if (m->row.held & (1u << kind)) tb_table_mark(&c->members, i, (enum tb_catalog_todo_kind)kind);
        m->row.held = 0;
        if (m->go_told && !tb_which_is(&m->active, &group_at(c, m->group)->go.uid))
            tb_table_mark(&c->members, i, TB_CATALOG_GO);
    }
}

/* ---- pins ---- */

static bool young(const struct tb_catalog *c, tb_time_ns since)
{
    return tb_time_since(since, c->now) <= c->config.pin_max_ns;
}

bool tb_groups_pin(const struct tb_catalog *c, const struct version *v)
{
    EACH(c->groups, i)
    {
        const struct group *g = group_at(c, i);
        if (tb_which_is(&g->attempt, &v->key.uid) && young(c, g->attempt_at)) return true;
        if (tb_which_is(&g->go, &v->key.uid) && young(c, g->go_at)) return true;
    }
    return false;
}

void tb_groups_unpin(struct tb_catalog *c, uint32_t version)
{
    const struct tb_id *uid = &version_at(c, version)->key.uid;
    TB_ASSERT(tb_version_leaves(version_at(c, version)));
    EACH(c->groups, g)
    {
        if (tb_which_is(&group_at(c, g)->attempt, uid)) tb_group_attempt_end(c, g, TB_PIN_LOST, false);
        if (!tb_which_is(&group_at(c, g)->go, uid) || group_at(c, g)->go_unpinned) continue;
        group_at(c, g)->go_unpinned = true;
        EACH_MEMBER(c, g, m) tell(c, m, &group_at(c, g)->go, TB_PIN_LOST);
    }
}

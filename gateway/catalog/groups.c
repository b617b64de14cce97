/* groups.c - reader groups: the ranks of one engine get one version and switch together.
 *
 * Promise P2: a group sees one whole version, never a mix, and never backwards unless an operator withdrew
 * the newer one. The rule is in catalog.h above tb_catalog_subscribe; `go` is given in one place,
 * group_settle. */
#include "gateway/catalog/tables.h"

#include <string.h>

#include "base/assert.h"

/* A body may not end the one it is at. */
#define EACH_MEMBERSHIP(c, session, m)                                                                       \
    for (uint32_t m = session_at(c, session)->members; m != NONE; m = member_at(c, m)->session_next)
#define EACH_MEMBER(c, group, m)                                                                             \
    for (uint32_t m = group_at(c, group)->members; m != NONE; m = member_at(c, m)->group_next)

static uint32_t member_find(const struct tb_catalog *c, uint32_t session, uint32_t subscription)
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

static uint32_t group_find(const struct tb_catalog *c, uint32_t model, const struct tb_name *name)
{
    EACH(c->groups, i)
    if (group_at(c, i)->model == model && tb_catalog_same_name(&group_at(c, i)->name, name)) return i;
    return NONE;
}

static void tell(struct tb_catalog *c, uint32_t member, const struct which *w, enum tb_status status)
{
    struct member *m = member_at(c, member);
    m->tell_uid = w->uid;
    m->tell = status;
    tb_row_mark(&c->members, member, TB_CATALOG_TELL);
}

/* `told`: the version's own end has told its readers already. */
static void attempt_end(struct tb_catalog *c, uint32_t group, enum tb_status status, bool told)
{
    struct group *g = group_at(c, group);
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
    EACH(c->groups, g) if (tb_which_is(&group_at(c, g)->attempt, uid)) attempt_end(c, g, status, true);
}

/* ---- joining and leaving ---- */

static bool member_valid(const struct tb_catalog_member *q)
{
    return q->subscription > 0 && q->count > 0 && q->index < q->count && tb_name_valid(q->group.text);
}

/* A worker that was started anew comes before the lease of its former self ends. P8: a name and a host are anybody's word, who it is was
 * proven, and with its session goes what it published. */
static bool is_former_self(const struct tb_catalog *c, const struct member *old, uint32_t session)
{
    const struct session *before = session_at(c, old->session);
    const struct session *after = session_at(c, session);
    return old->session != session && !before->attached &&
           strncmp(before->info.identity, after->info.identity, sizeof before->info.identity) == 0 &&
           tb_catalog_same_name(&before->info.name, &after->info.name) &&
           tb_catalog_same_name(&before->info.host, &after->info.host);
}

static enum tb_status free_index(struct tb_catalog *c, uint32_t group, uint32_t index, uint32_t session)
{
    EACH_MEMBER(c, group, i)
    {
        if (member_at(c, i)->index != index) continue;
        if (!is_former_self(c, member_at(c, i), session)) return TB_CONFLICT;
        tb_catalog_session_end(c, member_at(c, i)->session, true);
        break;
    }
    return TB_OK;
}

static uint32_t group_get(struct tb_catalog *c, uint32_t model, const struct tb_catalog_member *q)
{
    uint32_t i = group_find(c, model, &q->group);
    if (i != NONE) return i;
    i = tb_table_new(&c->groups);
    if (i == NONE) return NONE;
    struct group *g = group_at(c, i);
    g->model = model;
    g->name = q->group;
    g->count = q->count;
    g->members = NONE;
    return i;
}

static bool is_withdrawn(const struct tb_catalog *c, const struct which *w)
{
    const uint32_t v = tb_id_is_zero(&w->uid) ? NONE : tb_version_find(c, &w->uid);
    return v != NONE && version_at(c, v)->state == TB_VERSION_ENDED_WITHDRAWN;
}

/* What a member computes from was marked go, if not in this life of the catalog then in the one before. */
static void adopt(struct tb_catalog *c, uint32_t group, const struct which *w)
{
    struct group *g = group_at(c, group);
    const bool newer = tb_id_is_zero(&g->go.uid) || tb_which_compare(w, &g->go) > 0;
    if (tb_id_is_zero(&w->uid) || !newer || is_withdrawn(c, w)) return;
    g->go = *w;
    g->go_at = c->now;
    g->go_unpinned = false;
    if (tb_which_is(&g->attempt, &w->uid)) g->attempt = (struct which){.run_order = 0};
    tb_catalog_touch_group(c, group);
}

/* P2: after a reboot a catalog may not have heard yet of what its workers compute from; they know how new it is. */
static struct which which_of_active(const struct tb_catalog *c, const struct tb_catalog_active *a)
{
    const uint32_t v = tb_id_is_zero(&a->uid) ? NONE : tb_version_find(c, &a->uid);
    if (v != NONE) return tb_which_of(version_at(c, v));
    return (struct which){.uid = a->uid, .run_order = a->run_order, .number = a->number};
}

static enum tb_status same_member(struct tb_catalog *c, uint32_t member, uint32_t model,
                                  const struct tb_catalog_member *q)
{
    struct member *m = member_at(c, member);
    const struct group *g = group_at(c, m->group);
    if (g->model != model || !tb_catalog_same_name(&g->name, &q->group) || g->count != q->count ||
        m->index != q->index)
        return TB_CONFLICT;
    m->active = which_of_active(c, &q->active);
    adopt(c, m->group, &m->active);
    return TB_OK;
}

/* At the end of its group's list, so that members are told in the order of their coming. */
static void link_member(struct tb_catalog *c, uint32_t member)
{
    struct member *m = member_at(c, member);
    uint32_t *at = &group_at(c, m->group)->members;
    while (*at != NONE)
        at = &member_at(c, *at)->group_next;
    *at = member;
    m->group_next = NONE;
    m->session_next = session_at(c, m->session)->members;
    session_at(c, m->session)->members = member;
}

enum tb_status tb_catalog_subscribe(struct tb_catalog *c, tb_time_ns now, const struct tb_catalog_member *q)
{
    tb_catalog_enter(c, now);
    const uint32_t session = tb_catalog_session_find(c, &q->session);
    if (session == NONE) return TB_PEER_LEASE;
    const uint32_t model = tb_model_find(c, &q->model);
    if (model == NONE) return TB_NOT_FOUND;
    if (!member_valid(q)) return TB_BAD_ARGUMENT;
    const uint32_t before = member_find(c, session, q->subscription);
    if (before != NONE) return tb_catalog_settle(c, same_member(c, before, model, q));
    const uint32_t known = group_find(c, model, &q->group);
    if (known != NONE) {
        if (group_at(c, known)->count != q->count) return TB_CONFLICT;
        const enum tb_status freed = free_index(c, known, q->index, session);
        if (freed != TB_OK) return freed;
    }
    const uint32_t i = tb_table_new(&c->members);
    if (i == NONE) return tb_catalog_settle(c, tb_catalog_refuse_full(c, &c->members));
    struct member *m = member_at(c, i);
    m->group = NONE;
    const uint32_t group = group_get(c, model, q);
    if (group == NONE) {
        tb_table_free(&c->members, i);
        return tb_catalog_settle(c, tb_catalog_refuse_full(c, &c->groups));
    }
    m->session = session;
    m->subscription = q->subscription;
    m->group = group;
    m->index = q->index;
    link_member(c, i);
    m->active = which_of_active(c, &q->active);
    adopt(c, group, &m->active);
    tb_catalog_touch_group(c, group);
    tb_catalog_touch_model(c, model);
    return tb_catalog_settle(c, TB_OK);
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
    tb_catalog_touch_model(c, group_at(c, group)->model);
    unlink_member(c, member);
    tb_table_free(&c->members, member);
    attempt_end(c, group, TB_GROUP_BROKEN, false);
    if (group_at(c, group)->members == NONE) tb_table_free(&c->groups, group);
}

static bool staged_by_session(const struct tb_catalog *c, uint32_t session, const struct tb_id *uid)
{
    EACH_MEMBERSHIP(c, session, i) if (tb_which_is(&member_at(c, i)->staging, uid)) return true;
    return false;
}

enum tb_status tb_catalog_unsubscribe(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                      uint32_t subscription)
{
    tb_catalog_enter(c, now);
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t m = member_find(c, s, subscription);
    if (m == NONE) return TB_NOT_FOUND;
    const struct tb_id staging = member_at(c, m)->staging.uid;
    tb_member_end(c, m);
    const uint32_t v = tb_id_is_zero(&staging) ? NONE : tb_version_find(c, &staging);
    const uint32_t r = v == NONE ? NONE : tb_reference_find(c, TB_REFERENCE_WORKER, v, s);
    if (r != NONE && !staged_by_session(c, s, &staging)) tb_reference_end(c, r);
    return tb_catalog_settle(c, TB_OK);
}

/* ---- staging ---- */

static bool backwards(const struct tb_catalog *c, const struct group *g, const struct which *w)
{
    if (tb_id_is_zero(&g->go.uid) || tb_which_compare(w, &g->go) > 0) return false;
    return !is_withdrawn(c, &g->go);
}

/* A newer version that is here may replace one that still crosses; never the other way, so members do not
 * chase each other. */
static bool replaces_attempt(const struct tb_catalog *c, const struct group *g, const struct version *v)
{
    const struct which w = tb_which_of(v);
    const uint32_t old = tb_version_find(c, &g->attempt.uid);
    return tb_which_compare(&w, &g->attempt) > 0 && tb_version_here(v) &&
           (old == NONE || !tb_version_here(version_at(c, old)));
}

static enum tb_status enter_attempt(struct tb_catalog *c, uint32_t group, const struct version *v,
                                    struct tb_id *uid_out)
{
    struct group *g = group_at(c, group);
    const struct which w = tb_which_of(v);
    if (tb_which_is(&g->go, &w.uid)) return TB_OK; /* comes back to what the group has */
    if (backwards(c, g, &w)) return TB_BAD_STATE;
    if (tb_which_is(&g->attempt, &w.uid)) return TB_OK;
    if (!tb_id_is_zero(&g->attempt.uid)) {
        if (!replaces_attempt(c, g, v)) {
            *uid_out = g->attempt.uid;
            return TB_CONFLICT;
        }
        attempt_end(c, group, TB_SUPERSEDED, false);
    }
    g->attempt = w;
    g->attempt_at = c->now;
    return TB_OK;
}

static enum tb_status stage_as(struct tb_catalog *c, uint32_t member, uint32_t version, struct tb_id *uid_out)
{
    struct member *m = member_at(c, member);
    uint32_t r = tb_reference_find(c, TB_REFERENCE_WORKER, version, m->session);
    const bool fresh = r == NONE;
    if (fresh) r = tb_reference_new(c, TB_REFERENCE_WORKER, version, m->session);
    if (r == NONE) return tb_catalog_refuse_full(c, &c->references);
    const enum tb_status entered = enter_attempt(c, m->group, version_at(c, version), uid_out);
    if (entered != TB_OK) {
        if (fresh) tb_reference_end(c, r);
        return entered;
    }
    const struct which w = tb_which_of(version_at(c, version));
    if (!tb_which_is(&m->staging, &w.uid)) m->go_told = false;
    m->staging = w;
    m->ended = (struct which){.run_order = 0};
    reference_at(c, r)->since = c->now;
    tb_catalog_touch_group(c, m->group);
    tb_catalog_touch_version(c, version);
    return TB_OK;
}

enum tb_status tb_catalog_stage(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                uint32_t subscription, const struct tb_id *uid, struct tb_id *uid_out)
{
    tb_catalog_enter(c, now);
    *uid_out = *uid;
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t m = member_find(c, s, subscription);
    const uint32_t i = tb_version_find(c, uid);
    if (m == NONE || i == NONE) return TB_NOT_FOUND;
    const struct version *v = version_at(c, i);
    if (v->model != group_at(c, member_at(c, m)->group)->model) return TB_BAD_ARGUMENT;
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK) return ended;
    if (v->state == TB_VERSION_OPEN) return TB_NOT_FOUND;
    if (v->evicting) return TB_SUPERSEDED;
    return tb_catalog_settle(c, stage_as(c, m, i, uid_out));
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
            attempt_end(c, m->group, TB_GROUP_BROKEN, false);
    }
}

static bool staged_whole(const struct tb_catalog *c, const struct member *m)
{
    const uint32_t v = tb_id_is_zero(&m->staging.uid) ? NONE : tb_version_find(c, &m->staging.uid);
    const uint32_t r = v == NONE ? NONE : tb_reference_find(c, TB_REFERENCE_WORKER, v, m->session);
    return r != NONE && reference_at(c, r)->whole;
}

static bool all_staged(const struct tb_catalog *c, uint32_t group, const struct tb_id *uid)
{
    uint32_t staged = 0;
    EACH_MEMBER(c, group, i)
    {
        const struct member *m = member_at(c, i);
        if (tb_which_is(&m->staging, uid) && staged_whole(c, m)) staged++;
    }
    return staged == group_at(c, group)->count;
}

void tb_groups_touch(struct tb_catalog *c, uint32_t model)
{
    EACH(c->groups, g) if (group_at(c, g)->model == model) tb_catalog_touch_group(c, g);
}

/* P6: what still crosses while a newer one is whole here has come to a stand: nobody waits for it. */
static bool overtaken(const struct tb_catalog *c, const struct group *g)
{
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model == g->model && !v->evicting && replaces_attempt(c, g, v)) return true;
    }
    return false;
}

void tb_group_settle(struct tb_catalog *c, uint32_t group)
{
    struct group *g = group_at(c, group);
    if (!tb_id_is_zero(&g->attempt.uid) && !all_staged(c, group, &g->attempt.uid) && overtaken(c, g))
        attempt_end(c, group, TB_SUPERSEDED, false);
    if (!tb_id_is_zero(&g->attempt.uid) && all_staged(c, group, &g->attempt.uid)) {
        g->go = g->attempt;
        g->go_at = c->now;
        g->go_unpinned = false;
        g->attempt = (struct which){.run_order = 0};
        tb_catalog_touch_model(c, g->model); /* what the group had before is no longer pinned */
    }
    if (tb_id_is_zero(&g->go.uid)) return;
    EACH_MEMBER(c, group, i)
    {
        struct member *m = member_at(c, i);
        if (m->go_told || !tb_which_is(&m->staging, &g->go.uid) || !staged_whole(c, m)) continue;
        m->go_told = true;
        tb_row_mark(&c->members, i, TB_CATALOG_GO);
    }
}

/* ---- switching ---- */

static enum tb_status activate_go(const struct tb_catalog *c, const struct group *g, const struct member *m)
{
    if (is_withdrawn(c, &g->go)) return TB_VERSION_WITHDRAWN;
    if (tb_which_is(&m->active, &g->go.uid)) return TB_OK;
    if (!tb_which_is(&m->staging, &g->go.uid)) return TB_BAD_STATE;
    return m->go_told ? TB_OK : TB_AGAIN;
}

enum tb_status tb_catalog_activate(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                   uint32_t subscription, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = member_find(c, s, subscription);
    if (i == NONE) return TB_NOT_FOUND;
    const struct member *m = member_at(c, i);
    const struct group *g = group_at(c, m->group);
    if (tb_which_is(&g->go, uid)) return activate_go(c, g, m);
    const uint32_t v = tb_version_find(c, uid);
    const enum tb_status ended = v == NONE ? TB_NOT_FOUND : tb_version_status(c, version_at(c, v));
    if (ended != TB_OK && ended != TB_SUPERSEDED) return ended;
    if (tb_which_is(&g->attempt, uid) && tb_which_is(&m->staging, uid)) return TB_AGAIN;
    if (tb_which_is(&m->ended, uid)) return m->ended_status;
    return TB_BAD_STATE;
}

static struct tb_catalog_obstacle_view obstacle(enum tb_catalog_obstacle kind, const struct group *g,
                                                const struct which *other)
{
    return (struct tb_catalog_obstacle_view){kind, g->name, other->run_order, other->number};
}

struct tb_catalog_obstacle_view tb_catalog_obstacle_of(const struct tb_catalog *c,
                                                       const struct tb_id *session, uint32_t subscription,
                                                       const struct tb_id *uid)
{
    const uint32_t s = tb_catalog_session_find(c, session);
    const uint32_t i = s == NONE ? NONE : member_find(c, s, subscription);
    if (i == NONE) return (struct tb_catalog_obstacle_view){.kind = TB_OBSTACLE_NONE};
    const struct member *m = member_at(c, i);
    const struct group *g = group_at(c, m->group);
    const uint32_t v = tb_version_find(c, uid);
    struct which w = {.uid = *uid};
    if (v != NONE) w = tb_which_of(version_at(c, v));
    if (!tb_which_is(&g->go, uid) && backwards(c, g, &w)) return obstacle(TB_OBSTACLE_NEWER, g, &g->go);
    if (!tb_id_is_zero(&g->attempt.uid) && !tb_which_is(&g->attempt, uid))
        return obstacle(TB_OBSTACLE_ATTEMPT, g, &g->attempt);
    if (!tb_id_is_zero(&m->staging.uid) && !tb_which_is(&m->staging, uid))
        return obstacle(TB_OBSTACLE_STAGED, g, &m->staging);
    return obstacle(TB_OBSTACLE_NOT_STAGED, g, &(struct which){.run_order = 0});
}

enum tb_status tb_catalog_activated(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                    uint32_t subscription, const struct tb_catalog_active *active)
{
    tb_catalog_enter(c, now);
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = member_find(c, s, subscription);
    if (i == NONE || tb_id_is_zero(&active->uid)) return TB_NOT_FOUND;
    struct member *m = member_at(c, i);
    const struct group *g = group_at(c, m->group);
    m->active = tb_which_is(&g->go, &active->uid) ? g->go : which_of_active(c, active);
    adopt(c, m->group, &m->active);
    tb_catalog_touch_model(c, g->model);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_updated(struct tb_catalog *c, const struct tb_id *session, uint32_t subscription,
                                  const struct tb_catalog_update *update)
{
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = member_find(c, s, subscription);
    if (i == NONE) return TB_NOT_FOUND;
    struct member *m = member_at(c, i);
    if (tb_id_is_zero(&update->uid) || !tb_which_is(&m->active, &update->uid)) return TB_BAD_STATE;
    m->update = *update;
    return TB_OK;
}

bool tb_catalog_update_get(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                           struct tb_catalog_update *out)
{
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return false;
    EACH_MEMBERSHIP(c, s, i)
    {
        const struct member *m = member_at(c, i);
        if (!tb_which_is(&m->active, uid) || !tb_which_is(&m->active, &m->update.uid)) continue;
        *out = m->update;
        return true;
    }
    return false;
}

bool tb_catalog_updated_by(const struct tb_catalog *c, const struct tb_name *model, uint8_t way)
{
    EACH(c->members, i)
    {
        const struct member *m = member_at(c, i);
        if (m->update.way != way || !tb_which_is(&m->active, &m->update.uid)) continue;
        if (tb_name_equal(&model_at(c, group_at(c, m->group)->model)->config.name, model)) return true;
    }
    return false;
}

bool tb_group_activated(const struct tb_catalog *c, uint32_t group, const struct which *w)
{
    uint32_t there = 0;
    EACH_MEMBER(c, group, i)
    {
        const struct member *m = member_at(c, i);
        if (!tb_id_is_zero(&m->active.uid) && tb_which_compare(&m->active, w) >= 0) there++;
    }
    return there == group_at(c, group)->count;
}

void tb_member_retell(struct tb_catalog *c, uint32_t session)
{
    EACH_MEMBERSHIP(c, session, i)
    {
        struct member *m = member_at(c, i);
        for (uint32_t kind = 1; kind < 32; kind++)
            if (m->row.held & (1u << kind)) tb_row_mark(&c->members, i, (enum tb_catalog_todo_kind)kind);
        m->row.held = 0;
        if (m->go_told && !tb_which_is(&m->active, &group_at(c, m->group)->go.uid))
            tb_row_mark(&c->members, i, TB_CATALOG_GO);
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
    EACH(c->groups, g)
    {
        if (tb_which_is(&group_at(c, g)->attempt, uid)) attempt_end(c, g, TB_PIN_LOST, false);
        if (!tb_which_is(&group_at(c, g)->go, uid) || group_at(c, g)->go_unpinned) continue;
        group_at(c, g)->go_unpinned = true;
        EACH_MEMBER(c, g, m) tell(c, m, &group_at(c, g)->go, TB_PIN_LOST);
    }
}

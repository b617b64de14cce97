/* groups.c - what members of reader groups ask: to join, to stage, to switch, to leave. When a
 * group goes: group_rules.c. */
#include "gateway/catalog/groups.h"

#include <string.h>

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/group_rules.h"
#include "gateway/catalog/rules/settle.h"

static uint32_t group_find(const struct tb_catalog *c, uint32_t model, const struct tb_name *name)
{
    EACH(c->groups, i)
    if (group_at(c, i)->model == model && tb_catalog_same_name(&group_at(c, i)->name, name)) return i;
    return NONE;
}

/* ---- joining and leaving ---- */

static bool member_valid(const struct tb_catalog_member *q)
{
    return q->subscription > 0 && q->count > 0 && q->index < q->count && tb_name_valid(q->group.text);
}

/* A worker that was started anew comes before the lease of its former self ends. P8: a name and a
 * host are anybody's word, who it is was proven, and with its session goes what it published. */
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

static uint32_t group_get(struct tb_catalog *c, uint32_t model, uint32_t session,
                          const struct tb_catalog_member *q)
{
    uint32_t i = group_find(c, model, &q->group);
    if (i != NONE) return i;
    i = tb_table_new_for(c, &c->groups, session);
    if (i == NONE) return NONE;
    struct group *g = group_at(c, i);
    g->model = model;
    g->name = q->group;
    memcpy(g->owner, q->owner, sizeof g->owner);
    g->count = q->count;
    g->members = NONE;
    return i;
}

/* P2: after a reboot a catalog may not have heard yet of what its workers compute from. Nothing
 * that is older than a worker's own word takes that worker back. */
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
    tb_group_adopt(c, m->group, &m->active);
    return TB_OK;
}

enum tb_status tb_catalog_subscribe(struct tb_catalog *c, tb_time_ns now, const struct tb_catalog_member *q)
{
    tb_catalog_enter(c, now);
    const uint32_t session = tb_catalog_session_find(c, &q->session);
    if (session == NONE) return TB_PEER_LEASE;
    const uint32_t model = tb_catalog_model_find(c, &q->model);
    if (model == NONE) return TB_NOT_FOUND;
    if (!member_valid(q)) return TB_BAD_ARGUMENT;
    const uint32_t before = tb_member_find(c, session, q->subscription);
    if (before != NONE) return tb_catalog_settle(c, same_member(c, before, model, q));
    const uint32_t known = group_find(c, model, &q->group);
    if (known != NONE) {
        if (strncmp(group_at(c, known)->owner, q->owner, sizeof q->owner) != 0) return TB_PEER_DENIED;
        if (group_at(c, known)->count != q->count) return TB_CONFLICT;
        const enum tb_status freed = free_index(c, known, q->index, session);
        if (freed != TB_OK) return freed;
    }
    const uint32_t i = tb_table_new_for(c, &c->members, session);
    if (i == NONE) return tb_catalog_settle(c, tb_catalog_refuse_full(c, &c->members));
    struct member *m = member_at(c, i);
    m->group = NONE;
    const uint32_t group = group_get(c, model, session, q);
    if (group == NONE) {
        tb_table_free(&c->members, i);
        return tb_catalog_settle(c, tb_catalog_refuse_full(c, &c->groups));
    }
    m->session = session;
    m->subscription = q->subscription;
    m->group = group;
    m->index = q->index;
    tb_member_link(c, i);
    m->active = which_of_active(c, &q->active);
    tb_group_adopt(c, group, &m->active);
    tb_catalog_touch_group(c, group);
    tb_catalog_touch_model(c, model);
    return tb_catalog_settle(c, TB_OK);
}

const char *tb_catalog_group_owner(const struct tb_catalog *c, const struct tb_name *model,
                                   const struct tb_name *group)
{
    const uint32_t m = tb_catalog_model_find(c, model);
    const uint32_t g = m == NONE ? NONE : group_find(c, m, group);
    return g == NONE ? NULL : group_at(c, g)->owner;
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
    const uint32_t m = tb_member_find(c, s, subscription);
    if (m == NONE) return TB_NOT_FOUND;
    const struct tb_id staging = member_at(c, m)->staging.uid;
    tb_member_end(c, m);
    const uint32_t v = tb_id_is_zero(&staging) ? NONE : tb_version_find(c, &staging);
    const uint32_t r = v == NONE ? NONE : tb_reference_find(c, TB_REFERENCE_WORKER, v, s);
    if (r != NONE && !staged_by_session(c, s, &staging)) tb_reference_end(c, r);
    return tb_catalog_settle(c, TB_OK);
}

/* ---- staging ---- */

static bool is_after(const struct tb_catalog *c, const struct which *at, const struct which *w)
{
    return !tb_id_is_zero(&at->uid) && tb_which_compare(w, at) <= 0 && !tb_which_withdrawn(c, at);
}

/* An operator sends all readers there. */
static bool is_pinned(const struct tb_catalog *c, uint32_t model, const struct which *w)
{
    const uint32_t pin = model_at(c, model)->pin;
    return pin != NONE && tb_which_is(w, &version_at(c, pin)->key.uid);
}

static bool backwards(const struct tb_catalog *c, const struct group *g, const struct which *w)
{
    return is_after(c, &g->go, w) && !is_pinned(c, g->model, w);
}

/* By its own word on a version that is not known here. Where the version is known, its group's go
 * is what counts. */
static bool member_backwards(const struct tb_catalog *c, const struct member *m, const struct which *w)
{
    return tb_version_find(c, &m->active.uid) == NONE && is_after(c, &m->active, w) &&
           !is_pinned(c, group_at(c, m->group)->model, w);
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
        if (!tb_group_replaces_attempt(c, g, v)) {
            *uid_out = g->attempt.uid;
            return TB_CONFLICT;
        }
        tb_group_attempt_end(c, group, TB_SUPERSEDED, false);
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
    const struct which wanted = tb_which_of(version_at(c, version));
    const enum tb_status entered = member_backwards(c, m, &wanted)
                                       ? TB_BAD_STATE
                                       : enter_attempt(c, m->group, version_at(c, version), uid_out);
    if (entered != TB_OK) {
        if (fresh) tb_reference_end(c, r);
        return entered;
    }
    if (!tb_which_is(&m->staging, &wanted.uid)) m->go_told = false;
    m->staging = wanted;
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
    const uint32_t m = tb_member_find(c, s, subscription);
    const uint32_t i = tb_version_find(c, uid);
    if (m == NONE || i == NONE) return TB_NOT_FOUND;
    const struct version *v = version_at(c, i);
    if (v->model != group_at(c, member_at(c, m)->group)->model) return TB_BAD_ARGUMENT;
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK) return ended;
    if (v->life == TB_LIFE_OPEN) return TB_NOT_FOUND;
    if (tb_version_leaves(v)) return TB_SUPERSEDED;
    if (tb_version_held_back(c, v)) {
        *uid_out = version_at(c, model_at(c, v->model)->pin)->key.uid;
        return TB_CONFLICT;
    }
    return tb_catalog_settle(c, stage_as(c, m, i, uid_out));
}

/* ---- switching ---- */

static enum tb_status activate_go(const struct tb_catalog *c, const struct group *g, const struct member *m)
{
    if (tb_which_withdrawn(c, &g->go)) return TB_VERSION_WITHDRAWN;
    if (tb_which_is(&m->active, &g->go.uid)) return TB_OK;
    if (tb_which_held_back(c, g->model, &g->go)) return TB_SUPERSEDED;
    if (!tb_which_is(&m->staging, &g->go.uid)) return TB_BAD_STATE;
    return m->go_told ? TB_OK : TB_AGAIN;
}

enum tb_status tb_catalog_activate(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                   uint32_t subscription, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = tb_member_find(c, s, subscription);
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
    const uint32_t i = s == NONE ? NONE : tb_member_find(c, s, subscription);
    if (i == NONE) return (struct tb_catalog_obstacle_view){.kind = TB_OBSTACLE_NONE};
    const struct member *m = member_at(c, i);
    const struct group *g = group_at(c, m->group);
    const uint32_t v = tb_version_find(c, uid);
    struct which w = {.uid = *uid};
    if (v != NONE) w = tb_which_of(version_at(c, v));
    if (!tb_which_is(&g->go, uid) && backwards(c, g, &w)) return obstacle(TB_OBSTACLE_NEWER, g, &g->go);
    if (member_backwards(c, m, &w)) return obstacle(TB_OBSTACLE_UNKNOWN, g, &m->active);
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
    const uint32_t i = tb_member_find(c, s, subscription);
    if (i == NONE || tb_id_is_zero(&active->uid)) return TB_NOT_FOUND;
    struct member *m = member_at(c, i);
    const struct group *g = group_at(c, m->group);
    m->active = tb_which_is(&g->go, &active->uid) ? g->go : which_of_active(c, active);
    tb_group_adopt(c, m->group, &m->active);
    tb_catalog_touch_model(c, g->model);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_updated(struct tb_catalog *c, const struct tb_id *session, uint32_t subscription,
                                  const struct tb_catalog_update *update)
{
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = tb_member_find(c, s, subscription);
    if (i == NONE) return TB_NOT_FOUND;
    struct member *m = member_at(c, i);
    if (tb_id_is_zero(&update->uid) || !tb_which_is(&m->active, &update->uid)) return TB_BAD_STATE;
    m->update = *update;
    return TB_OK;
}

enum tb_status tb_catalog_proven(struct tb_catalog *c, const struct tb_id *session, uint32_t subscription,
                                 const struct tb_catalog_proof *proof, bool *alarm_out)
{
    const uint32_t s = tb_catalog_session_find(c, session);
    *alarm_out = false;
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = tb_member_find(c, s, subscription);
    if (i == NONE) return TB_NOT_FOUND;
    struct member *m = member_at(c, i);
    if (!tb_id_equal(&m->active.uid, &proof->uid)) return TB_BAD_STATE; /* zero: it computes from none */
    const bool same = m->proof.bad > 0 && tb_id_equal(&m->proof.uid, &proof->uid) &&
                      strcmp(m->proof.tensor, proof->tensor) == 0;
    *alarm_out = proof->bad > 0 && !same;
    m->proof = *proof;
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

/* catalog_todos.c - what the catalog wants done, one function each, and what follows once a
 * version's state is durable. */
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/daemon/catalog_todos.h"
#include "gateway/daemon/copies/adoption.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/copies/shard_files.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/links/crossings.h"
#include "gateway/daemon/links/link_reports.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/sessions/session_follow.h"
#include "gateway/daemon/sessions/session_news.h"
#include "gateway/daemon/sessions/session_plan.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/daemon/sessions/session_unpublish.h"
#include "gateway/daemon/sessions/sessions.h"

static void session_lost(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    TB_ASSERT(todo->kind == TB_CATALOG_SESSION_LOST && !tb_id_is_zero(&todo->session));
    struct tb_worker_session *s = tb_worker_find(d, &todo->session);
    d->counters.sessions_lost++;
    tb_log(TB_LOG_WARN, "session.lost", "worker=%s reason=lease action=replan", todo->name.text);
    if (s != NULL) tb_worker_over(s, TB_PEER_LEASE);
}

static void evict(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    TB_ASSERT(todo->kind == TB_CATALOG_EVICT && !tb_id_is_zero(&todo->uid));
    struct tb_copy *copy = tb_copy_find(d, &todo->uid);
    if (copy != NULL) {
        /* Peers hear that the copy is gone, and not why where this site alone decided. */
        tb_copy_evict(copy, todo->withdrawn_here ? TB_SUPERSEDED : todo->status);
        return;
    }
    TB_MOOT(tb_catalog_evicted(d->catalog, tb_clock_now(), &todo->uid)); /* nothing of it was here */
}

/* A version whose model is being adopted comes out again. */
static void cross(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    TB_ASSERT(todo->kind == TB_CATALOG_CROSS && !tb_id_is_zero(&todo->key.uid));
    if (tb_adopt_holds(d, &todo->key))
        TB_MOOT(tb_catalog_crossing_refused(d->catalog, tb_clock_now(), &todo->key.uid));
    else
        tb_crossing_start(d, todo);
}

static void plan_end(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    (void)d;
    tb_log(TB_LOG_INFO, "plan.none", "worker=%s plan=%llu reason=no_source action=wait", todo->name.text,
           (unsigned long long)todo->plan);
}

static void todo_do(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    switch (todo->kind) {
    case TB_CATALOG_PERSIST_RUN:
    case TB_CATALOG_PERSIST_VERSION:
    case TB_CATALOG_PERSIST_POINTER:
        break; /* tb_todo_durable: persist.c has them */
    case TB_CATALOG_LAND_FROM:
        tb_home_landing_from(d, todo);
        break;
    case TB_CATALOG_LAND_END:
        tb_home_landing_end(d, todo);
        break;
    case TB_CATALOG_CROSS:
        cross(d, todo);
        break;
    case TB_CATALOG_EVICT:
        evict(d, todo);
        break;
    case TB_CATALOG_SITE_STATE:
        tb_crossing_site_state(d, todo);
        break;
    case TB_CATALOG_SESSION_LOST:
        session_lost(d, todo);
        break;
    case TB_CATALOG_TELL:
        tb_worker_tell(d, todo);
        break;
    case TB_CATALOG_GO:
        tb_worker_go(d, todo);
        break;
    case TB_CATALOG_PLAN:
        tb_worker_plan(d, todo);
        break;
    case TB_CATALOG_PLAN_END:
        plan_end(d, todo);
        break;
    case TB_CATALOG_ANSWER:
        tb_worker_answer(d, todo);
        break;
    case TB_CATALOG_UNPUBLISHED:
        tb_worker_unpublished(d, todo);
        break;
    }
}

/* P10: its log line tells the doing of its worker, which may be gone behind it. */
void tb_todo_do(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    TB_ASSERT(d->turning && !tb_todo_durable(todo));
    struct tb_identity identity;
    const struct tb_worker_session *s = tb_worker_find(d, &todo->session);
    if (s != NULL) identity = s->identity;
    const struct tb_log_party before =
        tb_log_party_set((struct tb_log_party){.identity = s != NULL ? &identity : NULL});
    todo_do(d, todo);
    (void)tb_log_party_set(before);
}

static void version_changed(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    static const struct {
        enum tb_catalog_state state;
        enum tb_log_level level;
        size_t counter;
    } rows[] = {
        {TB_VERSION_READY, TB_LOG_INFO, offsetof(struct tb_counters, versions_ready)},
        {TB_VERSION_KEPT, TB_LOG_INFO, offsetof(struct tb_counters, versions_kept)},
        {TB_VERSION_ENDED_LOST, TB_LOG_ERROR, offsetof(struct tb_counters, versions_lost)},
        {TB_VERSION_ENDED_BROKEN, TB_LOG_ERROR, offsetof(struct tb_counters, versions_broken)},
        {TB_VERSION_ENDED_WITHDRAWN, TB_LOG_WARN, offsetof(struct tb_counters, versions_withdrawn)},
        {TB_VERSION_ENDED_ABANDONED, TB_LOG_INFO, offsetof(struct tb_counters, versions_abandoned)},
    };
    enum tb_log_level level = TB_LOG_INFO;
    TB_ASSERT(todo->kind == TB_CATALOG_PERSIST_VERSION && !tb_id_is_zero(&todo->key.uid));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].state != todo->state) continue;
        level = rows[i].level;
        ++*(uint64_t *)((char *)&d->counters + rows[i].counter);
    }
    char uid[TB_HEX_CHARS];
    tb_id_format(&todo->key.uid, uid);
    struct tb_log_line l;
    tb_log_begin(&l, level, "version.state");
    tb_log_str(&l, "model", todo->key.model.text);
    tb_log_u64(&l, "run", todo->key.run_order);
    tb_log_u64(&l, "number", todo->key.number);
    tb_log_str(&l, "uid", uid);
    tb_log_str(&l, "state", tb_catalog_state_name(todo->state));
    if (todo->why != NULL && todo->why[0] != '\0') tb_log_str(&l, "why", todo->why);
    if (todo->name.text[0] != '\0') {
        tb_log_str(&l, "rank", todo->name.text);
        if (todo->shard != TB_CATALOG_ALL_SHARDS) tb_log_u64(&l, "shard", todo->shard);
    }
    if (todo->who != NULL && todo->who[0] != '\0') tb_log_str(&l, "who", todo->who);
    tb_log_end(&l);
}

/* As it is now: what was retired when the row was written may be offered again. */
static void follow_end(struct tb_copy *copy)
{
    struct tb_catalog_version_view view;
    enum tb_status ended = TB_SUPERSEDED; /* forgotten */
    if (tb_catalog_version_get(copy->d->catalog, &copy->key.uid, &view))
        ended = tb_catalog_state_status(view.state);
    if (ended != TB_OK) tb_copy_ended(copy, ended);
}

/* The consequences here of a version's new state, besides the todos that the catalog makes
 * itself. */
static void version_follow(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_copy *copy = tb_copy_find(d, &todo->key.uid);
    if (todo->state == TB_VERSION_ENDED_WITHDRAWN) {
        tb_withdrawn_add(d, &todo->key, todo->withdrawn_here);
        if (!todo->withdrawn_here && tb_peer_links(d) != NULL)
            TB_MOOT(tb_links_withdrawn(d->links, &todo->key));
    }
    if (copy != NULL) follow_end(copy);
    if (copy == NULL || (todo->state != TB_VERSION_READY && todo->state != TB_VERSION_KEPT)) return;
    copy->key = todo->key;
    tb_copy_serving_step(&copy->serving, TB_COPY_IS_READY);
    tb_shard_files_free(&copy->files);
    tb_copy_serve(copy);
}

void tb_todo_saved(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    version_changed(d, todo);
    version_follow(d, todo);
}

bool tb_todo_durable(const struct tb_catalog_todo *todo)
{
    return todo->kind == TB_CATALOG_PERSIST_RUN || todo->kind == TB_CATALOG_PERSIST_VERSION ||
           todo->kind == TB_CATALOG_PERSIST_POINTER;
}

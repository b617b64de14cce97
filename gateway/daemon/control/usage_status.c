/* usage_status.c - how full this gateway's tables are: in `status`, and one line when one of them
 * refuses a row (P10).
 *
 * A table of the catalog, of the links or of this folder is a `struct usage` here,
 * whichever part counts it. */
#include "gateway/catalog/usage.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/daemon.h"

#include <jansson.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/control/usage_status.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/live/live_asks.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/daemon/sessions/session_unpublish.h"
#include "gateway/daemon/sessions/sessions.h"
#include "intra/fabric/fabric_exports.h"
#include "wan/link/links_table_counts.h"
#include "wan/send/encoded_chunks.h"

#define SPENT_TOLD_EVERY TB_SECONDS(10)

struct usage {
    const char *name;
    uint64_t used, most, bound, refused;
    uint64_t spent; /* of those refused: its user had its share, and there was room */
};

/* Of each of its users, by identity, model or peer: how many rows it has. A failed allocation
 * leaves some out. */
typedef void (*users_fn)(struct tb_daemon *d, json_t *users);

static void user_add(json_t *users, const char *name, uint64_t rows)
{
    const json_int_t before = json_integer_value(json_object_get(users, name));
    TB_MOOT(json_object_set_new_nocheck(users, name, json_integer(before + (json_int_t)rows)));
}

static void user_add_identity(json_t *users, const struct tb_identity *identity, uint64_t rows)
{
    char name[TB_URI_BYTES_MAX];
    tb_identity_format(identity, name);
    if (rows != 0) user_add(users, name, rows);
}

static uint64_t users_most(const json_t *users, char who_out[TB_CATALOG_TEXT_MAX])
{
    uint64_t most = 0;
    const char *name;
    json_t *rows;
    json_object_foreach((json_t *)users, name, rows)
    {
        if ((uint64_t)json_integer_value(rows) <= most) continue;
        most = (uint64_t)json_integer_value(rows);
        (void)snprintf(who_out, TB_CATALOG_TEXT_MAX, "%.*s", TB_CATALOG_TEXT_MAX - 1, name);
    }
    return most;
}

static struct usage of_gauge(const struct tb_gauge *g, uint64_t bound)
{
    TB_ASSERT(g->used <= g->most);
    return (struct usage){
        .used = g->used, .most = g->most, .bound = bound, .refused = g->refused, .spent = g->spent};
}

/* ---- of this folder: each says how full it is, and who uses most of it ---- */

static struct usage connections(struct tb_daemon *d)
{
    return of_gauge(&d->connections, tb_sessions_max(d));
}

static void connections_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        user_add_identity(users, &s->identity, 1);
}

/* Of workers and of links: what came of frames that are not whole yet. */
static struct usage partial_frames(struct tb_daemon *d)
{
    const struct tb_wire_budget *b = &d->session_limits.partial;
    return (struct usage){.used = b->used,
                          .most = b->most,
                          .bound = TB_PARTIAL_BYTES_MAX,
                          .refused = b->refused,
                          .spent = b->spent};
}

static void partial_frames_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        if (s->wire != NULL) user_add_identity(users, &s->identity, tb_wire_in_bytes(s->wire));
}

static struct usage worker_exports(struct tb_daemon *d)
{
    return of_gauge(&d->worker_exports, d->bounds.references);
}

static void worker_exports_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next)
            user_add_identity(users, &s->identity, 1);
}

static void held_replies_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        user_add_identity(users, &s->identity, s->held_replies);
}

static void parked_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_parked_seal *p = d->parked; p != NULL; p = p->next) {
        const struct tb_worker_session *s = tb_worker_find(d, &p->session);
        if (s != NULL) user_add_identity(users, &s->identity, p->bytes);
    }
}

static void copies_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next)
        user_add(users, c->key.model.text, 1);
}

static void exports_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next)
        if (c->export_id != 0) user_add(users, c->key.model.text, 1);
}

struct readers {
    struct tb_daemon *d;
    json_t *users;
};

static void token_user(void *user, const struct tb_fingerprint *reader)
{
    const struct readers *r = user;
    const struct tb_worker_session *s = r->d->sessions;
    while (s != NULL && memcmp(&s->endpoint.fingerprint, reader, sizeof *reader) != 0)
        s = s->next;
    if (s != NULL) user_add_identity(r->users, &s->identity, 1);
}

static void tokens_users(struct tb_daemon *d, json_t *users)
{
    tb_fabric_tokens(d->fabric, token_user, &(struct readers){d, users});
}

static void session_user(void *user, const struct tb_id *session)
{
    const struct readers *r = user;
    const struct tb_worker_session *s = tb_worker_find(r->d, session);
    if (s != NULL) user_add_identity(r->users, &s->identity, 1);
}

/* This gateway reads under the name of its own site. */
static void grants_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_grant_wait *g = d->grants.first; g != NULL; g = g->next) {
        if (tb_id_is_zero(&g->reader))
            user_add(users, d->site.text, 1);
        else
            session_user(&(struct readers){d, users}, &g->reader);
    }
}

static void store_rows_users(struct tb_daemon *d, json_t *users)
{
    uint32_t cursor = 0;
    const char *model;
    while ((model = tb_persist_waiting_at(d, &cursor)) != NULL)
        if (model[0] != '\0') user_add(users, model, 1);
}

static void audit_rows_users(struct tb_daemon *d, json_t *users)
{
    uint32_t cursor = 0;
    const char *identity;
    while ((identity = tb_audit_row_at(d, &cursor)) != NULL)
        user_add(users, identity, 1);
}

static void audit_sums_users(struct tb_daemon *d, json_t *users)
{
    uint32_t cursor = 0;
    const char *identity;
    while ((identity = tb_audit_sum_at(d, &cursor)) != NULL)
        user_add(users, identity, 1);
}

static void control_clients_users(struct tb_daemon *d, json_t *users)
{
    uint32_t cursor = 0;
    const struct tb_identity *identity;
    while (d->control != NULL && (identity = tb_control_asker_at(d->control, &cursor)) != NULL)
        user_add_identity(users, identity, 1);
}

static void control_read_clients_users(struct tb_daemon *d, json_t *users)
{
    uint32_t cursor = 0;
    const struct tb_identity *identity;
    while (d->control_read != NULL && (identity = tb_control_asker_at(d->control_read, &cursor)) != NULL)
        user_add_identity(users, identity, 1);
}

static struct usage copies(struct tb_daemon *d)
{
    return of_gauge(&d->copies_used, d->bounds.versions);
}

static struct usage grants(struct tb_daemon *d)
{
    return of_gauge(&d->grants.gauge, d->bounds.references);
}

static struct usage parked_seals(struct tb_daemon *d)
{
    return of_gauge(&d->parked_bytes, tb_seals_max());
}

static struct usage store_rows(struct tb_daemon *d)
{
    struct tb_persist_usage u;
    tb_persist_usage(d, &u);
    return of_gauge(&u.rows, u.rows_max);
}

static struct usage audit_rows(struct tb_daemon *d)
{
    struct tb_audit_usage u;
    tb_audit_usage(d, &u);
    return of_gauge(&u.rows, u.rows_max);
}

static struct usage audit_sums(struct tb_daemon *d)
{
    struct tb_audit_usage u;
    tb_audit_usage(d, &u);
    return of_gauge(&u.sums, u.sums_max);
}

static struct usage held_replies(struct tb_daemon *d)
{
    struct tb_persist_usage u;
    tb_persist_usage(d, &u);
    return of_gauge(&u.held, u.held_max);
}

static struct usage control_clients(struct tb_daemon *d)
{
    struct tb_control_usage u = {0};
    if (d->control != NULL) tb_control_usage(d->control, &u);
    return (struct usage){
        .used = u.clients, .most = u.most, .bound = u.max, .refused = u.refused, .spent = u.spent};
}

static struct usage control_read_clients(struct tb_daemon *d)
{
    struct tb_control_usage u = {.max = TB_CONTROL_CLIENTS_MAX};
    if (d->control_read != NULL) tb_control_usage(d->control_read, &u);
    return (struct usage){
        .used = u.clients, .most = u.most, .bound = u.max, .refused = u.refused, .spent = u.spent};
}

static struct usage exports(struct tb_daemon *d)
{
    struct tb_fabric_usage u;
    tb_fabric_usage(d->fabric, &u);
    return (struct usage){.used = u.exports, .most = u.exports_most, .bound = d->bounds.versions};
}

static struct usage tokens(struct tb_daemon *d)
{
    struct tb_fabric_usage u;
    tb_fabric_usage(d->fabric, &u);
    return (struct usage){.used = u.tokens,
                          .most = u.tokens_most,
                          .bound = u.tokens_max,
                          .refused = u.tokens_refused,
                          .spent = u.tokens_spent};
}

static struct usage idle_layouts(struct tb_daemon *d)
{
    struct tb_layouts_counts c;
    tb_layouts_count(tb_arena_layouts(d->arena), &c);
    return (struct usage){.used = c.idle_bytes, .most = c.idle_bytes_most, .bound = TB_LAYOUTS_IDLE_BYTES};
}

static struct usage encoded(struct tb_daemon *d)
{
    struct tb_encoded_chunks_stats s;
    tb_encoded_chunks_stats(d->encoded_chunks, &s);
    return (struct usage){.used = s.bytes, .most = s.most_bytes, .bound = s.budget_bytes};
}

static struct usage withdrawals(struct tb_daemon *d)
{
    return (struct usage){.used = d->withdrawn.most,
                          .most = d->withdrawn.most,
                          .bound = TB_STORE_WITHDRAWN_MAX,
                          .refused = d->withdrawn.refused};
}

static void withdrawals_users(struct tb_daemon *d, json_t *users)
{
    for (uint32_t i = 0; i < d->withdrawn.count; i++)
        user_add(users, d->withdrawn.rows[i].key.model.text, 1);
}

static struct usage withdrawals_in_all(struct tb_daemon *d)
{
    const struct tb_withdrawn *w = &d->withdrawn;
    return (struct usage){
        .used = w->count, .most = w->count, .bound = TB_WITHDRAWN_MAX, .refused = w->crowded};
}

static struct usage statements_in_all(struct tb_daemon *d)
{
    return (struct usage){
        .used = d->said.count, .most = d->said.count_most, .bound = TB_SAID_MAX, .refused = d->said.crowded};
}

static struct usage statements(struct tb_daemon *d)
{
    return (struct usage){
        .used = d->said.most, .most = d->said.most, .bound = TB_STORE_SIGNED_MAX, .refused = d->said.refused};
}

static void statements_users(struct tb_daemon *d, json_t *users)
{
    for (uint32_t b = 0; b < TB_STATEMENT_BUCKETS; b++)
        for (const struct tb_said *s = d->said.buckets[b]; s != NULL; s = s->next)
            user_add(users, s->what.model.text, 1);
}

static struct usage sources(struct tb_daemon *d)
{
    return of_gauge(&d->source_bytes, tb_worker_sources_max());
}

static void sources_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next)
            user_add_identity(users, &s->identity, e->source_bytes);
}

static struct usage unpublish_waits(struct tb_daemon *d)
{
    return of_gauge(&d->unpublish_waits, tb_unpublishes_max(d));
}

static void unpublish_waits_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        for (const struct tb_unpublish_wait *u = s->unpublishes; u != NULL; u = u->next)
            user_add_identity(users, &s->identity, 1);
}

static struct usage run_waits(struct tb_daemon *d)
{
    return of_gauge(&d->run_waits, d->bounds.sessions);
}

static void run_waits_users(struct tb_daemon *d, json_t *users)
{
    tb_home_runs_waits(d, session_user, &(struct readers){d, users});
}

static struct usage models_awake(struct tb_daemon *d)
{
    return of_gauge(&d->models.awake, TB_CONFIG_AWAKE_MAX);
}

/* By the pattern that they are of. */
static void models_awake_users(struct tb_daemon *d, json_t *users)
{
    for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++)
        if (d->models.rows[i].life != TB_MODEL_FREE) user_add(users, tb_model_config(d, i)->name.text, 1);
}

static struct usage door_readers(struct tb_daemon *d)
{
    struct tb_fabric_usage u;
    tb_fabric_usage(d->fabric, &u);
    return (struct usage){.used = u.readers,
                          .most = u.readers_most,
                          .bound = u.readers_max,
                          .refused = u.readers_refused,
                          .spent = u.readers_spent};
}

/* By the model that they read. */
static void door_readers_users(struct tb_daemon *d, json_t *users)
{
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        const uint32_t readers = c->export_id != 0 ? tb_export_readers(d->fabric, c->export_id) : 0;
        if (readers != 0) user_add(users, c->key.model.text, readers);
    }
}

static struct usage lent(struct tb_daemon *d)
{
    struct tb_fabric_usage u;
    tb_fabric_usage(d->fabric, &u);
    return (struct usage){.used = u.lent_bytes, .most = u.lent_most, .bound = u.lent_max};
}

static struct usage borrowed(struct tb_daemon *d)
{
    struct tb_fabric_usage u;
    tb_fabric_usage(d->fabric, &u);
    return (struct usage){.used = u.borrowed_bytes, .most = u.borrowed_most, .bound = u.lent_max};
}

static struct usage live_asks(struct tb_daemon *d)
{
    return of_gauge(&d->live.gauge, TB_LIVE_ASKS_MAX);
}

static void live_asks_users(struct tb_daemon *d, json_t *users)
{
    uint32_t cursor = 0;
    const struct tb_name *model;
    while ((model = tb_live_ask_at(d, &cursor)) != NULL)
        user_add(users, model->text, 1);
}

static const struct {
    const char *name;
    struct usage (*look)(struct tb_daemon *d);
    users_fn users; /* NULL: none of it is ever refused */
} own[] = {
    {"connections", connections, connections_users},
    {"worker_exports", worker_exports, worker_exports_users},
    {"export_source_bytes", sources, sources_users},
    {"unpublish_waits", unpublish_waits, unpublish_waits_users},
    {"run_waits", run_waits, run_waits_users},
    {"models_awake", models_awake, models_awake_users},
    {"copies", copies, copies_users},
    {"exports", exports, exports_users},
    {"tokens", tokens, tokens_users},
    {"door_readers", door_readers, door_readers_users},
    {"grants", grants, grants_users},
    {"parked_seal_bytes", parked_seals, parked_users},
    {"store_rows", store_rows, store_rows_users},
    {"held_replies", held_replies, held_replies_users},
    {"partial_frame_bytes", partial_frames, partial_frames_users},
    {"audit_rows", audit_rows, audit_rows_users},
    {"audit_sums", audit_sums, audit_sums_users},
    {"control_clients", control_clients, control_clients_users},
    {"control_read_clients", control_read_clients, control_read_clients_users},
    {"withdrawals", withdrawals, withdrawals_users},
    {"withdrawals_in_all", withdrawals_in_all, withdrawals_users},
    {"statements", statements, statements_users},
    {"statements_in_all", statements_in_all, statements_users},
    {"live_asks", live_asks, live_asks_users},
    {"idle_layout_bytes", idle_layouts, NULL},
    {"encoded_bytes", encoded, NULL},
    {"lent_bytes", lent, NULL},
    {"borrowed_bytes", borrowed, NULL},
};
#define OWN (sizeof own / sizeof own[0])

/* ---- all ---- */

static uint64_t own_most(struct tb_daemon *d, users_fn users_of, char who_out[TB_CATALOG_TEXT_MAX])
{
    json_t *users = users_of != NULL ? json_object() : NULL;
    if (users == NULL) return 0;
    users_of(d, users);
    const uint64_t most = users_most(users, who_out);
    json_decref(users);
    return most;
}

static uint64_t links_most(const struct tb_daemon *d, enum tb_links_table table,
                           char who_out[TB_CATALOG_TEXT_MAX])
{
    struct tb_name user;
    const uint64_t most = tb_links_table_most(d->links, table, &user);
    (void)snprintf(who_out, TB_CATALOG_TEXT_MAX, "%s", user.text);
    return most;
}

static uint64_t most_of(struct tb_daemon *d, const char *table, char who_out[TB_CATALOG_TEXT_MAX])
{
    who_out[0] = 0;
    for (size_t i = 0; i < OWN; i++)
        if (strcmp(own[i].name, table) == 0) return own_most(d, own[i].users, who_out);
    for (int t = 0; t < TB_LINKS_TABLES_COUNT && tb_peer_links(d) != NULL; t++) {
        struct tb_links_usage u;
        tb_links_usage(d->links, (enum tb_links_table)t, &u);
        if (strcmp(u.name, table) == 0) return links_most(d, (enum tb_links_table)t, who_out);
    }
    return tb_catalog_table_most(d->catalog, table, who_out);
}

struct cursor {
    uint32_t catalog, own, links;
};

/* Those of the catalog, then those of this folder, then those of the links. False: that was the
 * last. */
static bool usage_at(struct tb_daemon *d, struct cursor *at, struct usage *out)
{
    struct tb_catalog_table t;
    if (tb_catalog_table_at(d->catalog, &at->catalog, &t)) {
        *out = (struct usage){t.name, t.used, t.most, t.bound, t.refused, t.spent};
        return true;
    }
    if (at->own < OWN) {
        *out = own[at->own].look(d);
        out->name = own[at->own++].name;
        return true;
    }
    if (at->links >= TB_LINKS_TABLES_COUNT || tb_peer_links(d) == NULL) return false;
    struct tb_links_usage u;
    tb_links_usage(d->links, (enum tb_links_table)at->links++, &u);
    *out = (struct usage){u.name, u.used, u.most, u.bound, u.refused, u.spent};
    return true;
}

/* Strangers, and workers without a right, can fill these: a stranger's word is no error. No promise
 * is at risk: a quarter is kept for publishers and peers. */
static bool is_of_strangers(const char *table)
{
    static const char *const tables[] = {"connections",
                                         "sessions",
                                         "members",
                                         "groups",
                                         "waits",
                                         "link_connections",
                                         "control_clients",
                                         "control_read_clients",
                                         "partial_frame_bytes",
                                         "door_readers",
                                         "audit_sums",
                                         "audit_rows"};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(tables[i], table) == 0) return true;
    return false;
}

/* For the audit record: refusals for want of room, by the table. Its largest user stands for all
 * that were refused. */
static void room_denied(struct tb_daemon *d, const struct usage *u, const char *result, uint64_t count)
{
    char who[TB_CATALOG_TEXT_MAX];
    /* The record itself, and the way to its disk: each row would be the cause of another one. */
    if (strncmp(u->name, "audit_", 6) == 0 || strcmp(u->name, "store_rows") == 0) return;
    (void)most_of(d, u->name, who);
    const struct tb_audit_event event = {
        .action = "room", .identity = who, .object = u->name, .origin = "tables", .result = result};
    tb_audit_denied(d, &event, count);
}

static void tell(struct tb_daemon *d, struct tb_log_line *l, const struct usage *u)
{
    char who[TB_CATALOG_TEXT_MAX];
    const uint64_t rows = most_of(d, u->name, who);
    tb_log_str(l, "table", u->name);
    tb_log_u64(l, "used", u->used);
    tb_log_u64(l, "bound", u->bound);
    tb_log_str(l, "most_used_by", who);
    tb_log_u64(l, "its_rows", rows);
    tb_log_end(l);
}

/* One refusal is told; the next once a quarter of the table is free again. */
static void tell_full(struct tb_daemon *d, struct tb_table_told *told, const struct usage *u)
{
    TB_ASSERT(u->spent <= u->refused);
    const uint64_t refused = u->refused - u->spent;
    const bool fresh = refused > told->refused;
    if (fresh) room_denied(d, u, "table is full", refused - told->refused);
    told->refused = refused;
    if (!fresh && u->used <= u->bound / 4 * 3) told->full = false;
    if (!fresh || told->full) return;
    told->full = true;
    d->counters.tables_full++;
    struct tb_log_line l;
    tb_log_begin(&l, is_of_strangers(u->name) ? TB_LOG_WARN : TB_LOG_ERROR, "table.full");
    tell(d, &l, u);
}

/* P10: somebody had its share, and asked for more. */
static void tell_spent(struct tb_daemon *d, struct tb_table_told *told, const struct usage *u)
{
    const tb_time_ns now = tb_clock_now();
    const bool fresh = u->spent > told->spent;
    d->counters.shares_spent += u->spent - told->spent;
    if (fresh) room_denied(d, u, "share is spent", u->spent - told->spent);
    told->spent = u->spent;
    if (!fresh || (told->spent_at != 0 && tb_time_since(told->spent_at, now) < SPENT_TOLD_EVERY)) return;
    told->spent_at = now;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "share.spent");
    tell(d, &l, u);
}

static void tell_both(struct tb_daemon *d, struct tb_table_told *told, const struct usage *u)
{
    tell_full(d, told, u);
    tell_spent(d, told, u);
}

void tb_usage_tick(struct tb_daemon *d)
{
    struct usage u;
    struct cursor at = {0};
    for (uint32_t i = 0; i < TB_DAEMON_TABLES && usage_at(d, &at, &u); i++)
        tell_both(d, &d->tables_told[i], &u);
    /* Otherwise TB_DAEMON_TABLES is too small, and the log hears nothing of some full tables. */
    TB_ASSERT(!usage_at(d, &at, &u));
}

static bool append(json_t *list, const struct usage *u)
{
    return json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "table", u->name, "used",
                                                 (json_int_t)u->used, "most", (json_int_t)u->most, "bound",
                                                 (json_int_t)u->bound, "refused", (json_int_t)u->refused,
                                                 "shares_spent", (json_int_t)u->spent)) == 0;
}

json_t *tb_status_tables(struct tb_daemon *d)
{
    json_t *list = json_array();
    struct usage u;
    struct cursor at = {0};
    bool all = list != NULL;
    while (all && usage_at(d, &at, &u))
        all = append(list, &u);
    if (all) return list;
    json_decref(list);
    return NULL;
}

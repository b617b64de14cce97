/* usage_status.c - how full this gateway's tables are: in `status`, and one line when one of them refuses a row (P10).
 *
 * A table of the catalog, of the links or of this folder is a `struct usage` here, whichever part counts it. */
#include "gateway/daemon/daemon.h"

#include <jansson.h>
#include <string.h>

#include "gateway/daemon/control/control.h"
#include "gateway/daemon/control/usage_status.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/sessions/session_publish.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/daemon/sessions/sessions.h"
#include "wan/send/encoded_chunks.h"

struct usage {
    const char *name;
    uint64_t used, most, bound, refused;
};

/* Who uses most of it, and how much of it; 0: nobody in particular. */
typedef uint64_t (*who_fn)(const struct tb_daemon *d, char who_out[TB_CATALOG_TEXT_MAX]);

static struct usage of_gauge(const struct tb_gauge *g, uint64_t bound)
{
    return (struct usage){.used = g->used, .most = g->most, .bound = bound, .refused = g->refused};
}

/* ---- of this folder: each says how full it is, and who uses most of it ---- */

static struct usage connections(struct tb_daemon *d)
{
    return of_gauge(&d->connections, tb_sessions_max(d));
}

static uint64_t connections_most(const struct tb_daemon *d, char who_out[TB_CATALOG_TEXT_MAX])
{
    return tb_catalog_table_most(d->catalog, "sessions", who_out);
}

static struct usage worker_exports(struct tb_daemon *d)
{
    return of_gauge(&d->worker_exports, d->bounds.references);
}

static uint64_t exports_of(const struct tb_worker_session *s)
{
    uint64_t count = 0;
    for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next)
        count++;
    return count;
}

static uint64_t held_by(const struct tb_worker_session *s)
{
    return s->held_replies;
}

static uint64_t parked_by(const struct tb_worker_session *s)
{
    uint64_t bytes = 0;
    for (const struct tb_parked_seal *p = s->d->parked; p != NULL; p = p->next)
        if (tb_id_equal(&p->session, &s->id)) bytes += p->bytes;
    return bytes;
}

/* The identity of the session that has most. */
static uint64_t session_most(const struct tb_daemon *d, uint64_t (*rows_of)(const struct tb_worker_session *),
                             char who_out[TB_CATALOG_TEXT_MAX])
{
    uint64_t most = 0;
    for (const struct tb_worker_session *s = d->sessions; s != NULL; s = s->next) {
        const uint64_t rows = rows_of(s);
        if (rows <= most) continue;
        most = rows;
        char identity[TB_URI_BYTES_MAX];
        tb_identity_format(&s->identity, identity);
        (void)snprintf(who_out, TB_CATALOG_TEXT_MAX, "%.*s", TB_CATALOG_TEXT_MAX - 1, identity);
    }
    return most;
}

static uint64_t worker_exports_most(const struct tb_daemon *d, char who_out[TB_CATALOG_TEXT_MAX])
{
    return session_most(d, exports_of, who_out);
}

static uint64_t held_replies_most(const struct tb_daemon *d, char who_out[TB_CATALOG_TEXT_MAX])
{
    return session_most(d, held_by, who_out);
}

static uint64_t parked_most(const struct tb_daemon *d, char who_out[TB_CATALOG_TEXT_MAX])
{
    return session_most(d, parked_by, who_out);
}

static struct usage copies(struct tb_daemon *d)
{
    return of_gauge(&d->copies_used, d->bounds.versions);
}

static struct usage plan_waits(struct tb_daemon *d)
{
    return of_gauge(&d->plan_waits_used, d->bounds.references);
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
    return (struct usage){.used = u.clients, .most = u.most, .bound = u.max, .refused = u.refused};
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
    return (struct usage){
        .used = u.tokens, .most = u.tokens_most, .bound = u.tokens_max, .refused = u.tokens_refused};
}

static struct usage idle_layouts(struct tb_daemon *d)
{
    struct tb_layouts_counts c;
    tb_layouts_count(tb_arena_layouts(d->arena), &c);
    return (struct usage){.used = c.idle_bytes, .most = c.idle_bytes_most, .bound = TB_LAYOUTS_IDLE_BYTES};
}

static struct usage encoded(struct tb_daemon *d)
{
    struct tb_objects_stats s;
    tb_objects_stats(d->objects, &s);
    return (struct usage){.used = s.bytes, .most = s.most_bytes, .bound = s.budget_bytes};
}

static const struct {
    const char *name;
    struct usage (*look)(struct tb_daemon *d);
    who_fn who; /* NULL: rows have no owner */
} own[] = {
    {"connections", connections, connections_most},
    {"worker_exports", worker_exports, worker_exports_most},
    {"copies", copies, NULL},
    {"exports", exports, NULL},
    {"tokens", tokens, NULL},
    {"plan_waits", plan_waits, NULL},
    {"parked_seal_bytes", parked_seals, parked_most},
    {"store_rows", store_rows, NULL},
    {"held_replies", held_replies, held_replies_most},
    {"control_clients", control_clients, NULL},
    {"idle_layout_bytes", idle_layouts, NULL},
    {"encoded_bytes", encoded, NULL},
};
#define OWN (sizeof own / sizeof own[0])

/* ---- all ---- */

static uint64_t most_of(const struct tb_daemon *d, const char *table, char who_out[TB_CATALOG_TEXT_MAX])
{
    who_out[0] = 0;
    for (size_t i = 0; i < OWN; i++)
        if (strcmp(own[i].name, table) == 0) return own[i].who != NULL ? own[i].who(d, who_out) : 0;
    return tb_catalog_table_most(d->catalog, table, who_out);
}

/* Those of the catalog, then those of this folder. False: that was the last. */
static bool usage_at(struct tb_daemon *d, uint32_t *cursor, uint32_t *own_cursor, struct usage *out)
{
    struct tb_catalog_table t;
    if (tb_catalog_table_at(d->catalog, cursor, &t)) {
        *out = (struct usage){t.name, t.used, t.most, t.bound, t.refused};
        return true;
    }
    if (*own_cursor >= OWN) return false;
    *out = own[*own_cursor].look(d);
    out->name = own[(*own_cursor)++].name;
    return true;
}

/* One refusal is told; the next once a quarter of the table is free again. */
static void tell_full(struct tb_daemon *d, struct tb_table_told *told, const struct usage *u)
{
    const bool fresh = u->refused > told->refused;
    told->refused = u->refused;
    if (!fresh && u->used <= u->bound / 4 * 3) told->full = false;
    if (!fresh || told->full) return;
    told->full = true;
    char who[TB_CATALOG_TEXT_MAX];
    const uint64_t rows = most_of(d, u->name, who);
    d->counters.tables_full++;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "table.full");
    tb_log_str(&l, "table", u->name);
    tb_log_u64(&l, "used", u->used);
    tb_log_u64(&l, "bound", u->bound);
    tb_log_str(&l, "most_used_by", who);
    tb_log_u64(&l, "its_rows", rows);
    tb_log_end(&l);
}

void tb_usage_tick(struct tb_daemon *d)
{
    struct usage u;
    uint32_t cursor = 0, own_cursor = 0;
    for (uint32_t i = 0; i < TB_DAEMON_TABLES && usage_at(d, &cursor, &own_cursor, &u); i++)
        tell_full(d, &d->tables_told[i], &u);
}

static bool append(json_t *list, const struct usage *u)
{
    return json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:I}", "table", u->name, "used",
                                                 (json_int_t)u->used, "most", (json_int_t)u->most, "bound",
                                                 (json_int_t)u->bound, "refused", (json_int_t)u->refused)) ==
           0;
}

static bool append_link(json_t *list, const char *name, const struct tb_links_table *t)
{
    const struct usage u = {.name = name, .used = t->used, .most = t->most, .bound = t->bound};
    return append(list, &u);
}

static bool append_links(struct tb_daemon *d, json_t *list)
{
    if (d->links == NULL || d->links_restarting) return true;
    struct tb_links_usage usage;
    tb_links_usage(d->links, &usage);
    return append_link(list, "offers", &usage.offers) && append_link(list, "announced", &usage.announced) &&
           append_link(list, "landings", &usage.landings) && append_link(list, "asks", &usage.asks);
}

json_t *tb_status_tables(struct tb_daemon *d)
{
    json_t *list = json_array();
    struct usage u;
    uint32_t cursor = 0, own_cursor = 0;
    bool all = list != NULL;
    while (all && usage_at(d, &cursor, &own_cursor, &u))
        all = append(list, &u);
    if (all && append_links(d, list)) return list;
    json_decref(list);
    return NULL;
}

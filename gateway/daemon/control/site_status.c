/* site_status.c - what the operator's socket answers (docs/control.md). */
#include "gateway/daemon/links/site_lag.h"

#include <jansson.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/version_key.h"
#include "base/net/secret_memory.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/catalog/records.h"
#include "gateway/catalog/versions.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/certificates.h"
#include "gateway/daemon/control/audit_commands.h"
#include "gateway/daemon/control/backup_commands.h"
#include "gateway/daemon/control/chain_status.h"
#include "gateway/daemon/control/codec_status.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/control/digests_status.h"
#include "gateway/daemon/control/event_commands.h"
#include "gateway/daemon/control/group_status.h"
#include "gateway/daemon/control/lag_status.h"
#include "gateway/daemon/control/link_status.h"
#include "gateway/daemon/control/pause_acts.h"
#include "gateway/daemon/control/site_status.h"
#include "gateway/daemon/control/usage_status.h"
#include "gateway/daemon/control/version_status.h"
#include "gateway/daemon/copies/anchors.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/shelves.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/pauses.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/live/live_asks.h"
#include "gateway/daemon/live/live_status.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/daemon/reload.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"
#include "tombolo/version.h"
#include "wan/link/links_pause.h"
#include "wan/link/links_stats.h"

#define HOPS_MAX 1024u /* of one answer */

/* An answer that lacks a field for want of memory is none (P10). The main loop's alone. */
static bool lacking;

static void put(json_t *o, const char *key, json_t *v)
{
    if (json_object_set_new(o, key, v) != 0) lacking = true;
}

static void append(json_t *list, json_t *v)
{
    if (json_array_append_new(list, v) != 0) lacking = true;
}

static void set_id(json_t *o, const char *key, const struct tb_id *id)
{
    char hex[TB_HEX_CHARS];
    tb_id_format(id, hex);
    put(o, key, json_string(hex));
}

static void set_u64(json_t *o, const char *key, uint64_t v)
{
    put(o, key, json_integer((json_int_t)v));
}

static void set_text(json_t *o, const char *key, const char *text)
{
    json_t *v = json_string(text); /* NULL for text that is not UTF-8 */
    put(o, key, v != NULL ? v : json_string("?"));
}

static void set_transport(json_t *o, uint8_t packed)
{
    enum tb_transport transport;
    enum tb_transport_why why;
    tb_transport_unpack(packed, &transport, &why);
    set_text(o, "transport", tb_transport_name(transport));
    set_text(o, "transport_why", tb_transport_why_text(why));
}

static double seconds(tb_time_ns ns)
{
    return (double)ns / 1e9;
}

/* ---- status ---- */

static json_t *names_json(const struct tb_links *links, uint32_t peer,
                          const struct tb_name *(*at)(const struct tb_links *links, uint32_t peer,
                                                      uint32_t i))
{
    json_t *list = json_array();
    const struct tb_name *name = NULL;
    for (uint32_t i = 0; links != NULL && (name = at(links, peer, i)) != NULL; i++)
        append(list, json_string(name->text));
    return list;
}

/* The state of the link, and the models that either end may not read. */
static void link_state_json(struct tb_daemon *d, uint32_t peer, const struct tb_links_stats *stats, json_t *o)
{
    TB_ASSERT(peer < d->config->peer_count);
    const struct tb_links *links = d->links_restarting ? NULL : d->links;
    const char *waits = d->config->peers[peer].address == NULL ? "listening" : "dialling";
    set_text(o, "state", stats->up ? "up" : stats->turned_away ? "refused" : waits);
    put(o, "since_s",
        json_real(links != NULL ? seconds(tb_time_since(stats->state_since, tb_clock_now())) : 0));
    set_text(o, "reason", tb_links_why_name(stats->why));
    set_text(o, "error", stats->error);
    put(o, "denied", names_json(links, peer, tb_links_denied_at));
    put(o, "refused_models", names_json(links, peer, tb_links_refused_at));
}

static json_t *links_json(struct tb_daemon *d)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        if (d->config->peers[i].gone) continue;
        static struct tb_links_stats stats; /* large; the main loop's alone */
        memset(&stats, 0, sizeof stats);
        if (d->links != NULL && !d->links_restarting) tb_links_stats(d->links, i, &stats);
        json_t *o = json_object();
        const struct tb_config_peer *peer = &d->config->peers[i];
        set_text(o, "site", peer->site.text);
        set_text(o, "gateway", stats.up ? stats.identity.name.text : "");
        put(o, "certificate_days_left",
            stats.up ? json_integer((json_int_t)tb_certificates_days_left(stats.expires_wall_s))
                     : json_null());
        put(o, "clock_ahead_ms", stats.clock_known ? json_integer(stats.clock_ahead_ms) : json_null());
        link_state_json(d, i, &stats, o);
        put(o, "source", peer->source != NULL ? json_string(peer->source) : json_null());
        set_u64(o, "dscp", peer->dscp);
        put(o, "rtt_ms", json_real((double)stats.rtt / 1e6));
        TB_ASSERT(stats.stream_count <= sizeof stats.streams / sizeof stats.streams[0]);
        uint32_t open = 0;
        for (uint32_t k = 0; k < stats.stream_count; k++)
            open += stats.streams[k].open;
        set_u64(o, "streams", open);
        set_u64(o, "sent_bytes", stats.bytes_sent);
        set_u64(o, "received_bytes", stats.bytes_received);
        set_u64(o, "goodput_bytes_per_s", d->goodput[i].bytes_per_s);
        set_u64(o, "protocol", stats.protocol);
        put(o, "codec", tb_status_codec(d, i));
        set_u64(o, "sent_raw_bytes", stats.raw_bytes_sent);
        set_u64(o, "chunks_sent", stats.chunks_sent);
        set_u64(o, "delta_chunks", stats.delta_chunks);
        set_u64(o, "chunks_no_base", stats.chunks_no_base);
        set_u64(o, "expected", stats.expected);
        set_u64(o, "pushed", stats.pushed);
        set_u64(o, "pushes_declined", stats.pushes_declined);
        set_u64(o, "dtypes_refused", stats.dtypes_refused);
        set_u64(o, "hedged_bytes", stats.bytes_hedged);
        set_u64(o, "again_bytes", stats.bytes_again);
        put(o, "window", tb_status_window(&stats));
        set_u64(o, "streams_lost", stats.streams_lost);
        set_u64(o, "chunks_bad", stats.chunks_bad);
        set_u64(o, "chunks_duplicate", stats.chunks_duplicate);
        set_u64(o, "sessions", stats.sessions);
        put(o, "limit", tb_limits_json(&d->limits[i]));
        put(o, "paused_here", json_boolean(tb_pause_of_peer(d, i) != NULL));
        put(o, "paused_there", json_boolean(stats.up && tb_links_paused_there(d->links, i, NULL)));
        append(list, o);
    }
    return list;
}

static json_t *version_name(const struct tb_site_which *w)
{
    if (tb_site_which_none(w)) return json_null();
    return json_sprintf("%llu:%llu", (unsigned long long)w->run_order, (unsigned long long)w->number);
}

static json_t *pin_json(struct tb_daemon *d, const struct tb_name *model)
{
    struct tb_catalog_version_view v;
    struct tb_id uid;
    if (!tb_catalog_pinned(d->catalog, model, &uid) || !tb_catalog_version_get(d->catalog, &uid, &v))
        return json_null();
    json_t *o = json_object();
    put(o, "version", version_name(&(struct tb_site_which){v.key.run_order, v.key.number}));
    set_text(o, "who", v.pinned_by);
    return o;
}

static json_t *models_json(struct tb_daemon *d)
{
    json_t *list = json_array();
    uint32_t cursor = 0;
    struct tb_catalog_model m;
    while (tb_catalog_model_at(d->catalog, &cursor, &m)) {
        json_t *o = json_object(), *from = json_array();
        for (uint32_t i = 0; i < m.from_count; i++)
            append(from, json_string(m.from[i].text));
        set_text(o, "model", m.name.text);
        set_text(o, "home", m.home.text);
        put(o, "from", from);
        put(o, "runs", tb_status_runs(d, &m.name));
        static struct tb_site_lag lag; /* large; the main loop's alone */
        tb_site_lag_here(d, &m, &lag);
        const struct tb_site_which newest = tb_site_newest(&lag.state);
        put(o, "head", version_name(&lag.state.head));
        put(o, "latest", version_name(&newest));
        put(o, "pin", pin_json(d, &m.name));
        put(o, "known", json_boolean(lag.known));
        put(o, "reason", json_string(tb_lag_name(lag.state.reason)));
        put(o, "lag_versions", lag.known ? json_integer(lag.state.versions) : json_null());
        put(o, "lag_bytes", lag.known ? json_integer((json_int_t)lag.state.left_bytes) : json_null());
        put(o, "head_bytes", tb_status_head_bytes(d, &lag));
        put(o, "lag_s", lag.known ? json_real((double)lag.state.behind_ms / 1e3) : json_null());
        append(list, o);
    }
    return list;
}

/* Nothing for what it computes from if that is forgotten here, or nothing was said of it. */
static void member_update(struct tb_daemon *d, const struct tb_catalog_member_view *m, json_t *updates)
{
    struct tb_catalog_version_view v;
    if (tb_id_is_zero(&m->update.uid) || !tb_catalog_version_get(d->catalog, &m->active, &v)) return;
    json_t *o = tb_status_update(&m->update);
    set_text(o, "model", m->model.text);
    set_text(o, "group", m->group.text);
    set_u64(o, "run", v.key.run_order);
    set_u64(o, "number", v.key.number);
    append(updates, o);
}

/* Distinct models that a session publishes or follows, and how it got to what it computes from. */
static void session_models(struct tb_daemon *d, const struct tb_id *session, json_t *row)
{
    json_t *publishes = json_array(), *subscribes = json_array(), *updates = json_array();
    uint32_t cursor = 0;
    struct tb_catalog_member_view member;
    while (tb_catalog_member_at(d->catalog, &cursor, &member)) {
        if (!tb_id_equal(&member.session, session)) continue;
        append(subscribes, json_string(member.model.text));
        member_update(d, &member, updates);
    }
    const struct tb_worker_session *s = tb_worker_find(d, session);
    struct tb_name last = {""};
    for (const struct tb_worker_export *e = s != NULL ? s->exports : NULL; e != NULL; e = e->next) {
        const struct tb_copy *copy = tb_copy_find(d, &e->uid);
        if (e->shard == TB_CATALOG_ALL_SHARDS || copy == NULL || tb_name_equal(&copy->key.model, &last))
            continue;
        last = copy->key.model;
        append(publishes, json_string(last.text));
    }
    put(row, "publishes", publishes);
    put(row, "subscribes", subscribes);
    put(row, "updates", updates);
}

#define SESSIONS_MAX 1024u /* listed: each is looked up among all members */

static json_t *sessions_json(struct tb_daemon *d)
{
    json_t *list = json_array();
    uint32_t cursor = 0;
    struct tb_catalog_session_view v;
    while (json_array_size(list) < SESSIONS_MAX && tb_catalog_session_at(d->catalog, &cursor, &v)) {
        json_t *o = json_object();
        const struct tb_worker_session *s = tb_worker_find(d, &v.session.id);
        set_text(o, "name", v.session.name.text);
        set_text(o, "host", v.session.host.text);
        set_text(o, "identity", v.session.identity);
        put(o, "since_s", json_real(s != NULL ? (double)(tb_clock_wall_ms() - s->since_wall_ms) / 1e3 : 0));
        session_models(d, &v.session.id, o);
        put(o, "serving", tb_live_status_serving(d, &v.session.id));
        put(o, "lease_left_s", json_real(seconds(tb_time_since(tb_clock_now(), v.lease_until))));
        put(o, "connected", json_boolean(v.attached));
        append(list, o);
    }
    return list;
}

static json_t *arena_json(struct tb_daemon *d)
{
    struct tb_arena_budget budget;
    tb_arena_budget(d->arena, &budget);
    json_t *o = json_object();
    set_text(o, "path", d->config->arena_path);
    set_u64(o, "bytes", budget.total_bytes);
    set_u64(o, "used", budget.used_bytes);
    set_u64(o, "largest_free", budget.largest_free_bytes);
    set_u64(o, "regions", budget.regions);
    set_u64(o, "huge_bytes", atomic_load(&d->huge_bytes));
    put(o, "verified", json_boolean(atomic_load(&d->verify_done)));
    set_u64(o, "verified_bytes", atomic_load(&d->verified_bytes));
    return o;
}

static json_t *counters_json(const struct tb_daemon *d)
{
    json_t *o = json_object();
#define COUNTER_JSON(name) set_u64(o, #name, d->counters.name);
    TB_COUNTERS(COUNTER_JSON)
#undef COUNTER_JSON
    if (d->links != NULL && !d->links_restarting)
        set_u64(o, "links_strangers_refused", tb_links_strangers_refused(d->links));
    return o;
}

/* ---- hops: the chains as they are ---- */

static json_t *hop_row(const struct tb_version_key *key, const char *reader, const char *source)
{
    json_t *o = json_object();
    set_text(o, "model", key->model.text);
    set_u64(o, "run", key->run_order);
    set_u64(o, "number", key->number);
    set_text(o, "reader", reader);
    set_text(o, "source", source);
    return o;
}

/* The hops by which this gateway reads from its ranks. */
static void landing_hops(struct tb_daemon *d, json_t *list)
{
    for (const struct tb_copy *copy = d->copies; copy != NULL; copy = copy->next) {
        for (const struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next) {
            const struct tb_worker_session *s = tb_worker_find(d, &h->session);
            struct tb_hop_stats stats;
            if (h->hop == NULL || json_array_size(list) >= HOPS_MAX) continue;
            tb_hop_stats(h->hop, &stats);
            const double time = seconds(tb_time_since(stats.open_at, stats.last_at));
            json_t *o = hop_row(&copy->key, d->gateway.text, s != NULL ? s->name.text : "");
            set_transport(o, tb_transport_pack(stats.transport, stats.why));
            set_u64(o, "bytes_per_s", time > 0.001 ? (uint64_t)((double)stats.bytes_read / time) : 0);
            append(list, o);
        }
    }
}

/* The hops of workers, as they said last. */
static void worker_hops(struct tb_daemon *d, json_t *list)
{
    uint32_t cursor = 0;
    struct tb_catalog_reference_view r;
    struct tb_catalog_version_view v;
    while (json_array_size(list) < HOPS_MAX && tb_catalog_reference_at(d->catalog, &cursor, &r)) {
        if (r.kind != TB_REFERENCE_WORKER || r.plan == 0 || r.whole) continue;
        if (!tb_catalog_version_get(d->catalog, &r.uid, &v)) continue;
        json_t *o = hop_row(&v.key, r.name.text, r.from_gateway ? d->gateway.text : r.upstream_name.text);
        set_transport(o, r.transport);
        set_u64(o, "bytes_per_s", r.bytes_per_s);
        append(list, o);
    }
}

static json_t *hops_json(struct tb_daemon *d)
{
    json_t *list = json_array();
    landing_hops(d, list);
    worker_hops(d, list);
    return list;
}

static json_t *fabric_json(struct tb_daemon *d)
{
    json_t *o = json_object();
    const char *why = tb_fabric_no_verbs(d->fabric);
    put(o, "verbs", json_boolean(why == NULL));
    set_text(o, "why_not", why != NULL ? why : "");
    struct tb_shelves_stats shelves;
    tb_shelves_stats(d->shelves, &shelves);
    set_u64(o, "encoded_chunks", shelves.chunks);
    set_u64(o, "forwarded_chunks", shelves.forwarded);
    set_u64(o, "encoded_bytes", shelves.bytes);
    set_u64(o, "encoded_raw_bytes", shelves.raw_bytes);
    set_u64(o, "not_encoded_chunks", shelves.without);
    return o;
}

static json_t *sandbox_json(const struct tb_sandbox *s)
{
    json_t *o = json_object();
    put(o, "wanted", json_boolean(s->wanted));
    put(o, "no_new_privileges", json_boolean(s->no_new_privileges));
    put(o, "seccomp", json_boolean(s->filter));
    set_u64(o, "landlock_abi", s->landlock ? (uint64_t)s->landlock_abi : 0);
    static const char *const secrets[] = {[TB_SECRET_PLAIN] = "plain",
                                          [TB_SECRET_SWAPS] = "not_dumped",
                                          [TB_SECRET_LOCKED] = "locked",
                                          [TB_SECRET_HIDDEN] = "hidden"};
    set_text(o, "secrets", secrets[tb_secret_memory_state()]);
    set_text(o, "lacks", s->wanted ? s->lacks : "off by `sandbox: false`");
    return o;
}

/* Days are whole ones; below zero it has ended. */
static json_t *certificates_json(const struct tb_daemon *d)
{
    if (d->tls == NULL) return json_null();
    const int64_t own = tb_certificates_days_left(tb_tls_expires_wall_s(d->tls));
    const int64_t cas = tb_certificates_days_left(tb_tls_cas_expire_wall_s(d->tls));
    return json_pack("{s:I, s:I, s:I, s:b, s:b}", "days_left", (json_int_t)own, "authority_days_left",
                     (json_int_t)cas, "revoked", (json_int_t)tb_tls_revoked_count(d->tls), "own_revoked",
                     tb_tls_is_revoked(d->tls), "expiring",
                     own < TB_CERTIFICATE_WARN_DAYS || cas < TB_CERTIFICATE_WARN_DAYS);
}

/* Rows that wait for the disk, and rows that are lost for want of a place. */
static json_t *audit_json(const struct tb_daemon *d)
{
    struct tb_audit_usage u;
    tb_audit_usage(d, &u);
    const json_int_t waiting = (json_int_t)u.rows.used + (json_int_t)u.sums.used;
    const uint64_t lost = d->counters.audit_lost; /* as told; one answer says one number */
    return json_pack("{s:I, s:I, s:b}", "waiting", waiting, "lost", (json_int_t)lost, "ok",
                     lost == 0 && !d->store_down);
}

static bool status_fill(struct tb_daemon *d, json_t *o)
{
    lacking = false;
    const struct tb_id life = tb_arena_life(d->arena);
    set_text(o, "site", d->config->site.text);
    set_u64(o, "lane", d->config->lane);
    set_u64(o, "lanes", d->config->lanes);
    set_text(o, "gateway", d->gateway.text);
    set_text(o, "version", TB_VERSION_TEXT);
    set_u64(o, "pid", (uint64_t)uv_os_getpid());
    set_id(o, "life", &life);
    set_u64(o, "incarnation", d->incarnation);
    put(o, "uptime_s", json_real(seconds(tb_time_since(d->started_at, tb_clock_now()))));
    put(o, "draining", json_boolean(d->draining));
    put(o, "recovering", json_boolean(tb_catalog_recovering(d->catalog)));
    put(o, "store_ok", json_boolean(!d->store_down));
    set_u64(o, "store_waiting", tb_persist_waiting(d));
    put(o, "certificate_expires_ms",
        d->tls == NULL ? json_null() : json_integer((json_int_t)tb_tls_expires_wall_s(d->tls) * 1000));
    put(o, "certificates", certificates_json(d));
    put(o, "audit", audit_json(d));
    put(o, "arena", arena_json(d));
    put(o, "anchor", tb_anchors_json(d));
    put(o, "encoded", tb_status_encoded(d));
    put(o, "links", links_json(d));
    put(o, "models", models_json(d));
    put(o, "pauses", tb_pause_acts_json(d));
    set_u64(o, "session_count", d->session_count);
    put(o, "sessions", sessions_json(d));
    set_u64(o, "group_count", tb_status_group_count(d));
    put(o, "groups", tb_status_groups(d));
    put(o, "fabric", fabric_json(d));
    put(o, "hops", hops_json(d));
    put(o, "tables", tb_status_tables(d));
    put(o, "sandbox", sandbox_json(&d->sandbox));
    put(o, "counters", counters_json(d));
    return !lacking;
}

json_t *tb_status_site(struct tb_daemon *d)
{
    json_t *o = json_pack("{s:i, s:b}", "schema", 1, "ok", 1);
    if (o != NULL && status_fill(d, o)) return o;
    json_decref(o);
    return NULL;
}

static enum tb_status cmd_status(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)request, (void)error;
    return status_fill(user, reply) ? TB_OK : TB_SITE_NOMEM;
}

/* ---- versions ---- */

static void references_json(struct tb_daemon *d, const struct tb_catalog_version_view *v, json_t *o)
{
    json_t *workers = json_array();
    uint32_t cursor = 0;
    struct tb_catalog_reference_view r;
    while (tb_catalog_reference_at(d->catalog, &cursor, &r)) {
        if (r.kind != TB_REFERENCE_WORKER || !tb_id_equal(&r.uid, &v->key.uid)) continue;
        json_t *row = json_object();
        const uint64_t held = v->chunk_count == 0 ? 0
                              : r.whole           ? v->bytes
                                                  : v->bytes / v->chunk_count * r.held_chunks;
        set_u64(row, "held_bytes", held);
        put(row, "whole", json_boolean(r.whole));
        struct tb_catalog_session_view s;
        set_text(row, "name", r.name.text);
        set_text(row, "host", tb_catalog_session_get(d->catalog, &r.session, &s) ? s.session.host.text : "");
        set_text(row, "upstream", r.plan == 0 ? "" : r.from_gateway ? d->gateway.text : r.upstream_name.text);
        set_transport(row, r.transport);
        put(row, "active", json_boolean(r.activated));
        set_u64(row, "bytes_per_s", r.bytes_per_s);
        put(row, "slow", json_boolean(r.slow));
        append(workers, row);
    }
    put(o, "sites", tb_status_sites_of(d, &v->key));
    put(o, "workers", workers);
}

/* Empty and 0: its home's signature is not here. */
static void signed_json(const struct tb_daemon *d, const struct tb_id *uid, json_t *o)
{
    const struct tb_said *said = tb_said_find(&d->said, TB_STATEMENT_VERSION, uid);
    char by[TB_URI_BYTES_MAX] = "";
    if (said != NULL) tb_identity_format(&said->by, by);
    set_text(o, "signed_by", by);
    set_u64(o, "signed_at_ms", said != NULL ? said->what.wall_ms : 0);
}

static json_t *version_json(struct tb_daemon *d, const struct tb_catalog_version_view *v)
{
    json_t *o = json_object();
    const struct tb_copy *copy = tb_copy_find(d, &v->key.uid);
    set_text(o, "model", v->key.model.text);
    set_u64(o, "run", v->key.run_order);
    set_u64(o, "number", v->key.number);
    set_id(o, "uid", &v->key.uid);
    set_text(o, "state", tb_catalog_state_name(v->state));
    put(o, "saved", json_boolean(tb_persist_saved(d, &v->key.uid)));
    set_u64(o, "bytes", v->bytes);
    set_u64(o, "held_bytes", copy != NULL ? tb_copy_held_bytes(copy) : 0);
    set_u64(o, "proven_bytes",
            copy != NULL && copy->region != NULL ? tb_arena_region_proven_bytes(copy->region) : 0);
    set_u64(o, "wire_bytes", copy != NULL ? tb_copy_wire_bytes(copy) : 0);
    set_u64(o, "shards", v->key.shard_count);
    set_u64(o, "sealed_shards", v->sealed_count);
    set_u64(o, "opened_ms", copy != NULL ? copy->opened_wall_ms : 0);
    put(o, "whole_s",
        copy != NULL && tb_copy_is_whole(copy)
            ? json_real(seconds(tb_time_since(copy->seen_at, copy->whole_at)))
            : json_null());
    const enum tb_status end = tb_catalog_state_status(v->state);
    set_text(o, "error", end == TB_OK ? "" : tb_status_text(end));
    put(o, "head", json_boolean(v->head));
    signed_json(d, &v->key.uid, o);
    put(o, "awaits_signature", json_boolean(v->awaits));
    put(o, "pinned", json_boolean(v->pinned));
    set_text(o, "pinned_by", v->pinned ? v->pinned_by : "");
    put(o, "withdrawn_here", json_boolean(v->withdrawn_here));
    set_text(o, "withdrawn_by", v->state == TB_VERSION_ENDED_WITHDRAWN ? v->who : "");
    references_json(d, v, o);
    if (!tb_status_moves(d, copy, v->bytes, o)) lacking = true;
    return o;
}

static int version_order(const void *a, const void *b)
{
    const struct tb_version_key *x = &((const struct tb_catalog_version_view *)a)->key;
    const struct tb_version_key *y = &((const struct tb_catalog_version_view *)b)->key;
    const int by_model = strcmp(x->model.text, y->model.text);
    return by_model != 0 ? by_model : tb_version_key_compare(x, y);
}

/* Of one model; NULL: all. *count_out: of them, those that are left out included. */
static json_t *versions_json(struct tb_daemon *d, const char *model, uint32_t *count_out)
{
    enum { VIEWS_MAX = 1024 };
    static struct tb_catalog_version_view views[VIEWS_MAX + 1]; /* the main loop's alone */
    uint32_t cursor = 0, count = 0;
    *count_out = 0;
    while (tb_catalog_version_at(d->catalog, &cursor, &views[count])) {
        if (model != NULL && strcmp(model, views[count].key.model.text) != 0) continue;
        if (tb_status_nobodys(d, &views[count])) continue;
        count += count < VIEWS_MAX; /* the last row is for those that are left out */
        ++*count_out;
    }
    qsort(views, count, sizeof views[0], version_order);
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        append(list, version_json(d, &views[i]));
    return list;
}

static bool model_known(struct tb_daemon *d, const char *model)
{
    uint32_t cursor = 0;
    struct tb_catalog_model m;
    while (tb_catalog_model_at(d->catalog, &cursor, &m)) {
        if (strcmp(m.name.text, model) == 0) return true;
    }
    return false;
}

static enum tb_status model_unknown(const char *model, char *error)
{
    snprintf(error, 256, "no model \"%.64s\" is configured here", model);
    return TB_NOT_FOUND;
}

static enum tb_status cmd_versions(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    const char *model = json_string_value(json_object_get(request, "model"));
    if (model != NULL && !model_known(d, model)) return model_unknown(model, error);
    lacking = false;
    uint32_t count;
    put(reply, "versions", versions_json(d, model, &count));
    set_u64(reply, "version_count", count);
    return lacking ? TB_SITE_NOMEM : TB_OK;
}

const struct tb_control_command tb_status_commands[] = {
    {"status", cmd_status},
    {"versions", cmd_versions},
    {"streams", tb_status_streams},
    {"lag", tb_status_lag},
    {"chains", tb_status_chains},
    {"withdraw", tb_audited_withdraw},
    {"pin", tb_audited_pin},
    {"unpin", tb_audited_unpin},
    {"rollback", tb_audited_rollback},
    {"limit", tb_audited_limit},
    {"adopt", tb_audited_adopt},
    {"drain", tb_audited_drain},
    {"audit", tb_audit_command},
    {"events", tb_events_command},
    {"verify", tb_verify_command},
    {"reload", tb_reload_command},
    {"config", tb_reload_config_command},
    {"backup", tb_audited_backup},
    {"pause", tb_audited_pause},
    {"resume", tb_audited_resume},
    {"digests", tb_status_digests},
    {"gc", tb_audited_gc},
    {NULL, NULL},
};

const struct tb_control_command tb_status_reading_commands[] = {
    {"status", cmd_status},
    {"versions", cmd_versions},
    {"streams", tb_status_streams},
    {"lag", tb_status_lag},
    {"chains", tb_status_chains},
    {"withdraw", tb_audited_refusal},
    {"pin", tb_audited_refusal},
    {"unpin", tb_audited_refusal},
    {"rollback", tb_audited_refusal},
    {"limit", tb_audited_refusal},
    {"adopt", tb_audited_refusal},
    {"drain", tb_audited_refusal},
    {"verify", tb_audited_refusal},
    {"audit", tb_audited_refusal},
    {"reload", tb_audited_refusal},
    {"config", tb_reload_config_command},
    {"events", tb_events_command},
    {"backup", tb_audited_refusal},
    {"pause", tb_audited_refusal},
    {"resume", tb_audited_refusal},
    {"digests", tb_audited_refusal},
    {"gc", tb_audited_refusal},
    {NULL, NULL},
};

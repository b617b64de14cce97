/* lag_status.c - what the operator's socket says of sites: "lag", and who holds a
 * version (docs/control.md).
 *
 * P10: this site's row is its own state (site_lag.h). A row of another site is its record
 * (catalog/records.h) and nothing else; tests/fence/views.py holds this file to that. What is
 * not known now is null. */
#include <jansson.h>
#include <string.h>

#include "gateway/catalog/records.h"
#include "gateway/catalog/usage.h"

#include "gateway/daemon/control/lag_status.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/persist.h"

static bool append(json_t *list, json_t *row)
{
    return json_array_append_new(list, row) == 0;
}

static json_t *integer(bool known, uint64_t value)
{
    return known ? json_integer((json_int_t)value) : json_null();
}

static json_t *which(const struct tb_site_which *w)
{
    if (tb_site_which_none(w)) return json_null();
    return json_sprintf("%llu:%llu", (unsigned long long)w->run_order, (unsigned long long)w->number);
}

static json_t *eta(const struct tb_site_state *s, uint16_t reason)
{
    if (s->eta_high_ms == 0 || !tb_lag_moves(reason)) return json_null();
    return json_pack("[f, f]", (double)s->eta_low_ms / 1e3, (double)s->eta_high_ms / 1e3);
}

static uint32_t peer_of(const struct tb_daemon *d, const struct tb_name *site)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (tb_name_equal(&d->config->peers[i].site, site)) return i;
    return UINT32_MAX;
}

/* ---- a row ---- */

struct lag_row {
    const struct tb_catalog_model *model;
    const struct tb_name *site, *via;
    bool known;
    tb_time_ns heard_at; /* 0: never */
    struct tb_site_which head, latest, active;
    uint32_t versions;
    uint64_t left_bytes, behind_ms;
    uint16_t reason;
    json_t *eta; /* taken */
    char evidence[TB_LINKS_ERROR_BYTES + TB_NAME_BYTES_MAX + 8];
};

static json_t *row_json(const struct lag_row *r)
{
    const bool heard = r->heard_at != 0;
    const double age_s = heard ? (double)tb_time_since(r->heard_at, tb_clock_now()) / 1e9 : 0;
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:s, s:o}",
                     "model", r->model->name.text, "site", r->site->text, "home", r->model->home.text, "via",
                     r->via->text, "known", r->known, "heard_s", heard ? json_real(age_s) : json_null(),
                     "head", which(&r->head), "latest", which(&r->latest), "active", which(&r->active),
                     "versions", integer(r->known, r->versions), "bytes", integer(r->known, r->left_bytes),
                     "seconds", r->known ? json_real((double)r->behind_ms / 1e3) : json_null(), "reason",
                     tb_lag_name(r->reason), "why", tb_lag_why(r->reason), "evidence", r->evidence, "eta_s",
                     r->eta);
}

/* ---- evidence: what of this gateway's own a reason rests on ---- */

/* " (50Mbit)": what an operator set. */
static void rate_text(const struct tb_peer_limit *limit, char out[TB_RATE_CHARS + 4])
{
    char rate[TB_RATE_CHARS];
    out[0] = '\0';
    if (limit->bit_per_s == 0) return;
    tb_rate_format(limit->bit_per_s, rate);
    (void)snprintf(out, TB_RATE_CHARS + 4, " (%s)", rate);
}

/* This gateway's link to a peer; `sends`: what crosses goes there. */
static void evidence_link(struct tb_daemon *d, struct lag_row *r, uint32_t peer, bool sends)
{
    if (peer == UINT32_MAX) return;
    const struct tb_links_stats *stats = tb_site_link(d, peer);
    if (!stats->up || (r->reason == TB_LAG_MTU && stats->error[0] != '\0')) {
        (void)snprintf(r->evidence, sizeof r->evidence, "%s: %s", d->config->peers[peer].site.text,
                       stats->error[0] != '\0' ? stats->error : "not connected yet");
        return;
    }
    const enum tb_limit limit = tb_links_most_limit(stats);
    char cap[TB_RATE_CHARS + 4] = "";
    if (sends && limit == TB_LIMIT_CAP) rate_text(&d->limits[peer], cap);
    (void)snprintf(r->evidence, sizeof r->evidence, "%s %s: %llu bytes/s over %u streams, rtt %.1f ms%s%s%s",
                   sends ? "to" : "from", d->config->peers[peer].site.text,
                   (unsigned long long)d->goodput[peer].bytes_per_s, stats->stream_count,
                   (double)stats->rtt / 1e6, sends ? ", limited by " : "", sends ? tb_limit_name(limit) : "",
                   cap);
}

static void evidence_day_here(struct tb_daemon *d, const struct tb_site_lag *l, struct lag_row *r)
{
    if (l->spent_from == UINT32_MAX) return;
    (void)snprintf(r->evidence, sizeof r->evidence,
                   "from %s: it says that they are used up, the day ends in %llu s",
                   d->config->peers[l->spent_from].site.text, (unsigned long long)tb_limits_day_ends_s());
}

static void evidence_day_there(struct tb_daemon *d, uint32_t peer, struct lag_row *r)
{
    const struct tb_budget *b = &d->limits[peer].budget;
    (void)snprintf(r->evidence, sizeof r->evidence,
                   "to %s: %llu of %llu bytes are used, the day ends in %llu s",
                   d->config->peers[peer].site.text, (unsigned long long)b->used_bytes,
                   (unsigned long long)b->day_bytes, (unsigned long long)tb_limits_day_ends_s());
}

static void evidence_room(struct tb_daemon *d, const struct tb_site_lag *l, struct lag_row *r)
{
    const uint32_t slots = l->copy->key.shard_count + 1;
    struct tb_arena_budget budget;
    tb_arena_budget(d->arena, &budget);
    if (slots > budget.slots_free)
        (void)snprintf(r->evidence, sizeof r->evidence, "%u slots needed, %u of %u free", slots,
                       budget.slots_free, budget.slots);
    else
        (void)snprintf(r->evidence, sizeof r->evidence, "%llu bytes needed, %llu free in one piece",
                       (unsigned long long)l->copy->room_bytes,
                       (unsigned long long)budget.largest_free_bytes);
}

static void evidence_shards(const struct tb_site_lag *l, struct lag_row *r)
{
    if (l->copy == NULL)
        (void)snprintf(r->evidence, sizeof r->evidence, "none of its shards is here");
    else
        (void)snprintf(r->evidence, sizeof r->evidence, "%u of %u shards are here", l->shards_here,
                       l->copy->key.shard_count);
}

/* A model may not have all rows of the table. */
static void evidence_table(struct tb_daemon *d, struct lag_row *r)
{
    static const char versions[] = "versions";
    struct tb_catalog_table t;
    char most[TB_CATALOG_TEXT_MAX] = "";
    const uint32_t rows = tb_catalog_table_most(d->catalog, versions, most);
    if (rows >= d->bounds.model_versions && strcmp(most, r->model->name.text) == 0) {
        (void)snprintf(r->evidence, sizeof r->evidence,
                       "the model uses %u of the %u rows of %s that it may have", rows,
                       d->bounds.model_versions, versions);
        return;
    }
    for (uint32_t cursor = 0; tb_catalog_table_at(d->catalog, &cursor, &t);)
        if (strcmp(t.name, versions) == 0)
            (void)snprintf(r->evidence, sizeof r->evidence,
                           "%u of %u rows of %s are used, %u of them by %.64s", t.used, t.bound, versions,
                           rows, most);
}

/* The gateway's configuration has the list that lacks the identity: this gateway, or the peer at
 * whose site it is read. */
static void evidence_right(struct lag_row *r, const char *whose, const struct tb_name *site,
                           const struct tb_name *gateway)
{
    const struct tb_identity lacks = {.kind = TB_IDENTITY_GATEWAY, .site = *site, .name = *gateway};
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&lacks, uri);
    (void)snprintf(r->evidence, sizeof r->evidence, "%s: models.%s.read lacks %s", whose, r->model->name.text,
                   uri);
}

/* A relay passes on that it lacks the right, too: then no list is known that lacks this gateway. */
static void evidence_right_here(struct tb_daemon *d, const struct tb_site_lag *l, struct lag_row *r)
{
    if (l->source == UINT32_MAX || !tb_site_link(d, l->source)->up) return;
    if (tb_links_denied(d->links, l->source, &r->model->name))
        evidence_right(r, d->config->peers[l->source].site.text, &d->config->site, &d->config->gateway);
}

static void evidence_here(struct tb_daemon *d, const struct tb_site_lag *l, struct lag_row *r)
{
    switch (r->reason) {
    case TB_LAG_UP_TO_DATE:
    case TB_LAG_NOT_ACTIVATING:
    case TB_LAG_NO_SUBSCRIBER:
        break;
    case TB_LAG_STORE:
        (void)snprintf(r->evidence, sizeof r->evidence, "%u rows wait for %s", tb_persist_waiting(d),
                       d->config->store_path);
        break;
    case TB_LAG_NO_ROOM:
        evidence_room(d, l, r);
        break;
    case TB_LAG_PUBLISHING:
        evidence_shards(l, r);
        break;
    case TB_LAG_BUDGET:
        evidence_day_here(d, l, r);
        break;
    case TB_LAG_TABLE:
        evidence_table(d, r);
        break;
    case TB_LAG_RECEIVER_MEMORY:
        (void)snprintf(r->evidence, sizeof r->evidence, "%s", tb_status_text(l->copy->failed));
        break;
    case TB_LAG_DENIED:
        evidence_right_here(d, l, r);
        break;
    default:
        evidence_link(d, r, l->source, false);
        break;
    }
}

/* P8: the right that it lacks is why nothing is known of it, or why it gets nothing. */
static bool denied(struct tb_daemon *d, const struct tb_name *model, const struct tb_name *site)
{
    const uint32_t peer = peer_of(d, site);
    return peer != UINT32_MAX && tb_site_link(d, peer)->up && tb_site_denied(d, peer, model);
}

/* Of a site behind a relay this gateway knows no more than what the relay said, while
 * the relay's link is up. */
static void evidence_relayed(struct tb_daemon *d, struct lag_row *r)
{
    const uint32_t relay = peer_of(d, r->via);
    if (relay != UINT32_MAX && !tb_site_link(d, relay)->up)
        evidence_link(d, r, relay, true);
    else
        (void)snprintf(r->evidence, sizeof r->evidence, "as %s says", r->via->text);
}

static void evidence_there(struct tb_daemon *d, struct lag_row *r)
{
    const uint32_t peer = peer_of(d, r->site);
    if (!tb_name_equal(r->via, r->site))
        evidence_relayed(d, r);
    else if (peer == UINT32_MAX || tb_lag_is_current(r->reason))
        return;
    else if (r->reason == TB_LAG_DENIED && !denied(d, &r->model->name, r->site))
        return;
    else if (r->reason == TB_LAG_DENIED)
        evidence_right(r, d->site.text, &d->config->peers[peer].of, &d->config->peers[peer].gateway);
    else if (r->reason == TB_LAG_BUDGET)
        evidence_day_there(d, peer, r);
    else
        evidence_link(d, r, peer, true);
}

/* ---- this site ---- */

static json_t *row_here(struct tb_daemon *d, const struct tb_catalog_model *m, struct tb_site_lag *l)
{
    tb_site_lag_here(d, m, l);
    struct lag_row r = {.model = m,
                        .site = &d->site,
                        .via = &d->site,
                        .known = l->known,
                        .heard_at = l->heard_at,
                        .head = l->state.head,
                        .latest = tb_site_newest(&l->state),
                        .active = l->state.active,
                        .versions = l->state.versions,
                        .left_bytes = l->state.left_bytes,
                        .behind_ms = l->state.behind_ms,
                        .reason = l->state.reason};
    r.eta = eta(&l->state, r.reason);
    evidence_here(d, l, &r);
    return row_json(&r);
}

/* ---- another site ---- */

/* What it said of its head may be older than the head here by as much as it takes to say so. */
static uint16_t reason_of(const struct tb_record *record, const struct tb_record_behind *b)
{
    if (!record->known) return record->why;
    const uint16_t reason = record->state.reason;
    if (b->versions > 0 && tb_lag_is_current(reason)) return TB_LAG_QUEUED;
    return b->versions == 0 && tb_lag_moves(reason) ? TB_LAG_UP_TO_DATE : reason;
}

static json_t *row_there(struct tb_daemon *d, const struct tb_site_lag *home, const struct tb_record *record)
{
    const struct tb_site_state *s = &record->state;
    const struct tb_record_behind b = tb_record_behind(&home->state, s);
    struct lag_row r = {.model = home->model,
                        .site = &s->site,
                        .via = &record->via,
                        .known = record->known,
                        .heard_at = record->heard_at,
                        .head = home->state.head,
                        .latest = tb_site_newest(s),
                        .active = s->active,
                        .versions = b.versions,
                        .left_bytes = b.left_bytes,
                        .behind_ms = b.versions > 0 ? s->behind_ms : 0,
                        .reason = reason_of(record, &b)};
    if (denied(d, &home->model->name, &s->site)) {
        r.known = false;
        r.reason = TB_LAG_DENIED;
    }
    if (b.versions > 0 && s->behind_ms > 0)
        r.behind_ms += tb_time_since(record->heard_at, tb_clock_now()) / TB_MS(1);
    r.eta = r.known ? eta(s, r.reason) : json_null();
    evidence_there(d, &r);
    return row_json(&r);
}

static bool rows_of_model(struct tb_daemon *d, const struct tb_catalog_model *m, json_t *list)
{
    static struct tb_site_lag here; /* large; the main loop's alone */
    static struct tb_record record;
    bool all = append(list, row_here(d, m, &here));
    for (uint32_t cursor = 0; m->is_home && tb_record_at(d->catalog, &cursor, &record);)
        if (tb_name_equal(&record.state.model, &m->name)) all &= append(list, row_there(d, &here, &record));
    return all;
}

enum tb_status tb_status_lag(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    const char *wanted = json_string_value(json_object_get(request, "model"));
    json_t *list = json_array();
    uint32_t cursor = 0;
    bool all = true, found = wanted == NULL;
    struct tb_catalog_model m;
    while (tb_catalog_model_at(d->catalog, &cursor, &m)) {
        if (wanted != NULL && strcmp(m.name.text, wanted) != 0) continue;
        found = true;
        if (m.is_home || m.subscribed) all &= rows_of_model(d, &m, list);
    }
    all &= json_object_set_new(reply, "lag", list) == 0;
    if (found) return all ? TB_OK : TB_SITE_NOMEM;
    (void)snprintf(error, 256, "no model \"%.64s\" is configured here", wanted);
    return TB_NOT_FOUND;
}

/* ---- versions ---- */

static json_t *site_json(const struct tb_record *r, const struct tb_site_held *h)
{
    const bool active = tb_site_which_compare(&r->state.active, &h->which) >= 0;
    const bool known = r->known;
    return json_pack("{s:s, s:s, s:b, s:o, s:o, s:o}", "site", r->state.site.text, "via", r->via.text,
                     "known", known, "held_bytes", integer(known, h->held_bytes), "whole",
                     known ? json_boolean((h->marks & TB_SITE_WHOLE) != 0) : json_null(), "activated",
                     known ? json_boolean(active) : json_null());
}

json_t *tb_status_sites_of(struct tb_daemon *d, const struct tb_version_key *key)
{
    static struct tb_record r; /* large; the main loop's alone */
    json_t *list = json_array();
    for (uint32_t cursor = 0; list != NULL && tb_record_at(d->catalog, &cursor, &r);) {
        const struct tb_site_held *h = tb_site_held_find(&r.state, &key->uid);
        if (h == NULL || (h->held_bytes == 0 && (h->marks & TB_SITE_ACTIVATED) == 0)) continue;
        if (append(list, site_json(&r, h))) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

bool tb_status_nobodys(struct tb_daemon *d, const struct tb_catalog_version_view *v)
{
    static struct tb_record r; /* large; the main loop's alone */
    const bool over = v->state == TB_VERSION_RETIRED ||
                      ((v->state == TB_VERSION_READY || v->state == TB_VERSION_KEPT) && !v->head);
    if (!over || v->held_chunks > 0 || v->whole || v->arriving || v->evicting || v->pinned || v->wanted)
        return false;
    if (v->publishers > 0 || v->workers > 0) return false;
    for (uint32_t cursor = 0; tb_record_at(d->catalog, &cursor, &r);)
        if (tb_site_held_find(&r.state, &v->key.uid) != NULL) return false;
    return true;
}

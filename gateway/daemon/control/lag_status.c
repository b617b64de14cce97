/* lag_status.c - what the operator's socket says of sites: "lag", and who holds a
 * version (docs/control.md).
 *
 * P10: this site's row is its own state (site_lag.h). A row of another site is its record
 * (catalog/records.h) and nothing else; tests/fence/views.py holds this file to that. A number that
 * is not known now is null. */
#include <jansson.h>
#include <string.h>

#include "gateway/catalog/records.h"
#include "gateway/catalog/usage.h"

#include "base/assert.h"
#include "gateway/daemon/control/lag_evidence.h"
#include "gateway/daemon/control/lag_status.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/models/model_waiting.h"

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
    char evidence[TB_EVIDENCE_BYTES];
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

/* P8: the right that it lacks is why nothing is known of it, or why it gets nothing. */
static bool denied(struct tb_daemon *d, const struct tb_name *model, const struct tb_name *site)
{
    const uint32_t peer = tb_peer_index(d, site);
    return peer != UINT32_MAX && tb_site_lag_link(d, peer)->up && tb_site_lag_denied(d, peer, model);
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
    tb_evidence_here(d, l, r.evidence);
    return row_json(&r);
}

/* ---- another site ---- */

/* The site may not have heard of the head here when it said what it has. One that has heard of it,
 * and says that nobody wants it, takes the model from nobody. */
static uint16_t reason_of(const struct tb_record *record, const struct tb_record_behind *b)
{
    if (!record->known) return record->why;
    const uint16_t reason = record->state.reason;
    const bool unwanted = reason == TB_LAG_NO_SUBSCRIBER && record->state.versions > 0;
    if (b->versions > 0 && tb_lag_is_current(reason) && !unwanted) return TB_LAG_QUEUED;
    return b->versions == 0 && tb_lag_is_of_lack(reason) ? TB_LAG_UP_TO_DATE : reason;
}

static json_t *row_there(struct tb_daemon *d, const struct tb_site_lag *home, const struct tb_record *record)
{
    TB_ASSERT(home->model->is_home && tb_name_equal(&record->state.model, &home->model->name));
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
    tb_evidence_there(d, record, r.reason, r.evidence);
    return row_json(&r);
}

static bool rows_of_model(struct tb_daemon *d, const struct tb_catalog_model *m, json_t *list)
{
    TB_ASSERT(m->is_home || m->subscribed);
    static struct tb_site_lag here; /* large; the main loop's alone */
    static struct tb_record record;
    bool all = append(list, row_here(d, m, &here));
    for (uint32_t cursor = 0; m->is_home && tb_record_at(d->catalog, &cursor, &record);)
        if (tb_name_equal(&record.state.model, &m->name)) all &= append(list, row_there(d, &here, &record));
    return all;
}

/* ---- a model that waits for a row here ---- */

static bool row_waiting(struct tb_daemon *d, const struct tb_model_waiting *w, json_t *list)
{
    const struct tb_catalog_model model = {.name = w->model, .home = w->home};
    struct lag_row r = {.model = &model,
                        .site = &d->site,
                        .via = &d->site,
                        .known = true,
                        .heard_at = w->said_at,
                        .head = w->head,
                        .versions = w->versions,
                        .left_bytes = w->bytes,
                        .behind_ms = tb_time_since(w->since, tb_clock_now()) / TB_MS(1),
                        .reason = TB_LAG_TABLE,
                        .eta = json_null()};
    tb_evidence_waiting(d, r.evidence);
    return append(list, row_json(&r));
}

static bool rows_waiting(struct tb_daemon *d, const char *wanted, json_t *list, bool *found)
{
    const struct tb_model_waiting *w;
    bool all = true;
    for (uint32_t cursor = 0; (w = tb_model_waiting_at(d, &cursor)) != NULL;) {
        if (wanted != NULL && strcmp(w->model.text, wanted) != 0) continue;
        *found = true;
        all &= row_waiting(d, w, list);
    }
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
    all &= rows_waiting(d, wanted, list, &found);
    all &= json_object_set_new(reply, "lag", list) == 0;
    if (found) return all ? TB_OK : TB_SITE_NOMEM;
    (void)snprintf(error, 256, "no model \"%.64s\" is configured here", wanted);
    return TB_NOT_FOUND;
}

/* Of what is held of it, or as its peer announced it. */
json_t *tb_status_head_bytes(struct tb_daemon *d, const struct tb_site_lag *l)
{
    for (uint32_t i = 0; l->known && i < l->state.held_count; i++)
        if (tb_site_which_compare(&l->state.held[i].which, &l->state.head) == 0)
            return json_integer((json_int_t)l->state.held[i].bytes);
    const uint64_t bytes =
        l->known && tb_peer_links(d) != NULL ? tb_links_announced_bytes(d->links, &l->head) : 0;
    return bytes > 0 ? json_integer((json_int_t)bytes) : json_null();
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

/* site_records.c - what this site says of itself to its peers, what they say, and what it passes on
 * as a relay (records.h).
 *
 * STATE goes out when it changes, at most once a second, and with a new serial whenever a
 * link comes up or goes down: a site that lost one way to here then believes the word
 * that comes by another. */
#include "gateway/daemon/links/site_lag.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/catalog/records.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/link_reports.h"
#include "gateway/daemon/links/pauses.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/site_records.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/models/model_wake.h"
#include "wan/link/links_messages.h"
#include "wan/link/links_stats.h"

#define TOLD_EVERY TB_SECONDS(10)

/* ---- saying ---- */

/* P8: the home of a model subscribes to it everywhere, for what rots there. That gives nobody a
 * right to hear of its versions. */
static bool may_hear(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    struct tb_name home;
    if (!tb_home_of(d, model, &home) || !tb_name_equal(&home, &d->site)) return true;
    return !tb_site_lag_denied(d, peer, model);
}

static void tell(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *s)
{
    TB_ASSERT(peer < d->config->peer_count);
    if (tb_name_equal(&d->config->peers[peer].site, &s->site) || !may_hear(d, peer, &s->model)) return;
    TB_MOOT(
        tb_links_tell_state(d->links, peer, s)); /* down: told when it comes up; denied: not meant for it */
}

/* A record as a relay says it. False: it was passed on often enough. */
static bool passed_on(const struct tb_record *r, struct tb_site_state *s)
{
    *s = r->state;
    s->hops++;
    s->known = r->known;
    if (r->heard_at != 0) s->age_ms = tb_time_since(r->heard_at, tb_clock_now()) / TB_MS(1);
    if (r->known) return s->hops <= TB_SITE_HOPS_MAX;
    *s = (struct tb_site_state){.site = r->state.site,
                                .model = r->state.model,
                                .hops = s->hops,
                                .incarnation = s->incarnation,
                                .serial = s->serial,
                                .reason = r->why,
                                .age_ms = s->age_ms};
    return s->hops <= TB_SITE_HOPS_MAX;
}

/* Not back to the peer whose word it is. */
static void pass_to(struct tb_daemon *d, uint32_t peer, const struct tb_record *r)
{
    TB_ASSERT(peer < d->config->peer_count);
    static struct tb_site_state s; /* large; the main loop's alone */
    if (tb_name_equal(&d->config->peers[peer].site, &r->via) || !passed_on(r, &s)) return;
    tell(d, peer, &s);
}

static void pass_on(struct tb_daemon *d, const struct tb_record *r)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        pass_to(d, i, r);
}

static bool links_there(const struct tb_daemon *d)
{
    return d->links != NULL && !d->links_restarting;
}

/* P10: of a model of this home that sleeps no version is left. A peer that was away then still
 * shows the last one. */
static void tell_of_sleeper(struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    static struct tb_site_state s; /* large; the main loop's alone */
    struct tb_name home;
    if (!links_there(d) || tb_model_row_of(d, model) != TB_MODEL_NONE) return;
    if (!tb_home_of(d, model, &home) || !tb_name_equal(&home, &d->site)) return;
    s = (struct tb_site_state){
        .site = d->site, .model = *model, .known = true, .incarnation = d->incarnation, .serial = 1};
    tell(d, peer, &s);
}

void tb_site_records_tell(struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    TB_ASSERT(peer < d->config->peer_count);
    if (model != NULL) tell_of_sleeper(d, peer, model);
    static struct tb_record r; /* large; the main loop's alone */
    TB_EACH_MODEL(d, i)
    {
        const bool told = d->own[i]->said_at != 0 && links_there(d);
        if (told && (model == NULL || tb_name_equal(model, tb_model_name(d, i))))
            tell(d, peer, &d->own[i]->said);
    }
    for (uint32_t cursor = 0; links_there(d) && tb_record_at(d->catalog, &cursor, &r);)
        if (model == NULL || tb_name_equal(model, &r.state.model)) pass_to(d, peer, &r);
}

/* Numbers that change with time alone are left out. */
static bool changed(const struct tb_site_state *a, const struct tb_site_state *b)
{
    if (a->reason != b->reason || a->versions != b->versions || a->left_bytes != b->left_bytes) return true;
    if (tb_site_which_compare(&a->head, &b->head) != 0 || tb_site_which_compare(&a->active, &b->active) != 0)
        return true;
    if (a->held_count != b->held_count || a->eta_high_ms != b->eta_high_ms) return true;
    for (uint32_t i = 0; i < a->held_count; i++) {
        const struct tb_site_held *x = &a->held[i], *y = &b->held[i];
        if (!tb_id_equal(&x->uid, &y->uid) || x->marks != y->marks || x->held_bytes != y->held_bytes ||
            x->bytes != y->bytes)
            return true;
    }
    return false;
}

static void say_own(struct tb_daemon *d, const struct tb_catalog_model *m, bool again)
{
    static struct tb_site_lag lag; /* large; the main loop's alone */
    const tb_time_ns now = tb_clock_now();
    tb_site_lag_here(d, m, &lag);
    struct tb_site_own *own = lag.own;
    const bool due = own->said_at == 0 || again || tb_time_since(own->said_at, now) >= TOLD_EVERY;
    if (!due && !changed(&lag.state, &own->said)) return;
    lag.state.serial = own->said.serial + 1;
    TB_ASSERT(lag.state.incarnation >= own->said.incarnation); /* or peers take it for an older word */
    own->said = lag.state;
    own->said_at = now;
    for (uint32_t i = 0; links_there(d) && i < d->config->peer_count; i++)
        tell(d, i, &own->said);
}

/* Models of patterns may be hundreds, and each looks at all versions here: those that rest have
 * their turn every so many seconds, within TOLD_EVERY. */
#define REST_TURNS 8u

static bool rests(const struct tb_daemon *d, uint32_t row)
{
    if (!tb_model_is_of_pattern(row) || row % REST_TURNS == d->models.ticks % REST_TURNS) return false;
    const struct tb_site_own *own = d->own[row];
    const tb_time_ns used_at = d->models.rows[row].used_at;
    return own->said_at != 0 && own->said.versions == 0 &&
           tb_time_since(used_at, tb_clock_now()) > TB_SECONDS(REST_TURNS);
}

static void say_all(struct tb_daemon *d, bool again)
{
    struct tb_catalog_model m;
    for (uint32_t cursor = 0; tb_catalog_model_at(d->catalog, &cursor, &m);) {
        const uint32_t row = tb_model_row_of(d, &m.name);
        if (row != TB_MODEL_NONE && (again || !rests(d, row))) say_own(d, &m, again);
    }
}

/* ---- hearing ---- */

/* Each looks at all versions here. */
#define ANSWERS_A_SECOND 20u

/* P10: this site's word about itself rests on home's word. Until the next tick its peers would have
 * a reason of the time before, such as that of a link which is up again. P7: a peer that says much
 * is answered twenty times a second, whatever models it speaks of. */
static void answer_home(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *s)
{
    TB_ASSERT(peer < d->config->peer_count);
    struct tb_catalog_model m;
    if (d->home_answers[peer] >= ANSWERS_A_SECOND) return;
    const tb_time_ns now = tb_clock_now();
    for (uint32_t cursor = 0; tb_catalog_model_at(d->catalog, &cursor, &m);) {
        if (!tb_name_equal(&m.name, &s->model) || !tb_name_equal(&m.home, &s->site)) continue;
        struct tb_site_own *own = tb_site_lag_own(d, &m.name);
        if (own->answered_at != 0 && tb_time_since(own->answered_at, now) < TB_MS(50)) continue;
        own->answered_at = now;
        d->home_answers[peer]++;
        say_own(d, &m, false);
    }
}

/* P10: a model that its home has finds no row here. Its home would show that nothing was heard of
 * it. */
static void tell_that_it_waits(struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    static struct tb_site_state s; /* large; the main loop's alone */
    if (!links_there(d) || d->home_answers[peer] >= ANSWERS_A_SECOND) return;
    const struct tb_model_waiting *w = tb_model_waiting_find(d, model);
    if (w == NULL) return;
    d->home_answers[peer]++;
    s = (struct tb_site_state){.site = d->site,
                               .model = *model,
                               .known = true,
                               .incarnation = d->incarnation,
                               .serial = 1,
                               .reason = TB_LAG_TABLE,
                               .head = w->head,
                               .versions = w->versions,
                               .left_bytes = w->bytes,
                               .behind_ms = tb_time_since(w->since, tb_clock_now()) / TB_MS(1)};
    tell(d, peer, &s);
}

static void announced(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *s)
{
    if (s->hops > 0 || tb_site_which_none(&s->head)) return;
    if (tb_model_announced(d, peer, &s->model) != TB_SITE_NOMEM) return;
    tb_model_waits(d, s);
    tell_that_it_waits(d, peer, &s->model);
}

void tb_site_records_state(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *s)
{
    TB_ASSERT(peer < d->config->peer_count);
    static struct tb_record r; /* large; the main loop's alone */
    const struct tb_name *via = &d->config->peers[peer].site;
    if (!tb_name_equal(&s->site, &d->site) && !tb_peer_speaks_for(d->config, peer, &s->site)) {
        tb_reports_disbelieved(d, peer, &s->site);
        return;
    }
    const enum tb_status status = tb_record_put(d->catalog, tb_clock_now(), via, s);
    announced(d, peer, s);
    if (status == TB_OK && tb_record_get(d->catalog, &s->site, &s->model, &r)) pass_on(d, &r);
    if (status == TB_OK) answer_home(d, peer, s);
    if (status != TB_SITE_NOMEM || d->records_full_told) return;
    d->records_full_told = true; /* once a start: the table is as large as peers and models make it */
    tb_log(TB_LOG_WARN, "link.state_refused", "peer=%s site=%s model=%s status=site_nomem", via->text,
           s->site.text, s->model.text);
}

static void pass_on_of(struct tb_daemon *d, const struct tb_name *via)
{
    static struct tb_record r; /* large; the main loop's alone */
    for (uint32_t cursor = 0; links_there(d) && tb_record_at(d->catalog, &cursor, &r);)
        if (tb_name_equal(&r.via, via)) pass_on(d, &r);
}

/* Its link is up, and it says nothing of a model that it spoke of: it does not follow it any more,
 * or something is wrong with it. A peer of the release before says no STATE at all. */
static void silent(struct tb_daemon *d, uint32_t peer)
{
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    const struct tb_name *via = &d->config->peers[peer].site;
    const tb_time_ns most = tb_time_add(3 * TOLD_EVERY, TB_MS(d->config->link_down_ms));
    if (!stats->up || stats->protocol < TB_LINKS_PROTOCOL_STATE) return;
    if (tb_records_silent(d->catalog, tb_clock_now(), via, most, TB_LAG_UNKNOWN)) pass_on_of(d, via);
}

/* Its link is down: so is what is known through it, and those behind this site hear so. */
static void lost(struct tb_daemon *d, uint32_t peer)
{
    const struct tb_name *via = &d->config->peers[peer].site;
    const enum tb_lag_reason why = tb_site_lag_link_reason(d, peer);
    if (why == TB_LAG_UP_TO_DATE) return;
    if (tb_records_lost(d->catalog, tb_clock_now(), via, (uint16_t)why)) pass_on_of(d, via);
}

void tb_site_records_link(struct tb_daemon *d, uint32_t peer, bool up)
{
    if (!up) lost(d, peer);
    const struct tb_name *via = &d->config->peers[peer].site;
    if (up) tb_records_awaited(d->catalog, tb_clock_now(), via, TB_LAG_UNKNOWN);
    if (up) tb_site_records_tell(d, peer, NULL);
    d->records_again = true;
}

/* ---- a peer of the release before, which says no STATE ---- */

static void held_there(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *own,
                       struct tb_site_state *s, struct tb_links_progress *head)
{
    for (uint32_t i = 0; i < own->held_count; i++) {
        struct tb_links_progress p = {0};
        struct tb_site_held h = own->held[i];
        const bool is_head = tb_site_which_compare(&h.which, &own->head) == 0;
        if (tb_links_peer_progress(d->links, peer, &h.uid, &p) != TB_OK) continue;
        if (is_head) *head = p;
        if (p.held_chunks == 0 && !p.whole) continue;
        const bool whole = p.whole || p.held_chunks == p.chunks;
        h.held_bytes = whole ? h.bytes : h.bytes / p.chunks * p.held_chunks;
        h.marks = (uint8_t)(TB_SITE_READY | (whole ? TB_SITE_WHOLE : 0));
        TB_ASSERT(s->held_count < TB_SITE_HELD_MAX);
        s->held[s->held_count++] = h;
    }
}

static uint16_t reason_there(struct tb_daemon *d, uint32_t peer, const struct tb_links_progress *head,
                             const struct tb_site_state *s)
{
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    struct tb_lag_facts facts = {.subscribed = true, .heard = true, .has_groups = true, .used = true};
    facts.behind = s->versions > 0;
    facts.spent = tb_budget_state(&d->limits[peer].budget) == TB_BUDGET_HELD;
    facts.paused = tb_pause_of_peer(d, peer) != NULL || tb_pause_of_model(d, &s->model) != NULL;
    facts.begun = head->crossing;
    facts.holdup = stats->holdup;
    facts.mtu = stats->why == TB_LINKS_WHY_MTU;
    facts.still = tb_lag_stands(&d->goodput[peer].pace, head->begun_for);
    return (uint16_t)tb_lag_reason_of(&facts);
}

/* Activated is what it reported. */
static void say_for(struct tb_daemon *d, uint32_t peer, const struct tb_site_own *own)
{
    TB_ASSERT(peer < d->config->peer_count && own->said_at != 0);
    static struct tb_site_state s; /* large; the main loop's alone */
    static struct tb_record r;
    struct tb_links_progress head = {0};
    const struct tb_name *site = &d->config->peers[peer].site;
    s = (struct tb_site_state){
        .site = *site, .model = own->said.model, .known = true, .head = own->said.head};
    const bool was = tb_record_get(d->catalog, site, &s.model, &r);
    if (was) s.active = r.state.active;
    held_there(d, peer, &own->said, &s, &head);
    const struct tb_record_behind b = tb_record_behind(&own->said, &s);
    s.versions = b.versions;
    s.left_bytes = b.left_bytes;
    s.reason = reason_there(d, peer, &head, &s);
    s.serial = r.state.serial;
    if (was && r.known && !changed(&s, &r.state)) return;
    s.serial++;
    tb_site_records_state(d, peer, &s);
}

static void say_for_old(struct tb_daemon *d, uint32_t peer)
{
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    if (!stats->up || stats->protocol >= TB_LINKS_PROTOCOL_STATE) return;
    TB_EACH_MODEL(d, i)
    if (d->own[i]->said_at != 0 && tb_name_equal(&tb_model_config(d, i)->home, &d->site))
        say_for(d, peer, d->own[i]);
}

/* ---- time ---- */

void tb_site_records_tick(struct tb_daemon *d)
{
    const bool again = d->records_again;
    d->records_again = false;
    memset(d->home_answers, 0, sizeof d->home_answers);
    say_all(d, again);
    for (uint32_t i = 0; links_there(d) && i < d->config->peer_count; i++) {
        if (d->config->peers[i].gone) continue;
        lost(d, i); /* the reason of a link that is down may be another now */
        silent(d, i);
        say_for_old(d, i);
    }
}

/* A site that was never heard of is shown, too. */
static void expect(struct tb_daemon *d, uint32_t peer, uint32_t model)
{
    TB_ASSERT(peer < d->config->peer_count);
    struct tb_site_state s = {.site = d->config->peers[peer].site, .model = *tb_model_name(d, model)};
    s.reason = TB_LAG_UNKNOWN;
    TB_MOOT(tb_record_put(d->catalog, tb_clock_now(), &s.site, &s));
}

static enum tb_status own_new(struct tb_daemon *d, uint32_t row)
{
    if (!tb_model_is_of_pattern(row)) return TB_OK;
    TB_ASSERT(d->own[row] == NULL);
    d->own[row] = tb_calloc(1, sizeof *d->own[row]);
    return d->own[row] != NULL ? TB_OK : TB_SITE_NOMEM;
}

enum tb_status tb_site_records_open(struct tb_daemon *d)
{
    TB_ASSERT(d->own_named == NULL);
    d->own_named = tb_calloc(TB_CONFIG_LIST_MAX, sizeof *d->own_named); /* a reload may add models */
    if (d->own_named == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < TB_CONFIG_LIST_MAX; i++)
        d->own[i] = &d->own_named[i];
    TB_EACH_MODEL(d, m)
    {
        const enum tb_status status = own_new(d, m);
        if (status != TB_OK) return status;
        for (uint32_t i = 0; i < d->config->peer_count; i++)
            expect(d, i, m);
    }
    return TB_OK;
}

enum tb_status tb_site_records_row_begins(struct tb_daemon *d, uint32_t row)
{
    const enum tb_status status = own_new(d, row);
    if (status != TB_OK) return status;
    const struct tb_name *home = &tb_model_config(d, row)->home;
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        const struct tb_config_peer *p = &d->config->peers[i];
        const bool concerned = tb_name_equal(home, &p->site) || tb_peer_may_read(d, i, tb_model_name(d, row));
        if (!p->gone && concerned) expect(d, i, row);
    }
    return TB_OK;
}

void tb_site_records_row_ends(struct tb_daemon *d, uint32_t row)
{
    TB_ASSERT(tb_model_is_of_pattern(row));
    tb_free(d->own[row]);
    d->own[row] = NULL;
}

void tb_site_records_changed(struct tb_daemon *d, const struct tb_config *was)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        if (d->config->peers[i].gone) continue;
        TB_EACH_MODEL(d, m)
        {
            const bool is_new = i >= was->peer_count || (m >= was->model_count && !tb_model_is_of_pattern(m));
            if (is_new) expect(d, i, m);
        }
    }
    d->records_again = true;
}

void tb_site_records_close(struct tb_daemon *d)
{
    for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++)
        tb_site_records_row_ends(d, i);
    tb_free(d->own_named);
    d->own_named = NULL;
}

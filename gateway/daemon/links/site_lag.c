/* site_lag.c - what this site holds of a model, how far it is behind, and why: its own state, as it
 * is shown here and told to other sites (site_records.c). */
#include "gateway/daemon/links/site_lag.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/records.h"
#include "gateway/catalog/versions.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/pauses.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/statements.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/rights.h"
#include "wan/link/links_pause.h"
#include "wan/link/links_stats.h"

struct tb_site_own *tb_site_lag_own(struct tb_daemon *d, const struct tb_name *model)
{
    const uint32_t row = tb_model_row_of(d, model);
    TB_ASSERT(d->own_named != NULL);
    /* The catalog has no other models. */
    return row != TB_MODEL_NONE && d->own[row] != NULL ? d->own[row] : &d->own_named[0];
}

/* Large, and the main loop's alone. */
const struct tb_links_stats *tb_site_lag_link(struct tb_daemon *d, uint32_t peer)
{
    static struct tb_links_stats stats;
    TB_ASSERT(peer < d->config->peer_count);
    memset(&stats, 0, sizeof stats);
    if (d->links != NULL && !d->links_restarting) tb_links_stats(d->links, peer, &stats);
    return &stats;
}

/* ---- links ---- */

enum tb_lag_reason tb_site_lag_link_reason(struct tb_daemon *d, uint32_t peer)
{
    static const enum tb_lag_reason by_why[] = {
        [TB_LINKS_WHY_NONE] = TB_LAG_LINK_DOWN, [TB_LINKS_WHY_DOWN] = TB_LAG_LINK_DOWN,
        [TB_LINKS_WHY_DNS] = TB_LAG_DNS,        [TB_LINKS_WHY_REFUSED] = TB_LAG_REFUSED,
        [TB_LINKS_WHY_TLS] = TB_LAG_TLS,        [TB_LINKS_WHY_IDENTITY] = TB_LAG_IDENTITY,
        [TB_LINKS_WHY_TWIN] = TB_LAG_TWIN,      [TB_LINKS_WHY_CLOCK] = TB_LAG_CLOCK,
        [TB_LINKS_WHY_MTU] = TB_LAG_MTU,        [TB_LINKS_WHY_REVOKED] = TB_LAG_REVOKED,
    };
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    TB_ASSERT((size_t)stats->why < sizeof by_why / sizeof by_why[0]);
    return stats->up ? TB_LAG_UP_TO_DATE : by_why[stats->why];
}

bool tb_site_lag_denied(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    TB_ASSERT(peer < d->config->peer_count);
    const struct tb_config_peer *p = &d->config->peers[peer];
    const struct tb_identity identity = {.kind = TB_IDENTITY_GATEWAY, .site = p->of, .name = p->gateway};
    return !tb_name_equal(&p->of, &d->config->site) && !tb_rights_may(d->config, model, &identity, false);
}

static uint32_t source_at(const struct tb_daemon *d, const struct tb_catalog_model *m, uint32_t i)
{
    if (m->from_count == 0) return d->config->peers[i].gone ? UINT32_MAX : i; /* any */
    for (uint32_t p = 0; i < m->from_count && p < d->config->peer_count; p++)
        if (tb_name_equal(&d->config->peers[p].site, &m->from[i])) return p;
    return UINT32_MAX;
}

static uint32_t source_count(const struct tb_daemon *d, const struct tb_catalog_model *m)
{
    return m->from_count > 0 ? m->from_count : d->config->peer_count;
}

/* The reason of one that could bring the model: that it can (TB_LAG_UP_TO_DATE), that it denies,
 * that its link is down. */
static enum tb_lag_reason source_reason(struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    const enum tb_lag_reason link = tb_site_lag_link_reason(d, peer);
    if (link != TB_LAG_UP_TO_DATE) return link;
    return tb_links_denied(d->links, peer, model) ? TB_LAG_DENIED : TB_LAG_UP_TO_DATE;
}

/* The first that can bring it, else the first that denies it, else the first. */
static void find_source(struct tb_daemon *d, struct tb_site_lag *l)
{
    TB_ASSERT(!l->model->is_home); /* it brings the model, and nobody brings it to it */
    l->source = UINT32_MAX;
    l->facts.link = TB_LAG_LINK_DOWN;
    for (uint32_t i = 0; i < source_count(d, l->model); i++) {
        const uint32_t peer = source_at(d, l->model, i);
        if (peer == UINT32_MAX) continue;
        const enum tb_lag_reason reason = source_reason(d, peer, &l->model->name);
        const bool better = l->source == UINT32_MAX || reason == TB_LAG_UP_TO_DATE ||
                            (reason == TB_LAG_DENIED && l->facts.link != TB_LAG_DENIED);
        if (!better) continue;
        l->source = peer;
        l->facts.link = reason;
        if (reason == TB_LAG_UP_TO_DATE) return;
    }
}

/* ---- what is held here ---- */

static void held_add(struct tb_site_state *s, const struct tb_site_held *h)
{
    TB_ASSERT(h->held_bytes <= h->bytes && s->held_count <= TB_SITE_HELD_MAX);
    uint32_t at = s->held_count;
    while (at > 0 && tb_site_which_compare(&s->held[at - 1].which, &h->which) < 0)
        at--;
    if (at > 0 && tb_site_which_compare(&s->held[at - 1].which, &h->which) == 0) return;
    if (at == TB_SITE_HELD_MAX) return;
    if (s->held_count < TB_SITE_HELD_MAX) s->held_count++;
    for (uint32_t i = s->held_count - 1; i > at; i--)
        s->held[i] = s->held[i - 1];
    s->held[at] = *h;
}

static uint64_t held_bytes(struct tb_daemon *d, const struct tb_catalog_version_view *v)
{
    const struct tb_copy *copy = tb_copy_find(d, &v->key.uid);
    const uint64_t held = copy != NULL ? tb_copy_held_bytes(copy) : 0;
    return v->whole || held > v->bytes ? v->bytes : held;
}

static void held_fill(struct tb_daemon *d, const struct tb_catalog_model *m, struct tb_site_state *s)
{
    static struct tb_catalog_version_view v; /* large; the main loop's alone */
    for (uint32_t cursor = 0; tb_catalog_version_at(d->catalog, &cursor, &v);) {
        const bool lives = v.state == TB_VERSION_READY || v.state == TB_VERSION_KEPT;
        if (!lives || v.evicting || !tb_name_equal(&v.key.model, &m->name)) continue;
        const struct tb_site_which which = {v.key.run_order, v.key.number};
        if (v.activated && tb_site_which_compare(&which, &s->active) > 0) s->active = which;
        if (!m->is_home && !v.whole && !v.arriving && !v.activated) continue;
        struct tb_site_held h = {.uid = v.key.uid, .which = which, .bytes = v.bytes};
        h.held_bytes = held_bytes(d, &v);
        h.marks = (uint8_t)(TB_SITE_READY | (v.whole && h.held_bytes == h.bytes ? TB_SITE_WHOLE : 0) |
                            (v.activated ? TB_SITE_ACTIVATED : 0));
        held_add(s, &h);
    }
}

/* ---- how far behind ---- */

/* Before its manifests are here the catalog does not know its size. */
static void lag_of_catalog(struct tb_daemon *d, struct tb_site_lag *l)
{
    if (tb_catalog_lag(d->catalog, tb_clock_now(), &l->model->name, &l->lag) != TB_OK || !l->lag.known)
        return;
    l->head = l->lag.head;
    l->state.head = (struct tb_site_which){l->lag.head_run_order, l->lag.head_number};
    l->state.versions = l->lag.versions;
    l->state.left_bytes = l->lag.bytes;
    if (l->lag.versions > 0 && l->lag.bytes == 0 && d->links != NULL && !d->links_restarting)
        l->state.left_bytes = tb_links_announced_bytes(d->links, &l->lag.head);
}

/* P8: a relay says why nothing is known of home: by a link, or for want of a right. Another word of
 * it is no such reason, and the evidence that it would need is not here: then it is unknown. */
static enum tb_lag_reason unheard_why(uint16_t why)
{
    const bool fits = tb_lag_is_of_link(why) || why == TB_LAG_DENIED || why == TB_LAG_MTU;
    return fits ? (enum tb_lag_reason)why : TB_LAG_UP_TO_DATE;
}

/* Home's own word counts, as it does at home. Until home has spoken of a head that was announced
 * already, the announcement counts. */
static void lag_of_home(struct tb_daemon *d, struct tb_site_lag *l)
{
    TB_ASSERT(!l->model->is_home);
    static struct tb_record home; /* large; the main loop's alone */
    const bool speaks =
        l->source != UINT32_MAX && tb_site_lag_link(d, l->source)->protocol >= TB_LINKS_PROTOCOL_STATE;
    /* A source of the release before is up, and says what versions there are, and nothing else. */
    const bool silent = l->facts.link == TB_LAG_UP_TO_DATE && !speaks;
    if (!tb_record_get(d->catalog, &l->model->home, &l->model->name, &home)) {
        l->facts.heard = !speaks;
        if (!silent) l->heard_at = 0;
        return;
    }
    l->facts.heard = home.known || !speaks;
    if (home.heard_at != 0 || !silent) l->heard_at = home.heard_at;
    if (!home.known && speaks && l->facts.link == TB_LAG_UP_TO_DATE) l->facts.link = unheard_why(home.why);
    if (!home.known || tb_site_which_compare(&l->state.head, &home.state.head) > 0) return;
    const bool here = tb_site_which_compare(&l->state.head, &home.state.head) == 0;
    const struct tb_record_behind b = tb_record_behind(&home.state, &l->state);
    l->state.head = b.head;
    l->state.versions = b.versions;
    l->state.left_bytes = b.left_bytes;
    l->facts.table_full = !here && l->own->refused_full;
    if (!here) memset(&l->head, 0, sizeof l->head);
}

/* Unless that peer took it back, or its home's word of it, or of a newer one, came meanwhile. */
static void lag_of_unsigned(struct tb_daemon *d, struct tb_site_lag *l)
{
    struct tb_version_key *key = &l->own->unsigned_key;
    const struct tb_site_which which = {key->run_order, key->number};
    if (tb_id_is_zero(&key->uid)) return;
    const bool stands =
        tb_peer_links(d) != NULL && tb_links_announces(d->links, l->own->unsigned_peer, &key->uid);
    if (!stands || tb_statements_believed(d, l->own->unsigned_peer, key)) {
        *key = (struct tb_version_key){.number = 0};
        return;
    }
    const struct tb_site_which known = {l->lag.head_run_order, l->lag.head_number};
    l->facts.awaits_signature = !l->lag.known || tb_site_which_compare(&known, &which) < 0;
    if (!l->facts.awaits_signature || l->state.versions > 0) return;
    l->state.versions = 1;
    l->state.left_bytes = tb_links_announced_bytes(d->links, &key->uid);
}

/* It came from home ahead of its signature: it is here, and no reader hears of it. */
static void lag_of_awaited(struct tb_daemon *d, struct tb_site_lag *l)
{
    static struct tb_catalog_version_view head; /* large; the main loop's alone */
    if (tb_id_is_zero(&l->head) || !tb_catalog_version_get(d->catalog, &l->head, &head)) return;
    if (!head.awaits || !head.whole) return;
    l->facts.awaits_signature = true;
    if (l->state.versions == 0) l->state.versions = 1;
}

static void behind_since(struct tb_site_lag *l)
{
    const tb_time_ns now = tb_clock_now();
    if (l->state.versions == 0) {
        l->own->behind_at = 0;
        return;
    }
    if (l->own->behind_at == 0) l->own->behind_at = l->lag.behind_ns < now ? now - l->lag.behind_ns : 1;
    TB_ASSERT(l->own->behind_at > 0 && l->own->behind_at <= now);
    l->state.behind_ms = tb_time_since(l->own->behind_at, now) / TB_MS(1);
}

/* ---- why ---- */

static uint32_t shards_here(const struct tb_copy *copy)
{
    uint32_t count = 0;
    for (uint32_t s = 0; copy->region != NULL && s < copy->key.shard_count; s++)
        count += tb_arena_place_ready(copy->region, s);
    return count;
}

static void facts_of_copy(struct tb_site_lag *l, const struct tb_copy *copy)
{
    TB_ASSERT(tb_id_equal(&copy->key.uid, &l->head));
    l->copy = copy;
    l->shards_here = shards_here(copy);
    l->facts.lacks_room = copy->lacks_room;
    l->facts.unsealed =
        l->model->is_home && !tb_copy_is_crossing(copy) && l->shards_here < copy->key.shard_count;
    l->facts.bad_chunks = copy->failed == TB_CHUNK_DIGEST;
    l->facts.no_memory = !copy->lacks_room && (copy->failed == TB_SITE_NOMEM || copy->failed == TB_TOO_LARGE);
    l->facts.asked = copy->life == TB_COPY_ASKED;
    l->facts.begun = copy->region != NULL;
    l->facts.still = tb_lag_still(&copy->moves.held) && tb_lag_still(&copy->moves.came);
}

/* The first of them, where each that is up says that its day's bytes to here are used up;
 * UINT32_MAX: one can send, or none is up. */
static uint32_t spent_from(struct tb_daemon *d, const struct tb_catalog_model *m)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < source_count(d, m); i++) {
        const uint32_t peer = source_at(d, m, i);
        if (peer == UINT32_MAX || !tb_site_lag_link(d, peer)->up) continue;
        if (!tb_site_lag_link(d, peer)->peer_spent) return UINT32_MAX;
        if (first == UINT32_MAX) first = peer;
    }
    return first;
}

/* P6: a relay that waits for the model itself, as it is paused before it, brings nothing either. */
static bool waits_paused(struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    static struct tb_record r; /* large; the main loop's alone */
    return tb_record_get(d->catalog, &d->config->peers[peer].site, model, &r) && r.known &&
           r.state.reason == TB_LAG_PAUSED && r.state.versions > 0;
}

static bool is_paused(struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    return tb_pause_of_peer(d, peer) != NULL || tb_links_paused_there(d->links, peer, model) ||
           waits_paused(d, peer, model);
}

/* One source that is up and not paused can bring it. */
static void facts_of_pause(struct tb_daemon *d, struct tb_site_lag *l)
{
    TB_ASSERT(!l->model->is_home);
    for (uint32_t i = 0; i < source_count(d, l->model); i++) {
        const uint32_t peer = source_at(d, l->model, i);
        if (peer == UINT32_MAX || !tb_site_lag_link(d, peer)->up) continue;
        if (!is_paused(d, peer, &l->model->name)) {
            l->paused_from = UINT32_MAX;
            break;
        }
        if (l->paused_from == UINT32_MAX) l->paused_from = peer;
    }
    l->facts.paused = l->paused_from != UINT32_MAX || tb_pause_of_model(d, &l->model->name) != NULL;
}

static void facts_of_link(struct tb_daemon *d, struct tb_site_lag *l)
{
    if (l->source == UINT32_MAX) return;
    const struct tb_links_stats *stats = tb_site_lag_link(d, l->source);
    l->facts.holdup = stats->peer_holdup;
    l->facts.window_small = stats->receive_wanted_bytes > 0;
    l->facts.share_spent = l->copy != NULL && tb_links_landing_waits(d->links, l->source, &l->head);
    l->facts.mtu = stats->up && stats->why == TB_LINKS_WHY_MTU;
    /* If chunks move all the same, they come from another lane or were on their way. */
    if (l->facts.begun && !l->facts.still) return;
    l->spent_from = spent_from(d, l->model);
    l->facts.spent = l->spent_from != UINT32_MAX;
}

/* Of the model an older version crosses to here, as chunks that may be a base. */
static bool base_crosses(struct tb_daemon *d, const struct tb_site_lag *l)
{
    if (l->source == UINT32_MAX || d->config->link_codec == TB_CHOICE_RAW) return false;
    if (tb_site_lag_link(d, l->source)->protocol < 2) return false;
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (c->region != NULL && !tb_copy_is_whole(c) && !tb_copy_leaves(c) &&
            tb_name_equal(&c->key.model, &l->model->name))
            return true;
    }
    return false;
}

static void facts_of_groups(struct tb_daemon *d, struct tb_site_lag *l)
{
    struct tb_catalog_group_view g;
    for (uint32_t cursor = 0; tb_catalog_group_at(d->catalog, &cursor, &g);)
        l->facts.has_groups |= tb_name_equal(&g.model, &l->model->name);
    l->facts.used = tb_site_which_compare(&l->state.active, &l->state.head) >= 0;
    const tb_time_ns lease = TB_MS(d->config->session_lease_ms);
    l->facts.whole_for_long = l->copy != NULL && tb_copy_is_whole(l->copy) &&
                              tb_time_since(l->copy->whole_at, tb_clock_now()) > lease;
}

/* An operator of this site decided that its readers do not get the head, and which version that
 * decision is about. */
bool tb_site_lag_held_back(const struct tb_daemon *d, const struct tb_site_lag *l,
                           struct tb_catalog_version_view *by_out)
{
    struct tb_id uid;
    const struct tb_site_which *head = &l->state.head;
    if (tb_site_which_none(head)) return false;
    if (tb_catalog_pinned(d->catalog, &l->model->name, &uid) &&
        tb_catalog_version_get(d->catalog, &uid, by_out)) {
        const struct tb_site_which pin = {by_out->key.run_order, by_out->key.number};
        return tb_site_which_compare(&pin, head) < 0;
    }
    return tb_catalog_find(d->catalog, &l->model->name, head->run_order, head->number, &uid) == TB_OK &&
           tb_catalog_version_get(d->catalog, &uid, by_out) && by_out->withdrawn_here;
}

static void estimate(struct tb_site_lag *l)
{
    struct tb_lag_eta eta;
    if (l->copy == NULL || !tb_lag_moves(l->state.reason)) return;
    if (!tb_lag_estimate_rest(&l->copy->moves, l->state.left_bytes, &eta)) return;
    TB_ASSERT(eta.low_s <= eta.high_s);
    l->state.eta_low_ms = (uint64_t)(eta.low_s * 1e3) + 1;
    l->state.eta_high_ms = (uint64_t)(eta.high_s * 1e3) + 1;
}

void tb_site_lag_here(struct tb_daemon *d, const struct tb_catalog_model *m, struct tb_site_lag *l)
{
    memset(l, 0, sizeof *l);
    l->model = m;
    l->own = tb_site_lag_own(d, &m->name);
    l->spent_from = l->paused_from = l->source = UINT32_MAX;
    l->state = (struct tb_site_state){.site = d->site, .model = m->name, .incarnation = d->incarnation};
    held_fill(d, m, &l->state);
    l->facts.is_home = m->is_home;
    l->facts.subscribed = m->is_home || m->subscribed;
    l->facts.store_down = d->store_down;
    l->facts.heard = m->is_home;
    l->heard_at = tb_clock_now();
    lag_of_catalog(d, l);
    if (!m->is_home) find_source(d, l);
    if (!m->is_home) lag_of_home(d, l);
    if (!m->is_home) lag_of_unsigned(d, l);
    if (!m->is_home) lag_of_awaited(d, l);
    behind_since(l);
    l->facts.behind = l->state.versions > 0;
    l->facts.unsealed = m->is_home; /* without a copy: it went with its arena, and nobody sealed it again */
    const struct tb_copy *copy = tb_id_is_zero(&l->head) ? NULL : tb_copy_find(d, &l->head);
    if (copy != NULL) facts_of_copy(l, copy);
    facts_of_link(d, l);
    if (!m->is_home) facts_of_pause(d, l);
    l->facts.base_crosses = base_crosses(d, l);
    facts_of_groups(d, l);
    struct tb_catalog_version_view by;
    l->facts.pinned = tb_site_lag_held_back(d, l, &by);
    l->state.reason = (uint16_t)tb_lag_reason_of(&l->facts);
    TB_ASSERT(l->state.reason < TB_LAG_REASON_END && l->state.held_count <= TB_SITE_HELD_MAX);
    l->known = l->facts.heard && l->facts.link == TB_LAG_UP_TO_DATE;
    l->state.known = true;
    estimate(l);
}

/* lag_evidence.c - see lag_evidence.h.
 *
 * P10: evidence fits the reason. The rate of a link is shown where chunks cross it. A reason that
 * another site has by itself (its store, its room, its workers) is that site's word, and the
 * evidence is who said so and when. */
#include "gateway/daemon/control/lag_evidence.h"
#include "gateway/catalog/usage.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/pauses.h"
#include "gateway/daemon/links/peer_limits.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/live/live_status.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_usage.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_pause.h"
#include "wan/link/links_stats.h"

static double seconds_since(tb_time_ns at)
{
    return (double)tb_time_since(at, tb_clock_now()) / 1e9;
}

/* ---- a link ---- */

/* " (50Mbit)": what an operator set. */
static void rate_text(const struct tb_peer_limit *limit, char out[TB_RATE_CHARS + 4])
{
    char rate[TB_RATE_CHARS];
    out[0] = '\0';
    if (limit->bit_per_s == 0) return;
    tb_rate_format(limit->bit_per_s, rate);
    (void)snprintf(out, TB_RATE_CHARS + 4, " (%s)", rate);
}

static void of_error(struct tb_daemon *d, uint32_t peer, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%s: %s", tb_peer_site(d, peer),
                   stats->error[0] != '\0' ? stats->error : "not connected yet");
}

/* `sends`: what crosses goes to the peer. */
static void of_rate(struct tb_daemon *d, uint32_t peer, bool sends, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    const enum tb_limit limit = tb_links_most_limit(stats);
    char cap[TB_RATE_CHARS + 4] = "";
    if (sends && limit == TB_LIMIT_CAP) rate_text(&d->limits[peer], cap);
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%s %s: %llu bytes/s over %u streams, rtt %.1f ms%s%s%s",
                   sends ? "to" : "from", tb_peer_site(d, peer),
                   (unsigned long long)d->goodput[peer].bytes_per_s, stats->stream_count,
                   (double)stats->rtt / 1e6, sends ? ", limited by " : "",
                   sends ? tb_bottleneck_name(limit) : "", cap);
}

static void of_link(struct tb_daemon *d, uint32_t peer, uint16_t reason, bool sends,
                    char out[TB_EVIDENCE_BYTES])
{
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    if (!stats->up || (reason == TB_LAG_MTU && stats->error[0] != '\0'))
        of_error(d, peer, out);
    else
        of_rate(d, peer, sends, out);
}

/* Its link is up, and it says nothing of the model. */
static void of_silence(struct tb_daemon *d, uint32_t peer, tb_time_ns heard_at, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    if (heard_at == 0)
        (void)snprintf(out, TB_EVIDENCE_BYTES,
                       "%s: the link is up for %.1f s, and nothing was said of the model",
                       tb_peer_site(d, peer), seconds_since(stats->up_since));
    else
        (void)snprintf(out, TB_EVIDENCE_BYTES,
                       "%s: the link is up, and nothing was said of the model for %.1f s",
                       tb_peer_site(d, peer), seconds_since(heard_at));
}

/* ---- what is here ---- */

static void of_day_here(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    if (l->spent_from == UINT32_MAX) return;
    (void)snprintf(out, TB_EVIDENCE_BYTES, "from %s: it says that they are used up, the day ends in %llu s",
                   tb_peer_site(d, l->spent_from), (unsigned long long)tb_limits_day_ends_s());
}

static void of_room(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    TB_ASSERT(l->copy != NULL && l->copy->lacks_room);
    const uint32_t slots = l->copy->key.shard_count + 1;
    struct tb_arena_budget budget;
    tb_arena_budget(d->arena, &budget);
    if (slots > budget.slots_free)
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%u slots needed, %u of %u free", slots, budget.slots_free,
                       budget.slots);
    else
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%llu bytes needed, %llu free in one piece",
                       (unsigned long long)l->copy->room_bytes,
                       (unsigned long long)budget.largest_free_bytes);
}

static void of_shards(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    (void)d;
    if (l->copy == NULL)
        (void)snprintf(out, TB_EVIDENCE_BYTES, "none of its shards is here");
    else
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%u of %u shards are here", l->shards_here,
                       l->copy->key.shard_count);
}

/* A model may not have all rows of the table. */
static void of_table(struct tb_daemon *d, const struct tb_name *model, char out[TB_EVIDENCE_BYTES])
{
    static const char versions[] = "versions";
    struct tb_catalog_table t;
    char most[TB_CATALOG_TEXT_MAX] = "";
    const uint32_t rows = tb_catalog_table_most(d->catalog, versions, most);
    if (rows >= d->bounds.model_versions && strcmp(most, model->text) == 0) {
        (void)snprintf(out, TB_EVIDENCE_BYTES, "the model uses %u of the %u rows of %s that it may have",
                       rows, d->bounds.model_versions, versions);
        return;
    }
    for (uint32_t cursor = 0; tb_catalog_table_at(d->catalog, &cursor, &t);)
        if (strcmp(t.name, versions) == 0)
            (void)snprintf(out, TB_EVIDENCE_BYTES, "%u of %u rows of %s are used, %u of them by %.64s",
                           t.used, t.bound, versions, rows, most);
}

/* Rows of models of patterns, of which one home has some three quarters at most. */
void tb_evidence_waiting(struct tb_daemon *d, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_gauge *g = &d->models.awake;
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%llu of %u rows of models_awake are used%s",
                   (unsigned long long)g->used, (unsigned)TB_CONFIG_AWAKE_MAX,
                   g->used < TB_CONFIG_AWAKE_MAX ? ", and its home has its share of them" : "");
}

static void of_share(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    TB_ASSERT(l->source != UINT32_MAX);
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%u of %u versions cross from %s",
                   tb_links_landings(d->links, l->source), TB_LINKS_LANDINGS_MAX, tb_peer_site(d, l->source));
}

static bool lands(const struct tb_copy *c, const struct tb_site_lag *l)
{
    return c != l->copy && c->region != NULL && !tb_copy_is_whole(c) && !tb_copy_leaves(c);
}

/* The version that crosses before this one: of this model, else of another. False: none does. */
static bool of_earlier(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_copy *first = NULL;
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next)
        if (lands(c, l) && (first == NULL || tb_name_equal(&c->key.model, &l->model->name))) first = c;
    if (first == NULL) return false;
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%s %llu:%llu crosses, %llu bytes of it are here",
                   first->key.model.text, (unsigned long long)first->key.run_order,
                   (unsigned long long)first->key.number, (unsigned long long)tb_copy_held_bytes(first));
    return true;
}

/* The operator's decision: "pinned to 1:3 by ann (uid 1000)". */
static void of_operator(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    struct tb_catalog_version_view v;
    if (!tb_site_lag_held_back(d, l, &v)) return;
    const char *who = v.pinned ? v.pinned_by : v.who;
    const char *ends = "";
    if (v.pinned && !v.whole) ends = ", which is not held here: readers get none";
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%s %llu:%llu%s%s%s",
                   v.pinned ? "pinned to" : "withdrawn here:", (unsigned long long)v.key.run_order,
                   (unsigned long long)v.key.number, who[0] != '\0' ? " by " : "", who, ends);
}

static void of_pause_here(const char *what, const struct tb_store_pause *p, char out[TB_EVIDENCE_BYTES])
{
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%s %s is paused here%s%s", what, p->name.text,
                   p->who[0] != '\0' ? " by " : "", p->who);
}

/* The operator of which end, and of what. */
static void of_pause(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_store_pause *model = tb_pause_of_model(d, &l->model->name);
    if (model != NULL) {
        of_pause_here("model", model, out);
        return;
    }
    if (l->paused_from == UINT32_MAX) return;
    const struct tb_store_pause *peer = tb_pause_of_peer(d, l->paused_from);
    if (peer != NULL)
        of_pause_here("peer", peer, out);
    else if (tb_links_paused_there(d->links, l->paused_from, &l->model->name))
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%s says that it is paused there",
                       tb_peer_site(d, l->paused_from));
    else
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%s waits for it too, as it is paused before it",
                       tb_peer_site(d, l->paused_from));
}

static void of_asking(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    TB_ASSERT(l->copy != NULL && l->copy->asked_at != 0);
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%s was first asked for them %.1f s ago",
                   l->source != UINT32_MAX ? tb_peer_site(d, l->source) : "a peer",
                   seconds_since(l->copy->asked_at));
}

static bool of_wrong_chunk(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_copy *c = l->copy;
    if (c->bad.times == 0) return false;
    (void)snprintf(out, TB_EVIDENCE_BYTES, "chunk %u of shard %u came wrong from %s, %u time%s so far",
                   c->bad.chunk, c->bad.shard, tb_peer_site(d, c->bad.peer), c->bad.times,
                   c->bad.times == 1 ? "" : "s");
    return true;
}

/* The gateway's configuration has the list that lacks the identity: this gateway, or the peer at
 * whose site it is read. */
static void of_right(const struct tb_name *model, const char *whose, const struct tb_identity *lacks,
                     char out[TB_EVIDENCE_BYTES])
{
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(lacks, uri);
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%s: models.%s.read lacks %s", whose, model->text, uri);
}

/* The source is up, and passes on why nothing is known of the home. */
static void of_relay(struct tb_daemon *d, uint32_t relay, char out[TB_EVIDENCE_BYTES])
{
    (void)snprintf(out, TB_EVIDENCE_BYTES, "as %s says", tb_peer_site(d, relay));
}

static void of_right_here(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_identity lacks = {
        .kind = TB_IDENTITY_GATEWAY, .site = d->config->site, .name = d->config->gateway};
    if (l->source == UINT32_MAX || !tb_site_lag_link(d, l->source)->up) return;
    if (tb_links_denied(d->links, l->source, &l->model->name))
        of_right(&l->model->name, tb_peer_site(d, l->source), &lacks, out);
    else
        of_relay(d, l->source, out);
}

static void of_source(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    const uint16_t reason = l->state.reason;
    if (l->source == UINT32_MAX) return;
    const bool up = tb_site_lag_link(d, l->source)->up;
    if (up && tb_lag_is_of_link(reason))
        of_relay(d, l->source, out);
    else if (up && reason == TB_LAG_UNKNOWN)
        of_silence(d, l->source, l->heard_at, out);
    else
        of_link(d, l->source, reason, false, out);
}

/* Of a version that came from home ahead of its signature nobody else is to be named. */
static void of_signature(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_version_key *key = &l->own->unsigned_key;
    if (!tb_id_is_zero(&key->uid))
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%s announced %llu:%llu",
                       tb_peer_site(d, l->own->unsigned_peer), (unsigned long long)key->run_order,
                       (unsigned long long)key->number);
    else
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%llu:%llu is whole here; %s has not signed it",
                       (unsigned long long)l->state.head.run_order, (unsigned long long)l->state.head.number,
                       l->model->home.text);
}

static void of_store(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    (void)l;
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%u rows wait for %s", tb_persist_waiting(d),
                   d->config->store_path);
}

static void of_live(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    (void)tb_live_status_evidence(d, &l->model->name, out, TB_EVIDENCE_BYTES);
}

static void of_model_table(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    of_table(d, &l->model->name, out);
}

static void of_memory(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    (void)d;
    (void)snprintf(out, TB_EVIDENCE_BYTES, "%s", tb_status_text(l->copy->failed));
}

static void of_verify(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    if (!of_wrong_chunk(d, l, out)) of_source(d, l, out);
}

static void of_before(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    if (!of_earlier(d, l, out)) of_source(d, l, out);
}

static void of_nothing(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    (void)d, (void)l;
    out[0] = '\0';
}

void tb_evidence_here(struct tb_daemon *d, const struct tb_site_lag *l, char out[TB_EVIDENCE_BYTES])
{
    typedef void (*evidence_fn)(struct tb_daemon *, const struct tb_site_lag *, char *);
    static const evidence_fn of[TB_LAG_REASON_END] = {
        [TB_LAG_UP_TO_DATE] = of_live,       [TB_LAG_NOT_ACTIVATING] = of_live,
        [TB_LAG_NO_SUBSCRIBER] = of_nothing, [TB_LAG_STORE] = of_store,
        [TB_LAG_NO_ROOM] = of_room,          [TB_LAG_PUBLISHING] = of_shards,
        [TB_LAG_BUDGET] = of_day_here,       [TB_LAG_UNSIGNED] = of_signature,
        [TB_LAG_TABLE] = of_model_table,     [TB_LAG_RECEIVER_MEMORY] = of_memory,
        [TB_LAG_DENIED] = of_right_here,     [TB_LAG_VERIFY] = of_verify,
        [TB_LAG_PINNED] = of_operator,       [TB_LAG_SHARE] = of_share,
        [TB_LAG_PAUSED] = of_pause,          [TB_LAG_MANIFESTS] = of_asking,
        [TB_LAG_QUEUED] = of_before,         [TB_LAG_BASE] = of_before,
    };
    TB_ASSERT(l->state.reason < TB_LAG_REASON_END);
    out[0] = '\0';
    const evidence_fn found = of[l->state.reason];
    (found != NULL ? found : of_source)(d, l, out);
}

/* ---- another site ---- */

static void of_day_there(struct tb_daemon *d, uint32_t peer, char out[TB_EVIDENCE_BYTES])
{
    const struct tb_budget *b = &d->limits[peer].budget;
    (void)snprintf(out, TB_EVIDENCE_BYTES, "to %s: %llu of %llu bytes are used, the day ends in %llu s",
                   tb_peer_site(d, peer), (unsigned long long)b->used_bytes, (unsigned long long)b->day_bytes,
                   (unsigned long long)tb_limits_day_ends_s());
}

/* False: it may read the model by this gateway's configuration. */
static bool of_right_there(struct tb_daemon *d, uint32_t peer, const struct tb_name *model,
                           char out[TB_EVIDENCE_BYTES])
{
    const struct tb_config_peer *p = &d->config->peers[peer];
    const struct tb_identity lacks = {.kind = TB_IDENTITY_GATEWAY, .site = p->of, .name = p->gateway};
    if (!tb_site_lag_denied(d, peer, model)) return false;
    of_right(model, d->site.text, &lacks, out);
    return true;
}

/* False: the operator is one of another site. */
static bool of_pause_to(struct tb_daemon *d, uint32_t peer, const struct tb_name *model,
                        char out[TB_EVIDENCE_BYTES])
{
    const struct tb_store_pause *of_model = tb_pause_of_model(d, model), *of_peer = tb_pause_of_peer(d, peer);
    if (of_model != NULL)
        of_pause_here("model", of_model, out);
    else if (of_peer != NULL)
        of_pause_here("peer", of_peer, out);
    return of_model != NULL || of_peer != NULL;
}

/* The reason is the site's own word, or follows from an older word: it did not know of the head
 * yet. */
static void of_word(const struct tb_record *r, uint16_t reason, char out[TB_EVIDENCE_BYTES])
{
    const bool relayed = !tb_name_equal(&r->via, &r->state.site);
    const double age_s = seconds_since(r->heard_at);
    char by[TB_NAME_BYTES_MAX + 16] = "";
    if (relayed) (void)snprintf(by, sizeof by, ", by way of %s", r->via.text);
    if (reason == r->state.reason)
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%s said so %.1f s ago%s", r->state.site.text, age_s, by);
    else if (tb_site_which_none(&r->state.head))
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%s knew of no version %.1f s ago%s", r->state.site.text,
                       age_s, by);
    else
        (void)snprintf(out, TB_EVIDENCE_BYTES, "%s had all of %llu:%llu %.1f s ago%s", r->state.site.text,
                       (unsigned long long)r->state.head.run_order, (unsigned long long)r->state.head.number,
                       age_s, by);
}

/* Of a site behind a relay this gateway knows what the relay said, while the relay's link is up. */
static void of_site_behind(struct tb_daemon *d, const struct tb_record *r, uint16_t reason,
                           char out[TB_EVIDENCE_BYTES])
{
    TB_ASSERT(!tb_name_equal(&r->via, &r->state.site));
    const uint32_t relay = tb_peer_index(d, &r->via);
    if (relay != UINT32_MAX && !tb_site_lag_link(d, relay)->up)
        of_error(d, relay, out);
    else if (r->known && r->heard_at != 0)
        of_word(r, reason, out);
    else
        (void)snprintf(out, TB_EVIDENCE_BYTES, "as %s says", r->via.text);
}

void tb_evidence_there(struct tb_daemon *d, const struct tb_record *r, uint16_t reason,
                       char out[TB_EVIDENCE_BYTES])
{
    const uint32_t peer = tb_peer_index(d, &r->state.site);
    out[0] = '\0';
    if (!tb_name_equal(&r->via, &r->state.site)) {
        of_site_behind(d, r, reason, out);
        return;
    }
    if (peer == UINT32_MAX || tb_lag_is_current(reason)) return;
    const bool up = tb_site_lag_link(d, peer)->up, crosses = tb_lag_moves(reason) || reason == TB_LAG_STALLED;
    const bool speaks = tb_site_lag_link(d, peer)->protocol >= TB_LINKS_PROTOCOL_STATE;
    if (up && reason == TB_LAG_DENIED && of_right_there(d, peer, &r->state.model, out)) return;
    if (up && reason == TB_LAG_PAUSED && of_pause_to(d, peer, &r->state.model, out)) return;
    if (reason == TB_LAG_BUDGET)
        of_day_there(d, peer, out);
    else if (!up || crosses || !speaks) /* by its link this gateway judges a peer that says no STATE */
        of_link(d, peer, reason, true, out);
    else if (r->known && r->heard_at != 0)
        of_word(r, reason, out);
    else
        of_silence(d, peer, r->heard_at, out);
}

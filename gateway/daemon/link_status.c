/* link_status.c - what the operator's socket answers to "streams" and "lag" (docs/control.md). */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/fault.h"

/* An object or array that is NULL, for want of memory, is not appended: the answer as a whole fails then (P10). */
static bool append(json_t *list, json_t *row)
{
    return json_array_append_new(list, row) == 0;
}

static json_int_t integer(uint64_t value)
{
    return (json_int_t)value;
}

static double ms(tb_time_ns ns)
{
    return (double)ns / 1e6;
}

/* Large, and the main loop's alone. */
static const struct tb_links_stats *stats_of(struct tb_daemon *d, uint32_t peer)
{
    static struct tb_links_stats stats;
    memset(&stats, 0, sizeof stats);
    if (d->links != NULL && !d->links_restarting) tb_links_stats(d->links, peer, &stats);
    return &stats;
}

/* ---- streams ---- */

static const char *encryption(const struct tb_links_stream_stats *s)
{
    if (!s->open) return "";
    if (s->kernel_sends) return "kernel";
    return s->own_records ? "tombolo" : "openssl";
}

static json_t *stream_row(const struct tb_links_stream_stats *s)
{
    return json_pack("{s:I, s:b, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "stream",
                     integer(s->stream), "open", s->open, "congestion", s->congestion, "encryption",
                     encryption(s), "rtt_ms", ms(s->rtt), "sent_bytes", integer(s->bytes_sent),
                     "received_bytes", integer(s->bytes_received), "sent_bytes_per_s", integer(s->sent_per_s),
                     "received_bytes_per_s", integer(s->received_per_s), "retransmitted_bytes",
                     integer(s->retransmitted_bytes), "queued_bytes", integer(s->unsent_bytes),
                     "window_bytes", integer(s->window_bytes), "records", integer(s->records), "limited_by",
                     tb_limit_name(s->limit));
}

static json_t *stream_rows(const struct tb_links_stats *stats)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < stats->stream_count; i++) {
        if (append(list, stream_row(&stats->streams[i]))) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* The sysctl that holds the link, or null. */
json_t *tb_status_window(const struct tb_links_stats *stats)
{
    const bool sends = stats->send_wanted_bytes != 0;
    const uint64_t bytes = sends ? stats->send_wanted_bytes : stats->receive_wanted_bytes;
    if (bytes == 0) return json_null();
    return json_pack("{s:s, s:I, s:I}", "sysctl", sends ? "net.ipv4.tcp_wmem" : "net.ipv4.tcp_rmem",
                     "has_bytes", integer(sends ? stats->send_ceiling_bytes : stats->receive_ceiling_bytes),
                     "needs_bytes", integer(bytes));
}

/* What holds most of the streams that send. */
static enum tb_limit most_limit(const struct tb_links_stats *stats)
{
    uint32_t counts[TB_LIMITS] = {0};
    uint32_t most = TB_LIMIT_IDLE;
    for (uint32_t i = 0; i < stats->stream_count; i++)
        counts[stats->streams[i].limit]++;
    for (uint32_t l = TB_LIMIT_IDLE + 1; l < TB_LIMITS; l++)
        if (counts[l] > 0 && (most == TB_LIMIT_IDLE || counts[l] > counts[most])) most = l;
    return (enum tb_limit)most;
}

static json_t *link_row(struct tb_daemon *d, uint32_t peer)
{
    const struct tb_links_stats *stats = stats_of(d, peer);
    return json_pack("{s:s, s:b, s:f, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "site",
                     d->config->peers[peer].site.text, "up", stats->up, "rtt_ms", ms(stats->rtt), "used",
                     integer(stats->streams_used), "wanted", integer(stats->streams_wanted), "searching",
                     stats->searching, "goodput_bytes_per_s", integer(d->goodput[peer].bytes_per_s),
                     "queued_parcels", integer(stats->queued_parcels), "hedged_bytes",
                     integer(stats->bytes_hedged), "lost", integer(stats->streams_lost), "rotated",
                     integer(stats->streams_rotated), "retransmitted_bytes",
                     integer(stats->bytes_retransmitted), "limited_by", tb_limit_name(most_limit(stats)),
                     "window", tb_status_window(stats), "streams", stream_rows(stats));
}

enum tb_status tb_status_streams(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)request, (void)error;
    struct tb_daemon *d = user;
    json_t *list = json_array();
    bool all = true;
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        all &= append(list, link_row(d, i));
    all &= json_object_set_new(reply, "links", list) == 0;
    return all ? TB_OK : TB_SITE_NOMEM;
}

/* ---- lag ---- */

/* One site's lag behind one model's head. */
struct lag_case {
    const struct tb_catalog_model *model;
    const struct tb_name *site;
    uint32_t peer; /* UINT32_MAX: it is this site */
    struct tb_catalog_lag lag;
    struct tb_lag_facts facts;
    const struct tb_copy *copy;     /* of this site; NULL: none */
    uint32_t spent_from;            /* of this site: a peer whose day's bytes to here are used up */
    const struct tb_lag_pace *pace; /* NULL: none */
    char evidence[200];
};

static uint32_t from_peer(struct tb_daemon *d, const struct tb_catalog_model *m, bool up)
{
    for (uint32_t i = 0; i < m->from_count; i++) {
        const uint32_t peer = d->links != NULL ? tb_links_peer_find(d->links, m->from[i].text) : UINT32_MAX;
        if (peer != UINT32_MAX && (!up || stats_of(d, peer)->up)) return peer;
    }
    return UINT32_MAX;
}

/* The first of them, where each that is up says that its day's bytes to here are used up; UINT32_MAX: one can send, or none is up. */
static uint32_t spent_from(struct tb_daemon *d, const struct tb_name *from, uint32_t count)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t peer = d->links != NULL ? tb_links_peer_find(d->links, from[i].text) : UINT32_MAX;
        if (peer == UINT32_MAX || !stats_of(d, peer)->up) continue;
        if (!stats_of(d, peer)->peer_spent) return UINT32_MAX;
        if (first == UINT32_MAX) first = peer;
    }
    return first;
}

static uint32_t shards_here(const struct tb_copy *copy)
{
    uint32_t count = 0;
    for (uint32_t s = 0; copy->region != NULL && s < copy->key.shard_count; s++)
        count += tb_arena_place_ready(copy->region, s);
    return count;
}

static void facts_of_copy(struct lag_case *c, const struct tb_copy *copy, bool home)
{
    c->copy = copy;
    c->pace = &copy->pace;
    c->facts.lacks_room = copy->lacks_room;
    c->facts.unsealed = home && !copy->crossing && shards_here(copy) < copy->key.shard_count;
    c->facts.asked = copy->asked;
    c->facts.begun = copy->region != NULL;
    c->facts.still = tb_lag_still(&copy->pace) && tb_lag_still(&copy->came);
}

static void facts_here(struct tb_daemon *d, struct lag_case *c)
{
    const struct tb_copy *copy = tb_copy_find(d, &c->lag.head);
    const struct tb_catalog_model *m = c->model;
    const bool home = tb_name_equal(&m->home, &d->site);
    c->facts.linked = home || from_peer(d, m, true) != UINT32_MAX;
    c->facts.unsealed = home; /* without a copy: it went with its arena, and nobody sealed it again */
    if (copy != NULL) facts_of_copy(c, copy, home);
    /* What moves comes from somebody all the same: another lane, or it was on its way. */
    if (home || (c->facts.begun && !c->facts.still)) return;
    const bool chosen = copy != NULL && copy->from_count > 0;
    c->spent_from =
        chosen ? spent_from(d, copy->from, copy->from_count) : spent_from(d, m->from, m->from_count);
    c->facts.spent = c->spent_from != UINT32_MAX;
}

static void facts_there(struct tb_daemon *d, struct lag_case *c)
{
    struct tb_links_progress p = {0};
    c->facts.linked = stats_of(d, c->peer)->up;
    c->facts.spent = tb_budget_state(&d->limits[c->peer].budget) == TB_BUDGET_HELD;
    c->pace = &d->goodput[c->peer].pace;
    c->facts.begun = d->links != NULL && !d->links_restarting &&
                     tb_links_peer_progress(d->links, c->peer, &c->lag.head, &p) == TB_OK && p.crossing;
    c->facts.still = tb_lag_stands(c->pace, p.begun_for);
}

/* " (50Mbit)": what an operator set. */
static void evidence_cap(const struct tb_peer_limit *limit, char out[TB_RATE_CHARS + 4])
{
    char rate[TB_RATE_CHARS];
    out[0] = '\0';
    if (limit->bit_per_s == 0) return;
    tb_rate_format(limit->bit_per_s, rate);
    (void)snprintf(out, TB_RATE_CHARS + 4, " (%s)", rate);
}

static void evidence_link(struct tb_daemon *d, struct lag_case *c, uint32_t peer)
{
    if (peer == UINT32_MAX) return;
    const struct tb_links_stats *stats = stats_of(d, peer);
    if (!stats->up) {
        snprintf(c->evidence, sizeof c->evidence, "%s: %s", d->config->peers[peer].site.text,
                 stats->last_why < 0 ? tb_status_text(stats->last_why) : "not connected yet");
        return;
    }
    const bool sends = c->peer != UINT32_MAX;
    const enum tb_limit limit = most_limit(stats);
    char cap[TB_RATE_CHARS + 4] = "";
    if (sends && limit == TB_LIMIT_CAP) evidence_cap(&d->limits[peer], cap);
    snprintf(c->evidence, sizeof c->evidence, "%s %s: %llu bytes/s over %u streams, rtt %.1f ms%s%s%s",
             sends ? "to" : "from", d->config->peers[peer].site.text,
             (unsigned long long)d->goodput[peer].bytes_per_s, stats->stream_count, ms(stats->rtt),
             sends ? ", limited by " : "", sends ? tb_limit_name(limit) : "", cap);
}

static void evidence_day(struct tb_daemon *d, struct lag_case *c)
{
    if (c->peer == UINT32_MAX) {
        (void)snprintf(c->evidence, sizeof c->evidence,
                       "from %s: it says that they are used up, the day ends in %llu s",
                       d->config->peers[c->spent_from].site.text, (unsigned long long)tb_limits_day_ends_s());
        return;
    }
    const struct tb_budget *b = &d->limits[c->peer].budget;
    (void)snprintf(c->evidence, sizeof c->evidence,
                   "to %s: %llu of %llu bytes are used, the day ends in %llu s",
                   d->config->peers[c->peer].site.text, (unsigned long long)b->used_bytes,
                   (unsigned long long)b->day_bytes, (unsigned long long)tb_limits_day_ends_s());
}

static void evidence_room(struct tb_daemon *d, struct lag_case *c)
{
    const uint32_t slots = c->copy->key.shard_count + 1;
    struct tb_arena_budget budget;
    tb_arena_budget(d->arena, &budget);
    if (slots > budget.slots_free)
        (void)snprintf(c->evidence, sizeof c->evidence, "%u slots needed, %u of %u free", slots,
                       budget.slots_free, budget.slots);
    else
        (void)snprintf(c->evidence, sizeof c->evidence, "%llu bytes needed, %llu free in one piece",
                       (unsigned long long)c->copy->room_bytes,
                       (unsigned long long)budget.largest_free_bytes);
}

static void evidence_shards(struct lag_case *c)
{
    if (c->copy == NULL)
        (void)snprintf(c->evidence, sizeof c->evidence, "none of its shards is here");
    else
        (void)snprintf(c->evidence, sizeof c->evidence, "%u of %u shards are here", shards_here(c->copy),
                       c->copy->key.shard_count);
}

/* A peer that could bring it, sooner one that is up; UINT32_MAX: it comes from ranks. */
static uint32_t bringer(struct tb_daemon *d, const struct lag_case *c)
{
    const uint32_t up = c->peer != UINT32_MAX ? c->peer : from_peer(d, c->model, true);
    return up != UINT32_MAX ? up : from_peer(d, c->model, false);
}

static void evidence(struct tb_daemon *d, struct lag_case *c, enum tb_lag_reason reason)
{
    switch (reason) {
    case TB_LAG_STORE:
        snprintf(c->evidence, sizeof c->evidence, "%u rows wait for %s", tb_persist_waiting(d),
                 d->config->store_path);
        break;
    case TB_LAG_NO_ROOM:
        evidence_room(d, c);
        break;
    case TB_LAG_UNSEALED:
        evidence_shards(c);
        break;
    case TB_LAG_DAY_SPENT:
        evidence_day(d, c);
        break;
    case TB_LAG_NONE:
        break;
    default:
        evidence_link(d, c, bringer(d, c));
        break;
    }
}

static json_t *eta_json(const struct lag_case *c, enum tb_lag_reason reason)
{
    if (reason != TB_LAG_CROSSING || c->pace == NULL) return json_null();
    return tb_status_eta(c->pace, c->lag.bytes);
}

/* Before its manifests are here the catalog does not know its size. */
enum tb_status tb_status_lag_of(struct tb_daemon *d, const struct tb_name *model, const struct tb_name *site,
                                struct tb_catalog_lag *lag_out)
{
    const enum tb_status status = tb_catalog_lag(d->catalog, tb_clock_now(), model, site, lag_out);
    const bool asks = status == TB_OK && lag_out->versions > 0 && lag_out->bytes == 0;
    if (asks && d->links != NULL && !d->links_restarting)
        lag_out->bytes = tb_links_announced_bytes(d->links, &lag_out->head);
    return status;
}

static json_t *lag_row(struct tb_daemon *d, struct lag_case *c)
{
    const enum tb_status status =
        tb_status_lag_of(d, &c->model->name, c->peer != UINT32_MAX ? c->site : NULL, &c->lag);
    c->facts.heard = status == TB_OK && c->lag.known;
    c->facts.behind = c->lag.versions > 0;
    c->facts.store_down = d->store_down;
    if (c->peer == UINT32_MAX)
        facts_here(d, c);
    else
        facts_there(d, c);
    const enum tb_lag_reason reason = tb_lag_reason_of(&c->facts);
    evidence(d, c, reason);
    json_t *head = c->facts.heard ? json_sprintf("%llu:%llu", (unsigned long long)c->lag.head_run_order,
                                                 (unsigned long long)c->lag.head_number)
                                  : json_null();
    return json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:f, s:s, s:s, s:s, s:o}", "model", c->model->name.text,
                     "site", c->site->text, "home", c->model->home.text, "head", head, "versions",
                     integer(c->lag.versions), "bytes", integer(c->lag.bytes), "seconds",
                     (double)c->lag.behind_ns / 1e9, "reason", tb_lag_name(reason), "why", tb_lag_why(reason),
                     "evidence", c->evidence, "eta_s", eta_json(c, reason));
}

static bool lag_of_model(struct tb_daemon *d, const struct tb_catalog_model *m, json_t *list)
{
    const bool home = tb_name_equal(&m->home, &d->site);
    bool all = true;
    if (home || m->from_count > 0) {
        struct lag_case here = {.model = m, .site = &d->site, .peer = UINT32_MAX, .spent_from = UINT32_MAX};
        all = append(list, lag_row(d, &here));
    }
    for (uint32_t i = 0; home && i < d->config->peer_count; i++) {
        struct lag_case there = {.model = m, .site = &d->config->peers[i].site, .peer = i};
        all &= append(list, lag_row(d, &there));
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
        all &= lag_of_model(d, &m, list);
    }
    all &= json_object_set_new(reply, "lag", list) == 0;
    if (found) return all ? TB_OK : TB_SITE_NOMEM;
    snprintf(error, 256, "no model \"%.64s\" is configured here", wanted);
    return TB_NOT_FOUND;
}

/* ---- once a second ---- */

void tb_status_pace(struct tb_daemon *d)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        tb_lag_look(&d->goodput[i].pace, d->goodput[i].bytes);
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (c->whole || c->region == NULL) continue;
        tb_lag_look(&c->pace, tb_copy_held_bytes(c));
        tb_lag_look(&c->came, tb_copy_wire_bytes(c));
    }
}

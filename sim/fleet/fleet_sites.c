/* fleet_sites.c - a site: its catalog, what gateway/daemon and the worker library do around it,
 * and what a loss takes. */
#include "sim/fleet/fleet_inside.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "intra/planner.h"

#define LEASE       TB_SECONDS(10)
#define STAGE_EVERY TB_US(20) /* a gateway's main loop answers them one after another */
#define RENEW_TICKS 66        /* a third of the lease */
#define LINK_DOWN_S 3         /* link.down_ms: a silent site is noticed so late */

static struct tb_name name_of(const char *kind, uint32_t number)
{
    char text[32];
    struct tb_name name = {{0}};
    (void)snprintf(text, sizeof text, "%s%u", kind, number);
    TB_ASSERT(tb_name_set(&name, text) == TB_OK);
    return name;
}

static struct tb_id session_of(const struct fleet *f, const struct worker *w)
{
    return fleet_id(10 + w->life, (uint64_t)(w - f->workers) + 1);
}

static uint32_t worker_of(const struct tb_id *session)
{
    uint64_t number;
    memcpy(&number, session->bytes, sizeof number);
    return (uint32_t)number - 1;
}

/* One identity, as all workers here have, gets a quarter of a table. */
#define SHARE 4u

static struct tb_catalog_limits limits_of(const struct site *s)
{
    return (struct tb_catalog_limits){.models = 1,
                                      .runs = 4,
                                      .versions = 4,
                                      .shards = 1,
                                      .sessions = SHARE * (s->worker_count + 1),
                                      .references = SHARE * (s->worker_count + 1) + TB_FLEET_FILE_SITES_MAX,
                                      .groups = SHARE * ((uint32_t)s->spec->hosts + 1),
                                      .members = SHARE * (s->worker_count + 1),
                                      .waits = 4,
                                      .sites = TB_FLEET_FILE_SITES_MAX + 1};
}

/* The fastest way to a site decides how fast a version can come. At home it is there. */
static uint32_t fan_out_of(const struct fleet *f, const struct site *s)
{
    const double nic = s->spec->gateway_nic > 0 ? s->spec->gateway_nic : s->spec->nic;
    double arrival = 0;
    for (uint32_t i = 0; i < f->way_count; i++)
        if (f->ways[i].to == s->index && f->ways[i].spec->rate > arrival) arrival = f->ways[i].spec->rate;
    if (s->spec->fan_out > 0) return (uint32_t)s->spec->fan_out;
    if (s->index == f->spec->home || arrival == 0) return 1;
    return tb_planner_fan_out((uint64_t)nic, (uint64_t)(arrival / f->spec->version.delta));
}

static void catalog_begin(struct fleet *f, struct site *s, bool first)
{
    const struct tb_catalog_limits limits = limits_of(s);
    const struct tb_catalog_config config = {.site = s->name,
                                             .host = name_of("gateway", 0),
                                             .lease_ns = LEASE,
                                             .tick_ns = 2 * TICK,
                                             .fan_out = fan_out_of(f, s)};
    struct tb_catalog_model model = {.subscribed = true, .keep = 2};
    s->catalog = tb_catalog_init(s->memory, &limits, &config, f->now);
    model.name = f->key.model;
    model.home = s->index == f->spec->home ? name_of("trainer", 0) : f->sites[f->spec->home].name;
    TB_ASSERT(tb_catalog_model_add(s->catalog, &model) == TB_OK);
    if (first) tb_catalog_first_start(s->catalog, f->now);
    for (uint32_t i = 0; i < f->way_count; i++)
        if (f->ways[i].to == s->index && f->ways[i].up && f->sites[f->ways[i].from].gateway_up)
            TB_ASSERT(tb_catalog_site_up(s->catalog, f->now, &f->sites[f->ways[i].from].name, true) == TB_OK);
}

static void open_session(struct fleet *f, struct site *s, struct worker *w)
{
    struct tb_catalog_session session = {
        .id = session_of(f, w), .name = name_of("w", w->index), .host = name_of("h", w->host)};
    if (s->spec->racks > 0) session.rack = name_of("r", (w->host - 1) % (uint32_t)s->spec->racks + 1);
    (void)snprintf(session.identity, sizeof session.identity, "unix:1000");
    TB_ASSERT(tb_catalog_session_open(s->catalog, f->now, &session) == TB_OK);
    const struct tb_catalog_member member = {.session = session.id,
                                             .subscription = 1,
                                             .model = f->key.model,
                                             .group = name_of("g", w->host),
                                             .index = w->index % (uint32_t)s->spec->workers,
                                             .count = (uint32_t)s->spec->workers};
    TB_ASSERT(tb_catalog_subscribe(s->catalog, f->now, &member) == TB_OK);
}

enum tb_status fleet_site_open(struct fleet *f, uint32_t index)
{
    struct site *s = &f->sites[index];
    const uint64_t words = TB_BITMAP_WORDS(f->chunk_count);
    s->spec = &f->spec->sites[index];
    s->index = index;
    TB_ASSERT(tb_name_set(&s->name, s->spec->name) == TB_OK);
    s->first_worker = f->worker_count;
    s->worker_count = (uint32_t)(s->spec->hosts * s->spec->workers);
    s->alive = s->gateway_up = true;
    s->way = s->readers = NOBODY;
    s->whole_at = TB_TIME_NEVER;
    f->worker_count += s->worker_count;
    const struct tb_catalog_limits limits = limits_of(s);
    s->memory = tb_malloc(tb_catalog_bytes(&limits));
    s->words = tb_calloc(2 * words, sizeof *s->words);
    s->nics = tb_calloc((size_t)s->spec->hosts + 1, sizeof *s->nics);
    f->gateway_arrivals[index] = tb_calloc(f->chunk_count, sizeof(double));
    s->place = (struct tb_place){.manifest = &f->manifest, .held = s->words, .claimed = s->words + words};
    s->landing_memory = tb_malloc(tb_inbound_bytes_for(&s->place, 1));
    return s->memory == NULL || s->words == NULL || s->nics == NULL || f->gateway_arrivals[index] == NULL ||
                   s->landing_memory == NULL
               ? TB_SITE_NOMEM
               : TB_OK;
}

void fleet_site_start(struct fleet *f, struct site *s)
{
    catalog_begin(f, s, true);
    for (uint32_t i = 0; i < s->worker_count; i++) {
        struct worker *w = &f->workers[s->first_worker + i];
        *w = (struct worker){.site = s->index,
                             .index = i,
                             .host = i / (uint32_t)s->spec->workers + 1,
                             .alive = true,
                             .source = NOBODY,
                             .readers = NOBODY,
                             .next_reader = NOBODY,
                             .first_at = TB_TIME_NEVER};
        open_session(f, s, w);
    }
    fleet_settle(f, s);
    fleet_event(f, fleet_after(f, 0.05), (struct event){.kind = SITE_TICK, .who = s->index});
}

/* The gateway has room for the version and its manifest: it is told on, and workers begin to
 * stage. */
void fleet_site_has(struct fleet *f, struct site *s)
{
    const struct tb_catalog_shard shard = {
        .root = f->key.root, .chunk_count = f->chunk_count, .bytes = (uint64_t)f->spec->version.bytes};
    TB_ASSERT(tb_catalog_arena_shard(s->catalog, f->now, &f->key.uid, 0, &shard) == TB_OK);
    TB_ASSERT(tb_catalog_arena_reserved(s->catalog, f->now, &f->key.uid) == TB_OK);
    (void)!tb_catalog_crossing_begun(s->catalog, f->now, &f->key.uid);
    if (s->held > 0) (void)!tb_catalog_arena_progress(s->catalog, f->now, &f->key.uid, 0, s->held);
    s->reserved = s->begun = true;
    fleet_settle(f, s);
    fleet_announce(f, s);
    for (uint32_t i = 0; i < s->worker_count; i++) {
        const struct worker *w = &f->workers[s->first_worker + i];
        const double joins_s = w->staged ? 0 : (w->host - 1) * s->spec->join_s;
        fleet_event(f, fleet_after(f, s->spec->plan_s + joins_s) + i * STAGE_EVERY,
                    (struct event){.kind = STAGE, .who = s->first_worker + i});
    }
}

static uint32_t held_by(struct fleet *f, const struct worker *w)
{
    if (w->whole) return f->chunk_count;
    if (w->words != NULL) return w->held;
    const bool follows =
        w->source != NOBODY && w->source != FROM_GATEWAY && f->workers[w->source].words != NULL;
    return follows ? f->workers[w->source].held : 0;
}

void fleet_stage(struct fleet *f, struct worker *w)
{
    struct site *s = &f->sites[w->site];
    if (!w->alive || !s->gateway_up) return;
    const struct tb_id session = session_of(f, w);
    struct tb_id instead;
    if (!w->staged) w->staged_at = f->now;
    w->staged = true;
    TB_ASSERT(tb_catalog_stage(s->catalog, f->now, &session, 1, &f->key.uid, &instead) == TB_OK);
    TB_ASSERT(tb_catalog_export(s->catalog, f->now, &session, &f->key.uid, 1, held_by(f, w), w->whole) ==
              TB_OK);
    fleet_control(f, s, 4); /* told that it comes, asks, is answered, says where it can be read */
    fleet_settle(f, s);
}

static void plan(struct fleet *f, struct site *s, const struct tb_catalog_todo *todo)
{
    struct worker *w = &f->workers[worker_of(&todo->session)];
    const uint32_t source = todo->from_gateway ? FROM_GATEWAY : worker_of(&todo->source_session);
    w->plan = todo->plan;
    w->plan_epoch++;
    fleet_control(f, s, todo->from_gateway ? 1 : 3); /* GRANT and its answer, PLAN */
    fleet_event(
        f, fleet_after(f, (todo->from_gateway ? 0.5 : 1.5) * s->spec->rtt_s),
        (struct event){.kind = PLANNED, .who = worker_of(&todo->session), .b = source, .c = w->plan_epoch});
}

void fleet_settle(struct fleet *f, struct site *s)
{
    struct tb_catalog_todo todo;
    while (tb_catalog_next(s->catalog, &todo)) {
        if (todo.kind == TB_CATALOG_PLAN)
            plan(f, s, &todo);
        else if (todo.kind == TB_CATALOG_CROSS)
            fleet_cross(f, s, &todo);
        else if (todo.kind == TB_CATALOG_GO || todo.kind == TB_CATALOG_TELL ||
                 todo.kind == TB_CATALOG_PLAN_END)
            fleet_control(f, s, 1);
        else if (todo.kind == TB_CATALOG_EVICT)
            (void)!tb_catalog_evicted(s->catalog, f->now, &todo.uid);
    }
}

void fleet_tell_progress(struct fleet *f, struct worker *w)
{
    struct site *s = &f->sites[w->site];
    const uint32_t held = held_by(f, w);
    if (!s->gateway_up || !w->staged) return;
    const double seconds = (double)(f->now - w->told_at) / 1e9;
    const double more = (double)(held - w->told) * f->chunk_bytes;
    const struct tb_catalog_progress p = {.session = session_of(f, w),
                                          .uid = f->key.uid,
                                          .held_chunks = held,
                                          .total_chunks = f->chunk_count,
                                          .whole = w->whole,
                                          .bytes_per_s = seconds > 0.001 ? (uint64_t)(more / seconds) : 0};
    w->told = held;
    w->told_at = f->now;
    (void)!tb_catalog_progress(s->catalog, f->now, &p);
    fleet_control(f, s, 1);
    fleet_settle(f, s);
}

static void renew(struct fleet *f, struct site *s, const struct worker *w)
{
    const struct tb_id session = session_of(f, w);
    (void)!tb_catalog_session_renew(s->catalog, f->now, &session);
    fleet_control(f, s, 1);
}

void fleet_site_tick(struct fleet *f, struct site *s)
{
    if (!s->alive) return;
    s->ticks++;
    fleet_event(f, f->now + TICK, (struct event){.kind = SITE_TICK, .who = s->index});
    if (!s->gateway_up) return;
    for (uint32_t i = (uint32_t)(s->ticks % SLICES); i < s->worker_count; i += SLICES) {
        struct worker *w = &f->workers[s->first_worker + i];
        if (w->alive && w->reading && !w->whole) fleet_tell_progress(f, w);
    }
    for (uint32_t i = (uint32_t)(s->ticks % RENEW_TICKS); i < s->worker_count; i += RENEW_TICKS)
        if (f->workers[s->first_worker + i].alive) renew(f, s, &f->workers[s->first_worker + i]);
    if (s->reserved) (void)!tb_catalog_arena_progress(s->catalog, f->now, &f->key.uid, 0, s->held);
    if (s->ticks % 2 == 0) tb_catalog_tick(s->catalog, f->now);
    fleet_settle(f, s);
}

/* ---- losses ---- */

static void worker_dies(struct fleet *f, struct worker *w)
{
    struct site *s = &f->sites[w->site];
    w->alive = false;
    fleet_hop_close(f, w);
    f->alive--;
    f->done -= w->whole;
    s->done -= w->whole;
}

/* A reader of a dead source notices that after so long. */
static void readers_notice(struct fleet *f, struct site *s, double after_s)
{
    for (uint32_t i = 0; i < s->worker_count; i++) {
        const struct worker *w = &f->workers[s->first_worker + i];
        if (!w->alive || w->whole || w->source == NOBODY) continue;
        if (w->source == FROM_GATEWAY ? s->gateway_up : f->workers[w->source].alive) continue;
        fleet_event(f, fleet_after(f, after_s),
                    (struct event){.kind = HOP_GONE, .who = s->first_worker + i, .epoch = w->epoch});
    }
}

static void links_fall(struct fleet *f, const struct site *s, double after_s, bool for_good)
{
    for (uint32_t i = 0; i < f->way_count; i++) {
        struct way *way = &f->ways[i];
        if (way->from != s->index && way->to != s->index) continue;
        way->epoch++;
        way->sending = way->pump_set = way->held_set = false;
        way->ramp_at = TB_TIME_NEVER;
        way->up = !for_good;
        if (way->from == s->index)
            fleet_event(f, fleet_after(f, after_s + way->spec->delay_s),
                        (struct event){.kind = LINK_DOWN, .who = i, .epoch = way->epoch});
    }
}

static void lose_gateway(struct fleet *f, struct site *s, bool for_good)
{
    s->gateway_up = false;
    s->way = NOBODY;
    links_fall(f, s, for_good ? LINK_DOWN_S : 0, for_good);
    if (for_good) return;
    readers_notice(f, s, s->spec->rtt_s); /* connections end with the process */
    if (s->spec->restart_s > 0)
        fleet_event(f, fleet_after(f, s->spec->restart_s),
                    (struct event){.kind = COME_BACK, .who = s->index});
}

void fleet_strike(struct fleet *f)
{
    struct site *s = &f->sites[f->loss.site];
    for (uint32_t i = 0; i < s->worker_count && f->loss.kind != TB_FLEET_LOSE_GATEWAY; i++) {
        struct worker *w = &f->workers[s->first_worker + i];
        const bool in_rack =
            s->spec->racks > 0 && (w->host - 1) % (uint32_t)s->spec->racks + 1 == f->loss.rack;
        if (f->loss.kind == TB_FLEET_LOSE_SITE || in_rack) worker_dies(f, w);
    }
    f->moved_at = f->now;
    if (f->loss.kind == TB_FLEET_LOSE_RACK) {
        readers_notice(f, s, s->spec->notice_s);
        return;
    }
    s->alive = f->loss.kind != TB_FLEET_LOSE_SITE;
    lose_gateway(f, s, !s->alive);
}

/* Its arena is there, its sessions are not: workers announce again what they hold. */
void fleet_come_back(struct fleet *f, struct site *s)
{
    s->gateway_up = true;
    s->life++;
    catalog_begin(f, s, false);
    for (uint32_t i = 0; i < f->way_count; i++) {
        if (f->ways[i].from != s->index || !f->sites[f->ways[i].to].gateway_up) continue;
        (void)!tb_catalog_site_up(f->sites[f->ways[i].to].catalog, f->now, &s->name, true);
        fleet_settle(f, &f->sites[f->ways[i].to]);
    }
    for (uint32_t i = 0; i < s->worker_count; i++) {
        struct worker *w = &f->workers[s->first_worker + i];
        w->life = s->life;
        if (w->alive) open_session(f, s, w);
    }
    fleet_control(f, s, 2 * s->worker_count);
    for (uint32_t i = 0; i < f->way_count; i++) /* who has it says so again */
        if (f->ways[i].to == s->index && f->sites[f->ways[i].from].reserved &&
            f->sites[f->ways[i].from].gateway_up)
            fleet_event(f, fleet_after(f, 2 * f->ways[i].spec->delay_s),
                        (struct event){.kind = ANNOUNCED, .who = i, .epoch = f->ways[i].epoch});
    if (!s->reserved) {
        s->begun = false;
        return;
    }
    TB_ASSERT(tb_catalog_restore_version(s->catalog, &f->key, TB_VERSION_KEPT,
                                         (uint64_t)f->spec->version.bytes, false) == TB_OK);
    s->reserved = false;
    fleet_site_has(f, s);
}

void fleet_plan_told(struct fleet *f, const struct worker *w)
{
    struct site *s = &f->sites[w->site];
    if (!s->gateway_up) return;
    const struct tb_id session = session_of(f, w);
    (void)!tb_catalog_plan_told(s->catalog, f->now, &session, &f->key.uid, w->plan);
    fleet_settle(f, s);
}

void fleet_hop_gone(struct fleet *f, struct worker *w)
{
    struct site *s = &f->sites[w->site];
    fleet_hop_close(f, w);
    w->source = NOBODY;
    if (!s->gateway_up) return; /* it hears of the gateway when it is back */
    const struct tb_id session = session_of(f, w);
    struct tb_catalog_reference_view plan;
    /* As a gateway does: a source that is silent to one of its readers is nobody's choice. */
    if (tb_catalog_plan_get(s->catalog, &session, &f->key.uid, w->plan, &plan) && !plan.from_gateway)
        tb_catalog_session_silent(s->catalog, f->now, &plan.upstream);
    (void)!tb_catalog_hop_lost(s->catalog, f->now, &session, &f->key.uid, w->plan);
    fleet_control(f, s, 1);
    fleet_settle(f, s);
}

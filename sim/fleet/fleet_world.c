#include "sim/fleet/fleet_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"
#include "base/layout/layout.h"
#include "gateway/catalog/sites.h"
#include "sim/fleet/fleet_inside.h"

#define BEGAN      TB_SECONDS(1) /* the version is held at home */
#define STALL_S    60    /* nothing landed for so long, and for twice a gateway's restart: nothing will */
#define TICK_EVERY 65536 /* events between two calls of `tick` */

/* ---- events ---- */

tb_time_ns fleet_after(const struct fleet *f, double seconds)
{
    return f->now + (tb_time_ns)(seconds * 1e9);
}

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static bool heap_grow(struct fleet *f)
{
    const uint32_t room = f->room == 0 ? 65536 : f->room * 2;
    struct event *heap = tb_realloc(f->heap, room * sizeof *heap);
    if (heap == NULL) return false;
    f->heap = heap;
    f->room = room;
    return true;
}

void fleet_event(struct fleet *f, tb_time_ns at, struct event e)
{
    if (f->count == f->room && !heap_grow(f)) {
        f->full = true;
        return;
    }
    e.at = at;
    e.order = f->orders++;
    uint32_t i = f->count++;
    for (; i > 0 && before(&e, &f->heap[(i - 1) / 2]); i = (i - 1) / 2)
        f->heap[i] = f->heap[(i - 1) / 2];
    f->heap[i] = e;
}

static struct event heap_take(struct fleet *f)
{
    const struct event first = f->heap[0];
    const struct event last = f->heap[--f->count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= f->count) break;
        if (child + 1 < f->count && before(&f->heap[child + 1], &f->heap[child])) child++;
        if (!before(&f->heap[child], &last)) break;
        f->heap[i] = f->heap[child];
        i = child;
    }
    if (f->count > 0) f->heap[i] = last;
    return first;
}

struct tb_id fleet_id(uint32_t kind, uint64_t number)
{
    struct tb_id id = {{0}};
    memcpy(id.bytes, &number, sizeof number);
    memcpy(id.bytes + sizeof number, &kind, sizeof kind);
    return id;
}

void fleet_control(struct fleet *f, struct site *s, uint32_t messages)
{
    const uint64_t second = f->now / TB_SECONDS(1);
    if (second != s->control_at) s->control_second = 0;
    s->control_at = second;
    s->control += messages;
    s->control_second += messages;
    s->control_max = fmax(s->control_max, s->control_second);
}

static void happen_way(struct fleet *f, const struct event *e)
{
    struct way *way = &f->ways[e->who];
    if (e->epoch != way->epoch) return; /* its connection died */
    switch ((enum event_kind)e->kind) {
    case ANNOUNCED:
        fleet_announced(f, way);
        if (f->sites[way->to].reserved && f->sites[way->to].way == NOBODY)
            fleet_land_in_order(f, &f->sites[way->to]);
        break;
    case MANIFEST:
        fleet_manifest(f, way);
        break;
    case WANTED:
        fleet_wanted(f, way);
        break;
    case PUMP:
        fleet_pump(f, way);
        break;
    case ARRIVED:
        fleet_arrived(f, way, e->b, e->c);
        break;
    case HELD:
        fleet_held(f, way);
        break;
    default:
        fleet_link_down(f, way);
    }
}

static void happen_worker(struct fleet *f, const struct event *e)
{
    struct worker *w = &f->workers[e->who];
    const bool stale = e->epoch != w->epoch || !w->alive;
    switch ((enum event_kind)e->kind) {
    case STAGE:
        fleet_stage(f, w);
        break;
    case PLANNED:
        if (e->c == w->plan_epoch) fleet_planned(f, w, e->b);
        break;
    case POLL:
        if (!stale) fleet_poll(f, w);
        break;
    case LANDED:
        if (!stale) fleet_landed(f, w, e->b);
        break;
    case FOLLOWED:
        if (!stale) fleet_worker_whole(f, w);
        break;
    default:
        if (!stale) fleet_hop_gone(f, w);
    }
}

static void happen(struct fleet *f, const struct event *e)
{
    f->now = e->at;
    if (e->kind < STAGE || e->kind == LINK_DOWN)
        happen_way(f, e);
    else if (e->kind < SITE_TICK)
        happen_worker(f, e);
    else if (e->kind == SITE_TICK)
        fleet_site_tick(f, &f->sites[e->who]);
    else if (e->kind == STRIKE)
        fleet_strike(f);
    else
        fleet_come_back(f, &f->sites[e->who]);
}

/* ---- the beginning ---- */

static enum tb_status make_chunks(struct fleet *f)
{
    const double bytes = f->spec->version.bytes;
    double chunks = f->spec->version.chunks;
    if (chunks == 0) chunks = ceil(bytes / (double)tb_cut_target_bytes((uint64_t)bytes));
    if (chunks > TB_FLEET_FILE_CHUNKS_MAX) chunks = TB_FLEET_FILE_CHUNKS_MAX;
    if (bytes / chunks >= INT32_MAX) return TB_TOO_LARGE;
    f->chunk_count = (uint32_t)chunks;
    f->chunk_bytes = (uint32_t)ceil(bytes / chunks);
    f->chunks = tb_calloc(f->chunk_count, sizeof *f->chunks);
    if (f->chunks == NULL) return TB_SITE_NOMEM;
    for (uint32_t k = 0; k < f->chunk_count; k++)
        f->chunks[k] = (struct tb_chunk){.offset = (uint64_t)k * f->chunk_bytes, .bytes = f->chunk_bytes};
    f->manifest = (struct tb_manifest){.chunk_count = f->chunk_count,
                                       .chunks = f->chunks,
                                       .bytes = (uint64_t)f->chunk_count * f->chunk_bytes};
    f->key = (struct tb_version_key){.uid = fleet_id(1, 1),
                                     .run = fleet_id(2, 1),
                                     .run_order = 1,
                                     .number = 1,
                                     .shard_count = 1,
                                     .root = {{1}}};
    return tb_name_set(&f->key.model, "policy");
}

static void make_ways(struct fleet *f)
{
    for (uint32_t i = 0; i < 2 * f->spec->link_count; i++) {
        const struct tb_fleet_link *l = &f->spec->links[i / 2];
        f->ways[i] = (struct way){.spec = l,
                                  .from = i % 2 == 0 ? l->a : l->b,
                                  .to = i % 2 == 0 ? l->b : l->a,
                                  .link = i / 2,
                                  .queue = i,
                                  .up = true,
                                  .ramp_at = TB_TIME_NEVER};
        for (uint32_t j = i % 2; j < i && l->shared[0] != '\0'; j += 2)
            if (strcmp(f->ways[j].spec->shared, l->shared) == 0 && f->ways[i].queue == i)
                f->ways[i].queue = j;
    }
    f->way_count = 2 * f->spec->link_count;
}

static enum tb_status make_sites(struct fleet *f)
{
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < f->spec->site_count && status == TB_OK; i++)
        status = fleet_site_open(f, i);
    if (status != TB_OK) return status;
    f->alive = f->worker_count;
    f->workers = tb_calloc((size_t)f->worker_count + 1, sizeof *f->workers);
    if (f->workers == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < f->way_count; i++) {
        f->ways[i].crossing_memory = tb_malloc(tb_outbound_bytes_for(&f->sites[f->ways[i].from].place, 1));
        if (f->ways[i].crossing_memory == NULL) return TB_SITE_NOMEM;
    }
    for (uint32_t i = 0; i < f->spec->site_count; i++)
        fleet_site_start(f, &f->sites[i]);
    return TB_OK;
}

static void publish(struct fleet *f)
{
    struct site *home = &f->sites[f->spec->home];
    const struct tb_name trainer = {"trainer0"};
    for (uint32_t k = 0; k < f->chunk_count; k++)
        (void)tb_bitmap_set(home->place.held, k);
    home->held = f->chunk_count;
    home->whole_at = f->now;
    TB_ASSERT(tb_catalog_remote_version(home->catalog, f->now, &trainer, &f->key, TB_VERSION_KEPT) == TB_OK);
    fleet_site_has(f, home);
}

/* ---- the end ---- */

static double seconds(tb_time_ns at)
{
    return at == TB_TIME_NEVER ? -1 : ((double)at - (double)BEGAN) / 1e9;
}

static double took_s(const struct worker *w)
{
    return w->alive && w->whole ? (double)(w->whole_at - w->staged_at) / 1e9 : -1;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Ranks are counted upward: of 100 times, p99 is the 99th. */
static struct tb_fleet_spread spread_of(double *times, unsigned count, unsigned never)
{
    if (count == 0) return (struct tb_fleet_spread){.never = never};
    qsort(times, count, sizeof *times, compare);
    return (struct tb_fleet_spread){.median = times[(count - 1) / 2],
                                    .p99 = times[(unsigned)ceil(0.99 * count) - 1],
                                    .last = times[count - 1],
                                    .count = count,
                                    .never = never};
}

static struct tb_fleet_spread workers_of(const struct fleet *f, uint32_t first, uint32_t count, double *times)
{
    unsigned whole = 0, never = 0;
    for (uint32_t i = first; i < first + count; i++) {
        const struct worker *w = &f->workers[i];
        if (w->alive && w->whole) times[whole++] = seconds(w->whole_at);
        never += w->alive && !w->whole;
    }
    return spread_of(times, whole, never);
}

static enum tb_status tell_site(const struct fleet *f, const struct site *s, double *times,
                                struct tb_fleet_site_result *r)
{
    const uint32_t nics = (uint32_t)s->spec->hosts + 1;
    r->gateway_s = seconds(s->whole_at);
    r->workers = workers_of(f, s->first_worker, s->worker_count, times);
    r->depth = s->depth;
    r->control = s->control / fmax(1, seconds(f->now));
    r->control_max = s->control_max;
    r->nics = tb_calloc(nics, sizeof *r->nics);
    r->took_s = tb_calloc((size_t)s->worker_count + 1, sizeof *r->took_s);
    if (r->nics == NULL || r->took_s == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < nics; i++)
        r->nics[i] = (struct tb_fleet_nic){s->nics[i].in, s->nics[i].out};
    for (uint32_t i = 0; i < s->worker_count; i++)
        r->took_s[i] = took_s(&f->workers[s->first_worker + i]);
    return TB_OK;
}

/* When the workers of one host have it that copy what its first one has from `first` on,
 * and all of at `whole`. */
static double followed(const struct fleet *f, const struct site *s, double first, double whole)
{
    const double followers = s->spec->workers - 1;
    return fmax(whole + f->chunk_bytes * followers / s->spec->shm,
                first + f->spec->version.bytes * followers / s->spec->shm);
}

/* A star: a gateway sends each chunk, as it comes, to each host in turn. */
static struct tb_fleet_spread star(const struct fleet *f, double *times)
{
    unsigned count = 0, never = 0;
    for (uint32_t i = 0; i < f->spec->site_count; i++) {
        const struct site *s = &f->sites[i];
        const double gateway = s->spec->gateway_nic > 0 ? s->spec->gateway_nic : s->spec->nic;
        const double bytes = f->chunk_bytes * tb_fleet_inside(&f->spec->version);
        const double each = bytes / gateway, one = bytes / s->spec->nic;
        double at = 0, first = 0;
        if (s->held < f->chunk_count) {
            never += s->worker_count;
            continue;
        }
        for (uint32_t k = 0; k < f->chunk_count; k++) {
            at = fmax(at, s->index == f->spec->home ? 0 : f->gateway_arrivals[i][k] - (double)BEGAN / 1e9) +
                 fmax(each * s->spec->hosts, one);
            if (k == 0) first = at;
        }
        for (uint32_t w = 0; w < s->worker_count; w++) {
            const double before = each * (s->spec->hosts - f->workers[s->first_worker + w].host);
            const bool follows = w % (uint32_t)s->spec->workers != 0;
            times[count++] = follows ? followed(f, s, first - before, at - before) : at - before;
        }
    }
    return spread_of(times, count, never);
}

/* Pulls: each worker for itself, all at once, from home over the links that its
 * site's gateway took. */
static struct tb_fleet_spread pulls(const struct fleet *f, double *times)
{
    double load[2 * TB_FLEET_FILE_LINKS_MAX] = {0}, remote = 0;
    const double bytes = f->spec->version.bytes * f->spec->version.delta;
    const double inside = f->spec->version.bytes * tb_fleet_inside(&f->spec->version);
    unsigned count = 0, never = 0;
    for (uint32_t i = 0; i < f->spec->site_count; i++) {
        uint32_t hops = 0;
        if (i != f->spec->home) remote += f->sites[i].worker_count;
        for (uint32_t at = i; at != f->spec->home && f->sites[at].way != NOBODY && hops < f->spec->site_count;
             hops++) {
            load[f->ways[f->sites[at].way].queue] += f->sites[i].worker_count;
            at = f->ways[f->sites[at].way].from;
        }
    }
    for (uint32_t i = 0; i < f->spec->site_count; i++) {
        const struct site *s = &f->sites[i];
        double at = inside * s->spec->workers / s->spec->nic, delay = 0;
        uint32_t hops = 0, from = i;
        for (; from != f->spec->home && f->sites[from].way != NOBODY && hops < f->spec->site_count; hops++) {
            const struct way *way = &f->ways[f->sites[from].way];
            at = fmax(at, load[way->queue] * bytes / way->spec->rate / way->spec->efficiency);
            delay += way->spec->delay_s;
            from = way->from;
        }
        const double up = f->spec->sites[f->spec->home].uplink;
        if (i != f->spec->home && up > 0) at = fmax(at, remote * bytes / up);
        if (i == f->spec->home) at = fmax(at, inside * s->worker_count / s->spec->nic);
        for (uint32_t w = 0; w < s->worker_count && from == f->spec->home; w++)
            times[count++] = at + delay;
        if (from != f->spec->home) never += s->worker_count;
    }
    return spread_of(times, count, never);
}

static enum tb_status tell(const struct fleet *f, struct tb_fleet_outcome *o)
{
    enum tb_status status = TB_OK;
    double gateways[TB_FLEET_FILE_SITES_MAX];
    unsigned whole = 0, never = 0;
    double *times = tb_calloc((size_t)f->worker_count + 1, sizeof *times);
    if (times == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < f->spec->site_count; i++) {
        const struct site *s = &f->sites[i];
        if (status == TB_OK) status = tell_site(f, s, times, &o->sites[i]);
        if (i == f->spec->home || !s->alive) continue;
        if (s->whole_at != TB_TIME_NEVER) gateways[whole++] = seconds(s->whole_at);
        never += s->whole_at == TB_TIME_NEVER;
    }
    for (uint32_t i = 0; i < f->way_count; i++) {
        struct tb_fleet_way *w = &o->links[i / 2];
        *(i % 2 == 0 ? &w->there : &w->back) = f->ways[i].bytes;
        *(i % 2 == 0 ? &w->goodput_there : &w->goodput_back) = f->ways[i].goodput;
    }
    o->gateways = spread_of(gateways, whole, never);
    o->workers = workers_of(f, 0, f->worker_count, times);
    o->star = star(f, times);
    o->pulls = pulls(f, times);
    o->chunks = f->chunk_count;
    o->ended_s = seconds(f->now);
    o->events = (double)f->events;
    tb_free(times);
    return status;
}

static void fini(struct fleet *f)
{
    for (uint32_t i = 0; i < f->spec->site_count; i++) {
        tb_free(f->sites[i].memory);
        tb_free(f->sites[i].words);
        tb_free(f->sites[i].nics);
        tb_free(f->sites[i].landing_memory);
        tb_free(f->gateway_arrivals[i]);
    }
    for (uint32_t i = 0; i < f->way_count; i++)
        tb_free(f->ways[i].crossing_memory);
    for (uint32_t i = 0; i < f->worker_count && f->workers != NULL; i++)
        tb_free(f->workers[i].words);
    tb_free(f->workers);
    tb_free(f->chunks);
    tb_free(f->heap);
    tb_free(f);
}

static bool goes_on(const struct fleet *f)
{
    const double stall = STALL_S + 2 * f->spec->sites[f->loss.site].restart_s;
    bool waits = f->done < f->alive;
    for (uint32_t i = 0; i < f->spec->site_count; i++)
        waits = waits || (f->sites[i].alive && f->sites[i].whole_at == TB_TIME_NEVER);
    return waits && !f->full && f->count > 0 && f->now < f->moved_at + (tb_time_ns)(stall * 1e9) &&
           f->now < TB_SECONDS(SECONDS_MAX);
}

static void run(struct fleet *f, void (*tick)(double share))
{
    publish(f);
    if (f->loss.kind != TB_FLEET_LOSE_NOTHING)
        fleet_event(f, fleet_after(f, f->loss.at_s), (struct event){.kind = STRIKE});
    while (goes_on(f)) {
        const struct event e = heap_take(f);
        f->events++;
        happen(f, &e);
        if (tick == NULL || f->events % TICK_EVERY != 0) continue;
        double held = 0;
        for (uint32_t i = 0; i < f->spec->site_count; i++)
            held += (double)f->sites[i].held * f->sites[i].worker_count;
        tick(held / f->chunk_count / fmax(1, f->worker_count));
    }
}

enum tb_status tb_fleet_world_run(const struct tb_fleet_scenario *scenario, const struct tb_fleet_loss *loss,
                                  void (*tick)(double share), struct tb_fleet_outcome *outcome_out)
{
    *outcome_out = (struct tb_fleet_outcome){0};
    struct fleet *f = tb_calloc(1, sizeof *f);
    if (f == NULL) return TB_SITE_NOMEM;
    f->spec = scenario;
    f->now = f->moved_at = BEGAN;
    if (loss != NULL) f->loss = *loss;
    enum tb_status status = make_chunks(f);
    if (status == TB_OK) {
        make_ways(f);
        status = make_sites(f);
    }
    if (status == TB_OK) {
        run(f, tick);
        status = f->full ? TB_SITE_NOMEM : tell(f, outcome_out);
    }
    fini(f);
    if (status != TB_OK) tb_fleet_outcome_fini(outcome_out);
    return status;
}

void tb_fleet_outcome_fini(struct tb_fleet_outcome *o)
{
    for (uint32_t i = 0; i < TB_FLEET_FILE_SITES_MAX; i++) {
        tb_free(o->sites[i].nics);
        tb_free(o->sites[i].took_s);
        o->sites[i].nics = NULL;
        o->sites[i].took_s = NULL;
    }
}

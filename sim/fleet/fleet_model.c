/* fleet_model.c - plans one site's workers in the order of their coming, then walks its hosts from
 * the gateway down and says when each chunk is held. Sites are equal and their links are their own,
 * so one stands for all. */
#include "sim/fleet/fleet_model.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/planner.h"

#define GATEWAY 0 /* host number; workers' hosts count from 1 */

struct host {
    uint32_t upstream; /* a lower number: whom a host reads from came before it */
    uint32_t readers;
    uint32_t hops_in; /* over its NIC */
    uint32_t depth;
    double at;      /* its latest chunk */
    double *chunks; /* when each is held; NULL where nobody reads from it, and before its turn */
};

struct site {
    const struct tb_fleet *fleet;
    struct host *hosts; /* hosts + 1 */
    uint32_t count;
    uint32_t fan_out;
};

static bool counts_fit(const struct tb_fleet *f)
{
    return f->sites > 0 && f->sites <= TB_FLEET_SITES_MAX && f->hosts > 0 && f->hosts <= TB_FLEET_HOSTS_MAX &&
           f->workers > 0 && f->workers <= TB_FLEET_WORKERS_MAX &&
           f->hosts <= TB_FLEET_HOSTS_MAX / f->workers && f->chunks > 0 && f->chunks <= TB_FLEET_CHUNKS_MAX &&
           f->racks <= f->hosts && f->fan_out <= TB_PLANNER_FAN_OUT_MAX;
}

static bool rates_fit(const struct tb_fleet *f)
{
    return isnormal(f->bytes) && f->bytes >= f->chunks && f->bytes <= 1e18 && isnormal(f->link_rate) &&
           f->link_rate >= 1 && f->link_rate <= 1e15 && isnormal(f->nic_rate) && f->nic_rate >= 1 &&
           f->nic_rate <= 1e15 && f->link_delay >= 0 && f->link_delay <= 60;
}

/* ---- who reads from whom ---- */

static struct tb_planner_member gateway_member(void)
{
    return (struct tb_planner_member){.kind = TB_PLANNER_GATEWAY, .upstream = TB_PLANNER_NONE};
}

static struct tb_planner_member worker_member(const struct tb_fleet *f, uint32_t worker)
{
    const uint32_t host = worker / f->workers;
    return (struct tb_planner_member){
        .id = worker + 1,
        .kind = TB_PLANNER_WORKER,
        .host = host + 1,
        .rack = f->racks == 0 ? 0 : host % f->racks + 1,
        .upstream = TB_PLANNER_NONE,
    };
}

static enum tb_status choose(const struct site *s, struct tb_planner_member *members, uint32_t reader,
                             uint32_t *upstream_out)
{
    *upstream_out = 0;
    if (s->fleet->shape == TB_FLEET_STAR && (reader - 1) % s->fleet->workers == 0) return TB_OK;
    const struct tb_planner_question question = {
        .members = members, .count = reader + 1, .reader = reader, .fan_out = s->fan_out};
    return tb_planner_upstream(&question, upstream_out);
}

static void join(struct site *s, struct tb_planner_member *members, uint32_t reader)
{
    const uint32_t from = members[members[reader].upstream].host;
    struct host *h = &s->hosts[members[reader].host];
    if (from == members[reader].host) return;
    members[members[reader].upstream].readers++;
    TB_ASSERT(from < members[reader].host);
    h->upstream = from;
    h->hops_in++;
    h->depth = s->hosts[from].depth + 1;
    s->hosts[from].readers++;
}

static enum tb_status plan(struct site *s)
{
    const uint32_t workers = s->fleet->hosts * s->fleet->workers;
    struct tb_planner_member *members = tb_calloc((size_t)workers + 1, sizeof *members);
    if (members == NULL) return TB_SITE_NOMEM;
    members[0] = gateway_member();
    enum tb_status status = TB_OK;
    for (uint32_t w = 0; w < workers && status == TB_OK; w++) {
        members[w + 1] = worker_member(s->fleet, w);
        uint32_t upstream;
        status = choose(s, members, w + 1, &upstream);
        if (status != TB_OK) break;
        members[w + 1].upstream = upstream;
        join(s, members, w + 1);
    }
    tb_free(members);
    return status;
}

/* ---- when each chunk is held ---- */

static enum tb_status chunks_new(struct site *s, uint32_t host)
{
    struct host *h = &s->hosts[host];
    if (h->readers == 0) return TB_OK;
    h->chunks = tb_calloc(s->fleet->chunks, sizeof *h->chunks);
    return h->chunks == NULL ? TB_SITE_NOMEM : TB_OK;
}

static void land(struct host *h, uint32_t chunk, double at)
{
    h->at = at;
    if (h->chunks != NULL) h->chunks[chunk] = at;
}

static enum tb_status cross(struct site *s)
{
    const struct tb_fleet *f = s->fleet;
    const enum tb_status status = chunks_new(s, GATEWAY);
    if (status != TB_OK) return status;
    for (uint32_t k = 0; k < f->chunks; k++)
        land(&s->hosts[GATEWAY], k, (k + 1) * (f->bytes / f->chunks / f->link_rate) + f->link_delay);
    return TB_OK;
}

/* A NIC sends a chunk to each of its readers in turn before it sends the next. */
static void serve_chunks(struct site *s, uint32_t from, const uint32_t *readers, uint32_t count)
{
    const double took = s->fleet->bytes / s->fleet->chunks / s->fleet->nic_rate;
    double sent = 0;
    for (uint32_t k = 0; k < s->fleet->chunks; k++)
        for (uint32_t r = 0; r < count; r++) {
            struct host *reader = &s->hosts[readers[r]];
            sent = fmax(fmax(sent, s->hosts[from].chunks[k]), reader->at) + took;
            land(reader, k, sent);
        }
}

/* `readers` has room for all hosts. */
static enum tb_status serve(struct site *s, uint32_t from, uint32_t *readers)
{
    uint32_t count = 0;
    if (s->hosts[from].readers == 0) return TB_OK;
    for (uint32_t h = from + 1; h < s->count; h++) {
        if (s->hosts[h].upstream != from) continue;
        const enum tb_status status = chunks_new(s, h);
        if (status != TB_OK) return status;
        readers[count++] = h;
    }
    serve_chunks(s, from, readers, count);
    tb_free(s->hosts[from].chunks);
    s->hosts[from].chunks = NULL;
    return TB_OK;
}

static enum tb_status spread(struct site *s)
{
    uint32_t *readers = tb_calloc(s->count, sizeof *readers);
    if (readers == NULL) return TB_SITE_NOMEM;
    enum tb_status status = cross(s);
    for (uint32_t h = 0; h < s->count && status == TB_OK; h++)
        status = serve(s, h, readers);
    tb_free(readers);
    return status;
}

/* ---- what came out ---- */

static int compare_times(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Ranks are counted upward: of 100 times, p99 is the 99th. */
static struct tb_fleet_times times_of(double *times, uint32_t count)
{
    qsort(times, count, sizeof *times, compare_times);
    return (struct tb_fleet_times){
        .median = times[(count - 1) / 2],
        .p99 = times[(uint32_t)ceil(0.99 * count) - 1],
        .last = times[count - 1],
    };
}

static enum tb_status tell(const struct site *s, struct tb_fleet_result *r)
{
    double *times = tb_calloc(s->count, sizeof *times);
    if (times == NULL) return TB_SITE_NOMEM;
    const double gateway = s->hosts[GATEWAY].at;
    r->gateways = (struct tb_fleet_times){gateway, gateway, gateway};
    for (uint32_t h = 1; h < s->count; h++) {
        const struct host *host = &s->hosts[h];
        times[h - 1] = host->at;
        r->nic_in_bytes = fmax(r->nic_in_bytes, host->hops_in * s->fleet->bytes);
        r->nic_out_bytes = fmax(r->nic_out_bytes, host->readers * s->fleet->bytes);
        if (host->depth > r->depth) r->depth = host->depth;
    }
    r->workers = times_of(times, s->count - 1); /* each host has as many */
    r->gateway_out_bytes = s->hosts[GATEWAY].readers * s->fleet->bytes;
    r->link_bytes = s->fleet->bytes;
    r->fan_out = s->fan_out;
    tb_free(times);
    return TB_OK;
}

static void site_fini(struct site *s)
{
    for (uint32_t h = 0; h < s->count; h++)
        tb_free(s->hosts[h].chunks);
    tb_free(s->hosts);
}

static enum tb_status run_site(const struct tb_fleet *f, struct tb_fleet_result *r)
{
    struct site s = {.fleet = f, .count = f->hosts + 1};
    s.fan_out = f->fan_out;
    if (s.fan_out == 0)
        s.fan_out = tb_planner_fan_out((uint64_t)f->nic_rate, (uint64_t)fmin(f->link_rate, f->nic_rate));
    s.hosts = tb_calloc(s.count, sizeof *s.hosts);
    if (s.hosts == NULL) return TB_SITE_NOMEM;
    enum tb_status status = plan(&s);
    if (status == TB_OK) status = spread(&s);
    if (status == TB_OK) status = tell(&s, r);
    site_fini(&s);
    return status;
}

/* All workers pull at once and in turn, through the link and then through their host's NIC: the
 * slower of the two paces all of them, so the first is done hardly before the last. */
static void run_pulls(const struct tb_fleet *f, struct tb_fleet_result *r)
{
    const double readers = (double)f->hosts * f->workers;
    const double turn = fmax(readers / f->link_rate, f->workers / f->nic_rate) * (f->bytes / f->chunks);
    const double before = (f->chunks - 1) * turn + f->link_delay;
    r->workers.median = before + turn * ceil(readers / 2) / readers;
    r->workers.p99 = before + turn * ceil(0.99 * readers) / readers;
    r->workers.last = before + turn;
    r->link_bytes = readers * f->bytes;
    r->nic_in_bytes = f->workers * f->bytes;
}

enum tb_status tb_fleet_run(const struct tb_fleet *f, struct tb_fleet_result *result_out)
{
    if (!counts_fit(f) || !rates_fit(f)) return TB_BAD_ARGUMENT;
    struct tb_fleet_result r = {.floor = f->bytes / fmin(f->link_rate, f->nic_rate) + f->link_delay};
    enum tb_status status = TB_OK;
    if (f->shape == TB_FLEET_PULLS)
        run_pulls(f, &r);
    else
        status = run_site(f, &r);
    if (status == TB_OK) *result_out = r;
    return status;
}

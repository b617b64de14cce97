/* fleet_hops.c - hops inside a site: intra/hop says which chunk next, NICs say when it is there. */
#include "sim/fleet/fleet_inside.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"

static double max_of(double a, double b)
{
    return a > b ? a : b;
}

static struct site *site_of(struct fleet *f, const struct worker *w)
{
    return &f->sites[w->site];
}

static const struct tb_place *place_of(struct fleet *f, const struct worker *w)
{
    return w->source == FROM_GATEWAY ? &site_of(f, w)->place : &f->workers[w->source].place;
}

static bool source_alive(struct fleet *f, const struct worker *w)
{
    if (w->source == FROM_GATEWAY) return site_of(f, w)->gateway_up;
    return w->source != NOBODY && f->workers[w->source].alive;
}

/* Memory for a worker that reads over its NIC. */
static void make_place(struct fleet *f, struct worker *w)
{
    const uint64_t words = TB_BITMAP_WORDS(f->chunk_count);
    if (w->words != NULL) return;
    w->words = tb_calloc(6 * words, sizeof *w->words);
    if (w->words == NULL) {
        f->full = true;
        return;
    }
    w->place = (struct tb_place){.manifest = &f->manifest, .held = w->words, .claimed = w->words + words};
}

static uint32_t *readers_of(struct fleet *f, const struct worker *w)
{
    return w->source == FROM_GATEWAY ? &site_of(f, w)->readers : &f->workers[w->source].readers;
}

static void unlink_reader(struct fleet *f, struct worker *w)
{
    if (!w->linked) return;
    uint32_t *at = readers_of(f, w);
    while (&f->workers[*at] != w) {
        TB_ASSERT(*at != NOBODY); /* a linked reader is in its source's list */
        at = &f->workers[*at].next_reader;
    }
    *at = w->next_reader;
    w->linked = false;
}

static void link_reader(struct fleet *f, struct worker *w)
{
    uint32_t *first = readers_of(f, w);
    TB_ASSERT(!w->linked && w->source != NOBODY);
    w->next_reader = *first;
    *first = (uint32_t)(w - f->workers);
    w->linked = true;
}

/* Host 0 is the gateway's. */
static double nic_rate(const struct tb_fleet_site *s, uint32_t host)
{
    TB_ASSERT(host <= (uint32_t)s->hosts);
    if (host == 0) return s->gateway_nic > 0 ? s->gateway_nic : s->nic;
    return s->slow_host == host ? s->slow_nic : s->nic;
}

static uint32_t host_of_source(const struct fleet *f, const struct worker *w)
{
    return w->source == FROM_GATEWAY ? 0 : f->workers[w->source].host;
}

static void give_back(struct fleet *f, tb_time_ns *free_at, double seconds)
{
    const tb_time_ns begun = fleet_after(f, 0), back = (tb_time_ns)(seconds * 1e9);
    if (*free_at > begun) *free_at = *free_at - begun > back ? *free_at - back : begun;
}

/* A chunk that was asked for and has not begun is not sent once the connection is closed: both
 * NICs are free for others that much sooner. */
static void cancel_requests(struct fleet *f, const struct worker *w)
{
    struct site *s = site_of(f, w);
    if (w->hop.in_flight_chunks < 2) return; /* one is on its way */
    const double bytes = (w->hop.in_flight_chunks - 1) * f->chunk_bytes * tb_fleet_inside(&f->spec->version);
    const uint32_t from_host = host_of_source(f, w);
    struct nic *from = &s->nics[from_host], *to = &s->nics[w->host];
    give_back(f, &from->out_free, bytes / nic_rate(s->spec, from_host));
    give_back(f, &to->in_free, bytes / nic_rate(s->spec, w->host));
    from->out -= bytes;
    to->in -= bytes;
    TB_ASSERT(from->out > -0.5 && to->in > -0.5); /* never more than was asked for */
}

void fleet_hop_close(struct fleet *f, struct worker *w)
{
    if (w->linked) cancel_requests(f, w);
    unlink_reader(f, w);
    w->epoch++;
    w->reading = false;
    w->asleep = false;
    if (w->words != NULL) memset(w->place.claimed, 0, TB_BITMAP_WORDS(f->chunk_count) * sizeof *w->words);
}

/* A chunk over two NICs that each serve in order. */
static void request(struct fleet *f, struct worker *w, const struct tb_hop_aim *aim)
{
    struct site *s = site_of(f, w);
    const uint32_t from_host = host_of_source(f, w);
    struct nic *from = &s->nics[from_host];
    struct nic *to = &s->nics[w->host];
    const double bytes = (double)aim->bytes * tb_fleet_inside(&f->spec->version);
    TB_ASSERT(aim->chunk < f->chunk_count && w->linked);
    const tb_time_ns asked = fleet_after(f, s->spec->rtt_s / 2);
    const tb_time_ns begun = asked > from->out_free ? asked : from->out_free;
    from->out_free = begun + (tb_time_ns)(bytes / nic_rate(s->spec, from_host) * 1e9);
    const tb_time_ns in_begun = begun > to->in_free ? begun : to->in_free;
    const tb_time_ns in_end = in_begun + (tb_time_ns)(bytes / nic_rate(s->spec, w->host) * 1e9);
    to->in_free = in_end > from->out_free ? in_end : from->out_free;
    TB_ASSERT(begun >= f->now && to->in_free >= begun); /* nothing arrives before it is asked for */
    from->out += bytes;
    to->in += bytes;
    fleet_event(f, to->in_free + (tb_time_ns)((s->spec->rtt_s / 2 + s->spec->hop_s) * 1e9),
                (struct event){
                    .kind = LANDED, .who = (uint32_t)(w - f->workers), .b = aim->chunk, .epoch = w->epoch});
}

/* Nothing it saw is left to ask for: of its first source it can hold nothing else. */
static bool asked_for_all(const struct worker *w)
{
    return w->hops == 1 && w->held + w->hop.in_flight_chunks == w->seen;
}

/* Each time it is asked for nothing more, the hop would search through all words: that was a
 * third of the whole run. */
static void pump(struct fleet *f, struct worker *w)
{
    struct tb_hop_aim aim;
    while (!asked_for_all(w) && source_alive(f, w) && tb_hop_next(&w->hop, &aim))
        request(f, w, &aim);
}

static void poll_next(struct fleet *f, struct worker *w)
{
    const tb_time_ns round_trip = fleet_after(f, site_of(f, w)->spec->rtt_s);
    fleet_event(f, w->hop.poll_at > round_trip ? w->hop.poll_at : round_trip,
                (struct event){.kind = POLL, .who = (uint32_t)(w - f->workers), .epoch = w->epoch});
}

/* Looks that would find nothing are not events: a hop sleeps until its source has news, then the
 * looks that it made meanwhile are told to its core, and the next one is an event. */
void fleet_news(struct fleet *f, uint32_t first_reader)
{
    for (uint32_t r = first_reader; r != NOBODY; r = f->workers[r].next_reader) {
        struct worker *w = &f->workers[r];
        if (!w->asleep) continue;
        w->asleep = false;
        while (w->hop.poll_at <= f->now)
            tb_hop_round_done(&w->hop, w->hop.poll_at);
        poll_next(f, w);
    }
}

void fleet_poll(struct fleet *f, struct worker *w)
{
    uint32_t first, count;
    if (!source_alive(f, w)) return;
    if (!tb_hop_poll_words(&w->hop, 0, &first, &count)) return; /* its source is known whole */
    const uint64_t *held = place_of(f, w)->held;
    const enum tb_status seen = tb_hop_seen(&w->hop, 0, first, &held[first], count);
    TB_ASSERT(seen == TB_OK);
    const struct site *s = site_of(f, w);
    w->seen = s->held;
    if (w->source != FROM_GATEWAY) w->seen = f->workers[w->source].held;
    TB_ASSERT(w->seen <= f->chunk_count);
    tb_hop_round_done(&w->hop, f->now);
    pump(f, w);
    w->asleep = !w->whole;
}

/* The first of a host's workers, which stand together. */
static struct worker *host_of(const struct fleet *f, const struct worker *w)
{
    const struct site *s = &f->sites[w->site];
    return &f->workers[s->first_worker + (w->host - 1) * (uint32_t)s->spec->workers];
}

/* When something first came to its host, over any hop: a follower copies while the host
 * reads, also where another one reads by now, or the one whom it follows is a follower. */
static tb_time_ns host_began(const struct fleet *f, const struct worker *w)
{
    const struct worker *all = host_of(f, w);
    tb_time_ns began = f->now;
    for (uint32_t i = 0; i < (uint32_t)f->sites[w->site].spec->workers; i++)
        if (all[i].first_at != TB_TIME_NEVER && all[i].first_at < began) began = all[i].first_at;
    return began;
}

/* Workers that copy through their host's memory behind `w`, or did so after `since`. */
static uint32_t copying(const struct fleet *f, const struct worker *w, tb_time_ns since)
{
    const struct worker *all = host_of(f, w);
    uint32_t count = 0;
    for (uint32_t i = 0; i < (uint32_t)f->sites[w->site].spec->workers; i++)
        count += all[i].whole ? all[i].words == NULL && all[i].whole_at > since
                              : all[i].source == (uint32_t)(w - f->workers);
    return count;
}

/* Those of its host that copy from it are done when all of them have gone through the host's
 * memory. */
static void followers_go(struct fleet *f, struct worker *w)
{
    const struct tb_fleet_site *spec = site_of(f, w)->spec;
    const tb_time_ns began = host_began(f, w);
    struct worker *all = host_of(f, w);
    const double behind = f->chunk_bytes * copying(f, w, f->now) / spec->shm + spec->hop_s;
    for (uint32_t i = 0; i < (uint32_t)spec->workers; i++) {
        struct worker *o = &all[i];
        if (o->source != (uint32_t)(w - f->workers) || o->whole) continue;
        const tb_time_ns since = o->staged_at > began ? o->staged_at : began;
        const double through = f->spec->version.bytes * copying(f, w, since) / spec->shm;
        const double at = max_of((double)f->now / 1e9 + behind, (double)since / 1e9 + through);
        fleet_event(f, (tb_time_ns)(at * 1e9),
                    (struct event){.kind = FOLLOWED, .who = (uint32_t)(o - f->workers), .epoch = o->epoch});
    }
}

void fleet_worker_whole(struct fleet *f, struct worker *w)
{
    if (w->whole) return;
    w->whole = true;
    w->reading = false;
    w->whole_at = f->now;
    f->done++;
    site_of(f, w)->done++;
    f->moved_at = f->now;
    fleet_tell_progress(f, w);
    followers_go(f, w);
}

void fleet_landed(struct fleet *f, struct worker *w, uint32_t chunk)
{
    const struct tb_hop_aim aim = {.chunk = chunk, .bytes = f->chunks[chunk].bytes};
    w->held += tb_bitmap_set(w->place.held, chunk) ? 1 : 0;
    (void)tb_bitmap_clear(w->place.claimed, chunk);
    tb_hop_landed(&w->hop, &aim);
    if (w->first_at == TB_TIME_NEVER) w->first_at = f->now;
    f->moved_at = f->now;
    fleet_news(f, w->readers);
    pump(f, w);
    if (w->held == f->chunk_count) fleet_worker_whole(f, w);
}

static void follow(struct fleet *f, struct worker *w, uint32_t source)
{
    const struct worker *o = &f->workers[source];
    w->depth = o->depth;
    if (o->whole) followers_go(f, &f->workers[source]);
}

/* The chunks that a follower has copied when it has to go on over the NIC. */
static void take_over(struct fleet *f, struct worker *w)
{
    if (w->words != NULL || f->full) return;
    const uint32_t before = w->source;
    make_place(f, w);
    if (f->full || before == NOBODY || before == FROM_GATEWAY || f->workers[before].host != w->host ||
        f->workers[before].words == NULL)
        return;
    memcpy(w->place.held, f->workers[before].place.held, TB_BITMAP_WORDS(f->chunk_count) * sizeof *w->words);
    w->held = f->workers[before].held;
}

/* Only the worker of a host that reads over the NIC has chunks of its own here. The others copy
 * them and are whole soon after. A reader of one of the others reads the same bytes over the
 * same NIC. */
static uint32_t over_the_nic(struct fleet *f, uint32_t source)
{
    for (uint32_t next; source != FROM_GATEWAY && f->workers[source].words == NULL; source = next) {
        next = f->workers[source].source;
        if (next == NOBODY || next == FROM_GATEWAY || f->workers[next].host != f->workers[source].host) {
            make_place(f, &f->workers[source]); /* it has nothing yet */
            return source;
        }
    }
    return source;
}

void fleet_planned(struct fleet *f, struct worker *w, uint32_t source)
{
    struct site *s = site_of(f, w);
    if (w->whole || !w->alive) return;
    fleet_hop_close(f, w);
    fleet_plan_told(f, w);
    if (source != FROM_GATEWAY &&
        !f->workers[source].alive) { /* its lease stands: a dialler notices that it is silent */
        w->source = NOBODY;
        fleet_event(f, fleet_after(f, s->spec->notice_s),
                    (struct event){.kind = HOP_GONE, .who = (uint32_t)(w - f->workers), .epoch = w->epoch});
        return;
    }
    if (source != FROM_GATEWAY && f->workers[source].host == w->host) {
        w->source = source;
        w->reading = true;
        follow(f, w, source);
        return;
    }
    take_over(f, w);
    source = over_the_nic(f, source);
    if (f->full) return;
    w->source = source;
    w->reading = true;
    link_reader(f, w);
    w->depth = source == FROM_GATEWAY ? 1 : f->workers[source].depth + 1;
    if (w->depth > s->depth) s->depth = w->depth;
    w->seen_source = (struct tb_source_shard){0};
    w->shard = (struct tb_hop_shard){.source = &w->seen_source,
                                     .place = &w->place,
                                     .memory = w->words + 2 * TB_BITMAP_WORDS(f->chunk_count)};
    w->hops += w->held > 0 ? 2 : 1;
    w->seen = 0;
    tb_hop_state_init(&w->hop, &w->shard, 1, 0, f->now);
    w->hop.depth = w->depth;
    fleet_event(f, fleet_after(f, 2 * s->spec->rtt_s), /* connect, then the first snapshot */
                (struct event){.kind = POLL, .who = (uint32_t)(w - f->workers), .epoch = w->epoch});
}

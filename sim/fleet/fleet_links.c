/* fleet_links.c - crossings: wan/crossing says what goes next and wan/landing what is told back;
 * links say when it is there. */
#include "sim/fleet/fleet_inside.h"

#include <math.h>

#include "base/assert.h"
#include "base/bitmap.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/sites.h"
#include "wan/send/outbound_parcels.h"

#define TCP_IP_BYTES  52     /* headers of a packet, with timestamps */
#define TLS_SHARE     1.0015 /* record headers, tags and chunk frames */
#define FIRST_PACKETS 10     /* of a connection that begins */
#define QUEUED_AHEAD  TB_MS(2)

static double goodput(const struct way *way)
{
    const double mtu = way->spec->mtu;
    return way->spec->rate * (mtu - TCP_IP_BYTES) / mtu / TLS_SHARE * way->spec->efficiency;
}

/* Seconds that so many bytes take from `at` on. The streams' windows begin with ten packets and
 * double each round trip, until the link's rate is the limit. */
static double takes_s(const struct way *way, tb_time_ns at, double bytes)
{
    const double trip = 2 * way->spec->delay_s, full = goodput(way);
    const double first =
        way->spec->streams * FIRST_PACKETS * (way->spec->mtu - TCP_IP_BYTES) / fmax(trip, 1e-9);
    if (trip <= 0 || way->ramp_at == TB_TIME_NEVER || first >= full) return bytes / full;
    const double since = (double)(at > way->ramp_at ? at - way->ramp_at : 0) / 1e9;
    const double ramp = trip * log2(full / first); /* from then on it is full */
    if (since >= ramp) return bytes / full;
    const double begun = exp2(since / trip), unit = first * trip / log(2);
    const double in_ramp = unit * (full / first - begun);
    if (bytes <= in_ramp) return trip * log2(begun + bytes / unit) - since;
    return ramp - since + (bytes - in_ramp) / full;
}

static uint32_t number(const struct fleet *f, const struct way *way)
{
    return (uint32_t)(way - f->ways);
}

static bool stands(const struct fleet *f, const struct way *way)
{
    return way->up && f->sites[way->from].gateway_up && f->sites[way->to].gateway_up;
}

static void message(struct fleet *f, const struct way *way, uint32_t kind, double after_s)
{
    fleet_control(f, &f->sites[way->from], 1);
    fleet_event(f, fleet_after(f, after_s + way->spec->delay_s),
                (struct event){.kind = kind, .who = number(f, way), .epoch = way->epoch});
}

void fleet_announce(struct fleet *f, struct site *s)
{
    for (uint32_t i = 0; i < f->way_count; i++)
        if (f->ways[i].from == s->index && stands(f, &f->ways[i])) message(f, &f->ways[i], ANNOUNCED, 0);
}

void fleet_announced(struct fleet *f, struct way *way)
{
    struct site *to = &f->sites[way->to];
    const enum tb_status status =
        tb_catalog_remote_version(to->catalog, f->now, &f->sites[way->from].name, &f->key, TB_VERSION_READY);
    TB_ASSERT(status == TB_OK || status == TB_DONE_BEFORE);
    fleet_settle(f, to);
}

static struct way *way_from(struct fleet *f, const struct site *to, const struct tb_name *from)
{
    for (uint32_t i = 0; i < f->way_count; i++) {
        struct way *way = &f->ways[i];
        if (way->to == to->index && tb_name_equal(&f->sites[way->from].name, from)) return way;
    }
    return NULL;
}

static void land_from(struct fleet *f, struct site *s, struct way *way)
{
    if (s->way == number(f, way)) return;
    s->way = number(f, way);
    tb_inbound_init(&s->landing, &s->place, 1, s->landing_memory);
    struct way *back = &f->ways[number(f, way) ^ 1];
    fleet_control(f, s, 3);
    fleet_event(f, fleet_after(f, back->spec->delay_s),
                (struct event){.kind = WANTED, .who = number(f, way), .epoch = way->epoch});
}

void fleet_land_in_order(struct fleet *f, struct site *s)
{
    if (s->held == f->chunk_count || !s->gateway_up) return;
    for (uint32_t i = 0; i < s->from_count; i++) {
        struct way *way = way_from(f, s, &s->from[i]);
        if (way == NULL || !stands(f, way)) continue;
        land_from(f, s, way);
        return;
    }
}

/* As gateway/daemon does it: the first of the list that can be reached. */
void fleet_cross(struct fleet *f, struct site *s, const struct tb_catalog_todo *todo)
{
    s->from_count = todo->from_count;
    for (uint32_t i = 0; i < todo->from_count; i++)
        s->from[i] = todo->from[i];
    if (s->reserved) {
        (void)!tb_catalog_crossing_begun(s->catalog, f->now, &f->key.uid);
        fleet_land_in_order(f, s);
        return;
    }
    for (uint32_t i = 0; i < s->from_count; i++) {
        struct way *way = way_from(f, s, &s->from[i]);
        if (way == NULL || !stands(f, way) || s->begun) continue;
        s->begun = true;
        const double pages = f->chunk_count * f->spec->version.manifest;
        way->ramp_at = f->now;
        message(f, way, MANIFEST,
                way->spec->delay_s + takes_s(way, fleet_after(f, way->spec->delay_s), pages));
        way->bytes += pages;
        return;
    }
}

void fleet_manifest(struct fleet *f, struct way *way)
{
    struct site *s = &f->sites[way->to];
    fleet_site_has(f, s);
    land_from(f, s, way);
}

static void tell_held(struct fleet *f, const struct site *s, struct way *way)
{
    struct tb_held_word words[64];
    uint8_t bytes[64 * TB_HELD_WORD_BYTES];
    for (uint32_t first = 0; first < TB_BITMAP_WORDS(f->chunk_count); first += 64) {
        uint32_t count = 0;
        for (uint32_t w = first; w < first + 64 && w < TB_BITMAP_WORDS(f->chunk_count); w++)
            if (s->place.held[w] != way->crossing.shards[0].peer[w])
                words[count++] = (struct tb_held_word){w, s->place.held[w]};
        if (count == 0) continue;
        struct tb_writer writer;
        tb_writer_init(&writer, bytes, sizeof bytes);
        tb_held_words_encode(words, count, &writer);
        TB_ASSERT(tb_outbound_held(&way->crossing, 0, &(struct tb_span){bytes, count * TB_HELD_WORD_BYTES}) ==
                  TB_OK);
    }
}

void fleet_wanted(struct fleet *f, struct way *way)
{
    if (!stands(f, way)) return;
    tb_outbound_init(&way->crossing, &f->sites[way->from].place, 1, way->crossing_memory);
    tell_held(f, &f->sites[way->to], way);
    TB_ASSERT(tb_outbound_start(&way->crossing) == TB_OK);
    way->sending = true;
    if (way->ramp_at == TB_TIME_NEVER) way->ramp_at = f->now;
    fleet_pump(f, way);
}

static tb_time_ns later(tb_time_ns a, tb_time_ns b)
{
    return a > b ? a : b;
}

/* When a parcel that begins at `begun` has left an uplink of so many bytes a second. */
static tb_time_ns through(tb_time_ns *free, double rate, tb_time_ns begun, double bytes)
{
    if (rate <= 0) return begun;
    *free = later(*free, begun) + (tb_time_ns)(bytes / rate * 1e9);
    return *free;
}

static void send_parcel(struct fleet *f, struct way *way, const struct tb_parcel *p)
{
    struct way *queue = &f->ways[way->queue];
    const double bytes = (double)p->bytes * f->spec->version.delta;
    const double on_wire = bytes * way->spec->rate * way->spec->efficiency / goodput(way);
    struct site *from = &f->sites[way->from], *to = &f->sites[way->to];
    tb_time_ns begun = later(later(f->now, queue->free), from->up_free[0]);
    queue->free = begun + (tb_time_ns)(takes_s(way, begun, bytes) * 1e9);
    tb_time_ns ended = later(queue->free, through(&from->up_free[0], from->spec->uplink, begun, on_wire));
    ended = later(ended, through(&to->up_free[1], to->spec->uplink, begun, on_wire));
    way->bytes += on_wire;
    way->goodput += bytes;
    tb_outbound_taken(&way->crossing, p, 0);
    fleet_event(
        f, ended + (tb_time_ns)((way->spec->delay_s + (double)p->bytes / f->spec->version.codec) * 1e9),
        (struct event){
            .kind = ARRIVED, .who = number(f, way), .b = p->first, .c = p->count, .epoch = way->epoch});
}

/* A parcel is taken when the one before it is nearly gone: so each sharer of the queue comes in
 * turn. */
void fleet_pump(struct fleet *f, struct way *way)
{
    struct tb_parcel p;
    way->pump_set = false;
    if (!way->sending || !stands(f, way)) return;
    const tb_time_ns free = later(f->ways[way->queue].free, f->sites[way->from].up_free[0]);
    if (free <= f->now + QUEUED_AHEAD) {
        if (!tb_outbound_next(&way->crossing, &p)) return;
        send_parcel(f, way, &p);
    }
    way->pump_set = true;
    const tb_time_ns next = later(f->ways[way->queue].free, f->sites[way->from].up_free[0]);
    fleet_event(f, later(f->now + 1, next > QUEUED_AHEAD ? next - QUEUED_AHEAD : 0),
                (struct event){.kind = PUMP, .who = number(f, way), .epoch = way->epoch});
}

void fleet_relay(struct fleet *f, struct site *s)
{
    for (uint32_t i = 0; i < f->way_count; i++)
        if (f->ways[i].from == s->index && f->ways[i].sending && !f->ways[i].pump_set)
            fleet_pump(f, &f->ways[i]);
}

static void land(struct fleet *f, struct site *s, uint32_t chunk)
{
    if (!tb_bitmap_set(s->place.held, chunk)) return;
    s->held++;
    f->gateway_arrivals[s->index][s->held - 1] = (double)f->now / 1e9;
}

void fleet_arrived(struct fleet *f, struct way *way, uint32_t chunk, uint32_t count)
{
    struct site *s = &f->sites[way->to];
    if (!stands(f, way)) return;
    for (uint32_t k = 0; k < count; k++)
        land(f, s, chunk + k);
    f->moved_at = f->now;
    fleet_news(f, s->readers);
    if (s->held == f->chunk_count && s->whole_at == TB_TIME_NEVER) {
        s->whole_at = f->now;
        (void)!tb_catalog_arena_progress(s->catalog, f->now, &f->key.uid, 0, s->held);
        fleet_settle(f, s);
    }
    fleet_relay(f, s);
    if (way->held_set) return;
    way->held_set = true;
    const tb_time_ns due = later(f->now, tb_time_add(s->landing.told_at, TB_HELD_EVERY));
    fleet_control(f, s, 1);
    fleet_event(f, due + (tb_time_ns)(way->spec->delay_s * 1e9),
                (struct event){.kind = HELD, .who = number(f, way), .epoch = way->epoch});
}

/* The words are read when they come, not when they left: they only grow, and what is under
 * way is not sent again. */
void fleet_held(struct fleet *f, struct way *way)
{
    struct site *to = &f->sites[way->to];
    struct tb_held_word words[64];
    uint32_t shard;
    way->held_set = false;
    if (!stands(f, way) || !way->sending) return;
    tb_inbound_told(&to->landing, f->now);
    while (tb_inbound_differences(&to->landing, &shard, words, 64) > 0) {
    }
    tell_held(f, to, way);
    if (!tb_outbound_whole(&way->crossing)) return;
    way->sending = false;
    const struct tb_catalog_site_progress p = {
        .site = to->name, .uid = f->key.uid, .held_chunks = to->held, .whole = true};
    (void)!tb_catalog_site_progress(f->sites[way->from].catalog, f->now, &p);
    fleet_settle(f, &f->sites[way->from]);
}

void fleet_link_down(struct fleet *f, struct way *way)
{
    struct site *to = &f->sites[way->to];
    if (!to->gateway_up) return;
    (void)!tb_catalog_site_up(to->catalog, f->now, &f->sites[way->from].name, false);
    fleet_settle(f, to);
    if (to->way == number(f, way)) to->way = NOBODY;
    if (to->reserved)
        fleet_land_in_order(f, to);
    else if (to->begun && to->way == NOBODY)
        to->begun = false;
}

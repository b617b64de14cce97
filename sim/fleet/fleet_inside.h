/* fleet_inside.h - what the parts of the fleet's world share. Private to sim/fleet. */
#ifndef TB_SIM_FLEET_INSIDE_H
#define TB_SIM_FLEET_INSIDE_H

#include "base/layout/place.h"
#include "base/time.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/todos.h"
#include "intra/hop/hop.h"
#include "sim/fleet/fleet_world.h"
#include "wan/send/inbound.h"

#define NOBODY       UINT32_MAX
#define FROM_GATEWAY (UINT32_MAX - 1)
#define SLICES       20        /* a site's workers tell their progress in so many parts of a second */
#define TICK         TB_MS(50) /* of a site */
#define SECONDS_MAX  100000    /* the world ends at the latest then */

enum event_kind {
    ANNOUNCED, /* way: its far end heard that the near end has the version */
    MANIFEST,  /* way: asked for and come */
    WANTED,    /* way: WANT, HELD and START at the sender */
    PUMP,      /* way: the sender's queue has room */
    ARRIVED,   /* way, b: chunk, c: count */
    HELD,      /* way: the sender learns what is held */
    STAGE,     /* worker */
    PLANNED,   /* worker, b: source, c: epoch of the plan */
    POLL,      /* worker: a snapshot of its source's bitmap is here */
    LANDED,    /* worker, b: chunk */
    FOLLOWED,  /* worker: it copied all from its host's reader */
    HOP_GONE,  /* worker: it noticed that its source is gone */
    SITE_TICK, /* site */
    LINK_DOWN, /* way: its far end noticed that the near end is gone */
    STRIKE,    /* the loss */
    COME_BACK, /* site: its gateway */
};

struct event {
    tb_time_ns at;
    uint64_t order;
    uint32_t kind, who, b, c;
    uint32_t epoch;
};

struct nic {
    tb_time_ns out_free, in_free;
    double in, out;
};

struct worker {
    uint32_t site, index, host; /* host: 1 up to the site's hosts */
    bool alive, staged, reading, whole;
    uint32_t seen;       /* of its source's chunks, at the last look */
    uint32_t hops;       /* so many sources it had over its NIC */
    bool linked;         /* in its source's list of readers */
    uint32_t source;     /* worker number, FROM_GATEWAY, NOBODY */
    uint32_t epoch;      /* of its hop: what is under way for another is dropped */
    uint32_t plan_epoch; /* of the plan on its way to it */
    uint64_t plan;
    uint32_t life;                 /* of its session: 0 was the first */
    uint32_t told, held;           /* chunks */
    uint32_t readers, next_reader; /* who reads over a NIC from it; the next of its source's */
    bool asleep;                   /* its next look at the source's bitmap waits for news there */
    uint32_t depth;                /* NICs between it and the gateway */
    tb_time_ns staged_at, first_at, whole_at, told_at;
    uint64_t *words; /* held, claimed, then the hop's four; NULL while it only follows */
    struct tb_place place;
    struct tb_source_shard seen_source;
    struct tb_hop_shard shard;
    struct tb_hop_state hop;
};

struct site {
    const struct tb_fleet_site *spec;
    uint32_t index;
    struct tb_name name;
    void *memory;
    struct tb_catalog *catalog;
    bool alive, gateway_up, reserved, begun;
    uint64_t *words;
    struct tb_place place;
    uint32_t held;
    tb_time_ns whole_at; /* TB_TIME_NEVER: not yet */
    tb_time_ns told_at;
    struct nic *nics;
    tb_time_ns up_free[2]; /* its uplink, out and in */
    struct tb_name from[TB_CATALOG_FROM_MAX];
    uint32_t from_count;
    uint32_t way; /* it lands from there; NOBODY */
    struct tb_inbound landing;
    void *landing_memory;
    uint32_t first_worker, worker_count, done;
    uint32_t life;
    uint64_t ticks;
    double control, control_second, control_max;
    uint64_t control_at; /* second */
    uint32_t depth;
    uint32_t readers; /* the first who reads from the gateway */
};

/* One direction of a link. */
struct way {
    const struct tb_fleet_link *spec;
    uint32_t from, to, link;
    uint32_t queue; /* index of the one whose `free` it uses: its own, or that of the first which shares it */
    bool up, sending;
    uint32_t epoch;
    tb_time_ns free;    /* of the queue: when what is queued has left */
    tb_time_ns ramp_at; /* TB_TIME_NEVER: idle */
    bool pump_set, held_set;
    struct tb_outbound crossing;
    void *crossing_memory;
    double bytes, goodput;
};

struct fleet {
    const struct tb_fleet_scenario *spec;
    struct tb_fleet_loss loss;
    tb_time_ns now, ended;
    struct event *heap;
    uint32_t count, room;
    bool full; /* no memory for an event */
    uint64_t orders, events;
    uint32_t chunk_count, chunk_bytes;
    struct tb_chunk *chunks;
    struct tb_manifest manifest;
    struct tb_version_key key;
    struct site sites[TB_FLEET_FILE_SITES_MAX];
    struct way ways[2 * TB_FLEET_FILE_LINKS_MAX];
    uint32_t way_count;
    struct worker *workers;
    uint32_t worker_count, alive, done;
    tb_time_ns moved_at; /* something landed */
    /* when each chunk came, in seconds, in the order of coming */
    double *gateway_arrivals[TB_FLEET_FILE_SITES_MAX];
};

/* fleet_world.c */
tb_time_ns fleet_after(const struct fleet *f, double seconds);
void fleet_event(struct fleet *f, tb_time_ns at, struct event e);
struct tb_id fleet_id(uint32_t kind, uint64_t number);
void fleet_control(struct fleet *f, struct site *s, uint32_t messages);

/* fleet_links.c */
void fleet_announce(struct fleet *f, struct site *s);
void fleet_announced(struct fleet *f, struct way *way);
void fleet_cross(struct fleet *f, struct site *s, const struct tb_catalog_todo *todo);
void fleet_manifest(struct fleet *f, struct way *way);
void fleet_wanted(struct fleet *f, struct way *way);
void fleet_pump(struct fleet *f, struct way *way);
void fleet_arrived(struct fleet *f, struct way *way, uint32_t chunk, uint32_t count);
void fleet_held(struct fleet *f, struct way *way);
void fleet_link_down(struct fleet *f, struct way *way);
void fleet_land_in_order(struct fleet *f, struct site *s);
void fleet_relay(struct fleet *f, struct site *s);

/* fleet_hops.c */
void fleet_planned(struct fleet *f, struct worker *w, uint32_t source);
void fleet_poll(struct fleet *f, struct worker *w);
void fleet_landed(struct fleet *f, struct worker *w, uint32_t chunk);
void fleet_worker_whole(struct fleet *f, struct worker *w);
void fleet_news(struct fleet *f, uint32_t first_reader); /* their source holds a chunk more */
void fleet_hop_close(struct fleet *f, struct worker *w);

/* fleet_sites.c */
enum tb_status fleet_site_open(struct fleet *f, uint32_t index);
void fleet_site_start(struct fleet *f, struct site *s);
void fleet_site_has(struct fleet *f, struct site *s);
void fleet_settle(struct fleet *f, struct site *s);
void fleet_site_tick(struct fleet *f, struct site *s);
void fleet_stage(struct fleet *f, struct worker *w);
void fleet_strike(struct fleet *f);
void fleet_come_back(struct fleet *f, struct site *s);
void fleet_plan_told(struct fleet *f, const struct worker *w);
void fleet_hop_gone(struct fleet *f, struct worker *w);
void fleet_tell_progress(struct fleet *f, struct worker *w);

#endif

/* world.h - a seeded world: whole gateways, their links, workers and a trainer in virtual time,
 * one thread, one seed.
 *
 * The shipped code runs as it is wired: gateway/daemon, the catalog, wan with its sessions, streams
 * and codecs, base/net/wire, the cores of intra. This folder does the machine's part (same headers,
 * other bodies): processes and their heaps, libuv's timers and asyncs, byte channels, the arena's
 * file, the store's file, READs inside a site. Nothing here reads a clock or an address, so a seed
 * gives the same trace with every compiler.
 *
 * Reading order: world_main.c, world_met.c, world_jobs.c, world_trial.c (seeds in processes),
 * world_shrink.c, world_run.c (one seed), the faults (fault_*.c), the checkers (world_check.c), who
 * lives here (world_gateway.c, world_client.c, world_worker.c, world_trainer.c), members that lie
 * (world_hostile.c, world_forged.c, world_twin.c), the machine
 * (world_process.c, world_uv.c, world_chan.c, world_pipe.c, world_arena.c, world_store.c,
 * world_anchors.c, world_fabric.c, world_shelves.c, world_threads.c, world_outside.c). */
#ifndef TB_SIM_WORLD_H
#define TB_SIM_WORLD_H

#include "base/layout/manifest.h"
#include "base/layout/place.h"
#include "base/layout/shelf.h"
#include "base/net/wire.h"
#include "base/time.h"
#include "gateway/catalog/models.h"
#include "gateway/config/config.h"
#include "gateway/store/store.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/fabric_hops.h"

#define SITES_MAX        4u
#define ROWS_MAX         (SITES_MAX + 1u) /* and a twin (world_twin.c) */
#define WORKERS_MAX      6u               /* of one site */
#define PROCESSES_MAX    (SITES_MAX * (1u + WORKERS_MAX) + MODELS_MAX + 1u)
#define MODELS_MAX       2u
#define VERSIONS_MAX     24u /* of all models */
#define SHARDS_MAX       2u
#define CHUNKS_MAX       16u
#define SHARD_BYTES      4096u
#define CHUNK_BYTES_MEAN 256u
#define STEP             TB_MS(5)
#define NONE             UINT32_MAX
#define WHY_BYTES        240u /* of what says why a seed failed */

/* ---- faults: a coin a seed and kind, then a strength of 1 to 4 ---- */

/* clang-format off */
#define FAULT_LIST(X)                                                                       \
    X(DELAY, "delay") X(LOSS, "loss") X(DUPLICATE, "duplicate") X(REORDER, "reorder")       \
    X(CORRUPT, "corrupt") X(CLOG, "clog") X(CUT, "cut") X(ONEWAY, "oneway") X(SLOW, "slow") \
    X(CRASH, "crash") X(KILL, "kill") X(REBOOT, "reboot") X(PAUSE, "pause")                 \
    X(TRAINER, "trainer") X(MEMBER, "member") X(DISK, "disk") X(FULL, "full") X(ROT, "rot") \
    X(CLOCK, "clock") X(BASE, "base") X(LIE, "lie") X(FORGE, "forge") X(TWIN, "twin")
/* clang-format on */
enum fault {
#define X(name, text) FAULT_##name,
    FAULT_LIST(X)
#undef X
        FAULTS
};
#define STRENGTH_MAX 4u

/* Ways that are no fault and are not in every seed: how often each was. */
/* clang-format off */
#define WAY_LIST(X)                                                                   \
    X(ENCODED, "encoded") X(UNPUBLISH, "unpublish") X(EVERY, "every") X(ADOPT, "adopt") \
    X(MODELS, "models") X(ANCHOR, "anchor") X(LANES, "lanes") X(PUSH, "push")
/* clang-format on */
enum way {
#define X(name, text) WAY_##name,
    WAY_LIST(X)
#undef X
        WAYS
};
extern const char *const way_names[WAYS];
extern const char *const fault_names[FAULTS];

/* ---- a version, as the trainer made it: the oracle ---- */

struct version {
    struct tb_version_key key; /* uid zero until the gateway gave it */
    uint32_t model, shard_count;
    uint32_t lost_at;  /* sites that said so, a bit each */
    uint32_t whole_at; /* gateways that ever had all of it, likewise */
    bool kept_once;    /* some gateway besides the trainer had all of it */
    struct piece {
        struct tb_manifest manifest;
        _Alignas(16) uint8_t memory[8192];
        uint8_t bytes[SHARD_BYTES];
        uint64_t held[1], claimed[1];
        struct tb_place place;
    } shards[SHARDS_MAX];
};

/* ---- processes ---- */

enum process_kind { PROCESS_GATEWAY, PROCESS_WORKER, PROCESS_TRAINER };
struct block;
struct handle;
struct tb_shelves;
struct world_thread;
struct tb_daemon;
struct process {
    enum process_kind kind;
    uint32_t index, site;
    char name[24];
    bool alive;
    uint32_t life; /* grows with each start */
    tb_time_ns paused_until, back_at;
    int64_t wall_ms; /* how far its wall clock was set wrong */
    struct block *heap;
    size_t heap_bytes, heap_most;
    struct handle *handles;
    struct tb_fabric *fabrics; /* doors, in its heap */
    struct tb_shelves *shelves;
    struct world_thread *threads;
};

/* ---- what a site keeps when its processes die ---- */

struct tb_arena_region;
struct arena_file { /* tmpfs: goes with the machine */
    struct tb_id life;
    struct tb_arena_region *regions;
    uint64_t used_bytes;
    uint32_t opened; /* by which life of the gateway */
};

#define DISK_RUNS     16u
#define DISK_DOUBTS   4u
#define DISK_VERSIONS 32u
#define DISK_SAID     128u
struct disk {
    uint64_t incarnation;
    uint32_t run_count, version_count, doubt_count;
    struct tb_name doubts[DISK_DOUBTS];
    struct tb_catalog_run runs[DISK_RUNS];
    struct tb_store_version versions[DISK_VERSIONS];
};
#define DISK_PAST 4u /* writes that may be lost */
struct store_file {
    struct disk now, past[DISK_PAST];
    uint64_t writes;
    tb_time_ns full_until;
    uint32_t said_count; /* statements that were written; the last DISK_SAID of them are here */
    struct disk_said {
        uint32_t count;
        uint8_t bytes[TB_STATEMENT_BYTES_MAX + 64];
    } said[DISK_SAID];
};

#define ANCHORS_MAX 6u
struct disk_anchor { /* on the same disk */
    bool whole;
    struct tb_version_key key;
    uint8_t bytes[SHARDS_MAX][SHARD_BYTES];
};

/* ---- who lives here ---- */

struct client { /* a worker's or the trainer's session with its gateway */
    void *owner;
    struct process *process;
    struct tb_wire *wire;
    bool up, tls;
    struct tb_id session;
    struct tb_id was; /* the session to go on with over TLS */
    tb_time_ns dial_at, renew_at;
    uint64_t requests;
    struct tb_fabric *fabric;
    struct tb_fabric_endpoint door;
    enum tb_status (*frame)(struct client *c, struct tb_wire_frame *f);
    void (*welcome)(struct client *c, bool same);
};

struct staged { /* a version in a worker's memory; its heap */
    struct staged *next;
    uint32_t version;
    struct tb_version_key key;
    uint64_t export_id;
    uint32_t manifests, told;
    tb_time_ns told_at;
    bool prepared, whole, go, lied;
    struct tb_hop *hop;
    struct tb_hop_event news; /* of the hop, seen at the next step */
    bool has_news;
    uint64_t plan;
    uint8_t source[512];
    uint32_t source_bytes;
    struct tb_manifest manifest[SHARDS_MAX];
    void *memory[SHARDS_MAX];
    uint8_t *bytes[SHARDS_MAX];
    uint64_t held[SHARDS_MAX], claimed[SHARDS_MAX], seen[SHARDS_MAX];
    struct tb_place place[SHARDS_MAX];
    struct tb_shelf shelf; /* encoded chunks, beside them */
    void *shelf_memory;    /* NULL: it has none */
    struct staged *base;   /* that its hop decodes from */
    const struct tb_place *base_places[SHARDS_MAX];
};

struct worker {
    struct client c;
    uint32_t site, index, model;
    bool here;    /* it takes part; one that left does not */
    bool encoded; /* its release knows of shelves */
    bool solo;    /* a group of its own, which comes and goes; else a seat of the site's engine */
    bool subscribed, asked;
    uint32_t said_whole; /* P2: versions that this seat said it has, a bit each; of all its lives */
    uint32_t lied;       /* the same of versions of which it had a part (FAULT_LIE) */
    struct staged *staged;
    uint32_t staging, active; /* versions, or NONE */
    uint32_t next;            /* version to stage when nothing is staged, or NONE */
    uint64_t subscribe_id, wait_id, stage_id, activate_id;
    uint64_t exports;
    tb_time_ns progress_at, asked_at, moved_at;
};

struct trainer { /* of one model; home is the site of the model's number */
    struct client c;
    uint32_t model;
    bool last_made; /* the version that all must come to was published after the faults stopped */
    char key[16];
    uint32_t runs;
    struct tb_id run;
    bool run_open;
    uint64_t run_id, open_id, seal_id;
    uint64_t number; /* of the next version */
    uint32_t making; /* version that is being published, or NONE */
    bool calm;       /* it was begun after the faults stopped */
    bool encodes;    /* the gateway wants deltas */
    uint32_t sealed; /* shards of it that were answered */
    tb_time_ns publish_at;
    uint32_t hold_steps; /* with an open SEAL and a gateway that runs */
    uint32_t first;      /* versions of this life of the trainer begin here */
    bool exported[VERSIONS_MAX];
    bool gone[VERSIONS_MAX];   /* it took their memory back */
    bool may_go[VERSIONS_MAX]; /* or its gateway said that it may, which it hears a while later */
    uint64_t unpublish_id;
    uint32_t unpublishing; /* the version of that request */
    tb_time_ns unpublish_at;
};

struct site { /* or its second gateway, a lane that no worker knows: a row of its own, named SITE.1 */
    struct tb_name name;
    uint32_t of; /* the row with its catalog and workers */
    struct process *gateway;
    struct tb_daemon *daemon; /* NULL: dead */
    struct tb_config config;
    struct arena_file arena;
    struct tb_arena *open_arena; /* of its running gateway */
    struct store_file store;
    struct disk_anchor anchors[ANCHORS_MAX];
    struct worker workers[WORKERS_MAX];
    uint32_t worker_count, group_count; /* seats in the group */
    tb_time_ns up_since, adopt_at;
    struct leaving { /* its copy is being given up; zero: it is not */
        tb_time_ns since;
        uint32_t steps;
    } leaving[VERSIONS_MAX];
};

struct path { /* from one site to another */
    tb_time_ns delay, jitter;
    tb_time_ns slowest;       /* of all that it had, both together */
    tb_time_ns blocked_until; /* nothing arrives */
    tb_time_ns clogged_until; /* nothing is taken */
    /* P5: the receiver's word of its holdings before the crossing of that number began. */
    struct crossing_start {
        uint32_t crossing, receiver_life, version;
        bool complete, pushed;
        uint64_t held[SHARDS_MAX];
    } starts[32];
    uint32_t start_at;
    uint64_t told[VERSIONS_MAX][SHARDS_MAX]; /* by HELD, in all crossings of the version */
    tb_time_ns gone_at[VERSIONS_MAX];        /* its last GONE is there */
};

struct connection;
struct crossing_seen { /* P5 within one crossing: the core that said so */
    const void *core;
    uint64_t acked[SHARDS_MAX];
};

struct world {
    uint64_t seed, random, ids;
    /* each fault draws from its own stream: without one the others stay as they are */
    uint64_t chances[FAULTS];
    uint32_t strength[FAULTS]; /* 0: off */
    uint64_t struck[FAULTS];
    uint64_t went[WAYS];
    uint64_t hash, orders;
    tb_time_ns began, now;
    bool trace, faulty, failed;
    char why[WHY_BYTES];
    struct process processes[PROCESSES_MAX];
    uint32_t process_count;
    struct process *current; /* whose code runs; NULL: the world's */
    uint32_t site_count;
    uint32_t lane;    /* the row that is a second gateway; NONE: every site has one */
    uint32_t hostile; /* the site whose gateway forges what it sends; NONE: none does */
    /* The row that is a second gateway with the identity of the row `twin_of`: the one behind the
     * sites. NONE: there is none. */
    uint32_t twin, twin_of;
    bool twin_stays; /* when faults stop, too: then nothing is asked of the one that it copies */
    struct site sites[ROWS_MAX];
    struct path paths[ROWS_MAX][ROWS_MAX];
    uint32_t model_count;
    struct trainer trainers[MODELS_MAX];
    bool adopts;          /* operators have files of older versions */
    bool unpublishes;     /* the trainer takes memory back, now and then */
    tb_time_ns forgot_at; /* somebody who held chunks was lost with them, or a chunk rotted */
    uint32_t versions_wanted, version_count;
    struct version versions[VERSIONS_MAX];
    uint32_t window_bytes, keep, shard_count;
    enum tb_choice_wish codec;
    struct connection *connections;
    struct tb_listener *listeners;
    int next_fd;
    struct crossing_seen crossings[64];
    uint32_t crossing_at;
};

extern struct world *the; /* the one of this process: headers of the machine have no room for it */

#endif

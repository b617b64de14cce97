/* world.h - a seeded world: sites, links, workers and a trainer in virtual time, driving the shipped cores.
 *
 * One thread, one seed. The shells are replaced by glue that does what the cores say; nothing here reads a clock or an
 * address, so the same seed gives the same trace. Promises P1, P2, P4, P5 and P6 are looked at while it runs. */
#ifndef TB_SIM_WORLD_H
#define TB_SIM_WORLD_H

#include "gateway/catalog/catalog.h"
#include "intra/hop.h"
#include "wan/landing.h"

#define SITES_MAX    4u
#define WORKERS_MAX  6u /* of one site */
#define VERSIONS_MAX 6u
#define CHUNKS_MAX   16u
#define SHARD_BYTES  4096u
#define STREAMS      2u
#define EVENTS_MAX   4096u
#define STEP         TB_MS(5)

/* clang-format off */
#define FAULT_LIST(X) X(CUT, "cut") X(STREAM, "stream") X(DUPLICATE, "duplicate") X(CORRUPT, "corrupt") \
                      X(DELAY, "delay") X(CRASH, "crash") X(PAUSE, "pause")
/* clang-format on */
enum fault {
#define X(name, text) FAULT_##name,
    FAULT_LIST(X)
#undef X
        FAULTS
};
extern const char *const fault_names[FAULTS];

struct store { /* one shard's bytes and bits, wherever they stand */
    bool there;
    struct tb_place place;
    uint8_t bytes[SHARD_BYTES];
    uint64_t held[1], claimed[1];
    uint64_t seen; /* by the checker: what was held at its last look */
};

struct version { /* what the trainer made: the oracle */
    struct tb_version_key key;
    bool ready;
    struct tb_manifest manifest;
    _Alignas(16) uint8_t memory[8192];
    struct store rank;
};

struct crossing { /* one version from one site to another */
    bool out, in;
    uint32_t epoch;
    struct tb_crossing core;
    struct tb_landing landing;
    _Alignas(16) uint8_t out_memory[512], in_memory[512];
    uint64_t acked; /* P5: what the sender was told */
    bool stream_busy[STREAMS];
    uint32_t stream_life[STREAMS];
};

struct worker {
    bool here;
    struct tb_id session;
    uint32_t index;
    uint64_t wait;    /* 0: none */
    uint32_t staging; /* version, or VERSIONS_MAX */
    uint32_t active;
    uint64_t plan;
    const struct store *source;
    uint32_t source_index; /* worker, or WORKERS_MAX: the gateway */
    struct store copies[VERSIONS_MAX];
    struct tb_hop_state hop;
    struct tb_hop_shard hop_shard;
    struct tb_source_shard source_shard;
    uint64_t hop_memory[16];
    uint32_t told;
    tb_time_ns back_at, paused_until;
};

struct site {
    struct tb_name name;
    uint32_t index;
    void *memory;
    struct tb_catalog *catalog;
    struct store copies[VERSIONS_MAX];
    bool rank_open[VERSIONS_MAX]; /* home: the gateway may read the rank */
    struct worker workers[WORKERS_MAX];
    uint32_t worker_count;
};

struct link { /* of two sites, one object for both directions */
    bool up;
    uint32_t epoch;
    tb_time_ns delay, back_at;
};

enum event_kind { VERSION_TOLD, GONE_TOLD, ASK, MANIFEST, WANT, HELD, START, CHUNK, CHUNK_END, STREAM_GONE };
struct event {
    tb_time_ns at;
    uint64_t order;
    enum event_kind kind;
    uint32_t from, to, version, epoch;
    uint32_t chunk, slot, life;
    struct tb_held_word word;
    bool garbled;
};

struct world {
    uint64_t seed, random, ids, orders, waits, hash;
    tb_time_ns now;
    bool trace, faulty, failed;
    char why[200];
    bool on[FAULTS];
    uint64_t struck[FAULTS];
    uint32_t site_count, version_count, published;
    struct version versions[VERSIONS_MAX];
    struct site sites[SITES_MAX];
    struct link links[SITES_MAX][SITES_MAX]; /* the lower index first */
    struct crossing crossings[SITES_MAX][SITES_MAX][VERSIONS_MAX];
    struct tb_id trainer, run;
    tb_time_ns publish_at;
    struct event events[EVENTS_MAX];
    uint32_t event_count;
};

/* world_versions.c */
uint64_t world_random(struct world *w, uint64_t below);
bool world_chance(struct world *w, uint32_t in_thousand); /* while faults last */
struct tb_id world_id(struct world *w);
void world_version_make(struct world *w, uint32_t version);
uint32_t world_version_find(const struct world *w, const struct tb_id *uid);
void world_store_init(struct world *w, struct store *s, uint32_t version);
__attribute__((format(printf, 2, 3))) void world_say(struct world *w, const char *format, ...);
__attribute__((format(printf, 2, 3))) void world_fail(struct world *w, const char *format, ...);
void world_check_bytes(struct world *w, struct store *s, uint32_t version, const char *where);

/* world_links.c */
struct link *world_link(struct world *w, uint32_t a, uint32_t b);
void world_links_step(struct world *w);
void world_announce(struct world *w, uint32_t from, uint32_t version);
void world_ask(struct world *w, uint32_t to, const struct tb_catalog_todo *todo);
void world_gone(struct world *w, uint32_t from, uint32_t version);
void world_events_run(struct world *w);

/* world_site.c */
void world_site_open(struct world *w, uint32_t index);
void world_settle(struct world *w, struct site *s);
void world_site_step(struct world *w, struct site *s);
void world_trainer_step(struct world *w);

/* world_workers.c */
void world_worker_step(struct world *w, struct site *s, struct worker *k);
void world_worker_todo(struct world *w, struct site *s, const struct tb_catalog_todo *todo);

#endif

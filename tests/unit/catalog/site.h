/* site.h - one site's catalog in virtual time, for tests: short words for what happens, and a trace
 * of what the catalog says.
 *
 * A trace line is "[ms] what"; versions are "vN" by the number in their uid, sessions go by their
 * worker's name. drain() appends what came out; said() compares and begins anew. */
#ifndef TB_TESTS_CATALOG_SITE_H
#define TB_TESTS_CATALOG_SITE_H

#include "gateway/catalog/todos.h"
#include "gateway/catalog/version_state.h"
#include "gateway/catalog/waiters.h"

#define SITE_TRACE_MAX      16384
#define SITE_MANIFEST_BYTES 1000 /* of a version */
#define SITE_SESSIONS       36

/* Kinds left out of the trace: many tests are not about the store. */
#define NOT_STORE                                                                                            \
    (1u << TB_CATALOG_PERSIST_RUN | 1u << TB_CATALOG_PERSIST_VERSION | 1u << TB_CATALOG_PERSIST_POINTER)
#define NOT_LANDING (1u << TB_CATALOG_LAND_FROM | 1u << TB_CATALOG_LAND_END)
#define NOT_PEERS   (1u << TB_CATALOG_SITE_STATE)
#define NOT_PLANS   (1u << TB_CATALOG_PLAN | 1u << TB_CATALOG_PLAN_END)
#define NOT_TELL    (1u << TB_CATALOG_TELL)

struct site {
    void *memory;
    struct tb_catalog *c;
    tb_time_ns now;
    unsigned left_out;
    uint64_t nic_bytes_per_s; /* 0: not known */
    uint64_t hosts_nic;       /* what each that comes says of its own; likewise */
    uint64_t waits;
    uint64_t exports;
    struct tb_id run;    /* of the last run_open */
    bool retry;          /* of seals */
    const char *stopped; /* a worker that answers nobody; NULL: there is none */
    /* Hears every todo, also those left out of the trace. NULL: nobody. */
    void (*listener)(void *world, const struct tb_catalog_todo *todo);
    void *world;
    char trace[SITE_TRACE_MAX];
};

struct tb_id id_of(uint64_t number);
struct tb_name name_of(const char *text);
struct tb_digest root_of(uint8_t number);

/* The model `policy` lives at east. `keep` whole versions. Recovery is over unless `recovering`. */
void east_open(struct site *s, uint32_t keep);
void west_open(struct site *s, uint32_t keep);
void west_open_wide(struct site *s, uint32_t keep, uint64_t nic_bytes_per_s); /* fan_out by rates */
void east_reopen(struct site *s, uint32_t keep); /* a new life of the same catalog, recovering */
void site_close(struct site *s);

/* Time passes in ticks of 50 ms; every session in `renewing` (NULL-ended names) renews. */
void pass_ms(struct site *s, uint64_t ms, const char *const *renewing);
/* The process stands still: no tick, no renewal. */
void pause_ms(struct site *s, uint64_t ms);

/* Sessions go by name; the id is made from it. */
struct tb_id session_of(const char *name);
void come(struct site *s, const char *name);
void come_from(struct site *s, const char *name, const char *host, bool spot);

/* Publishing. seal_whole: one shard, sealed, landed. */
enum tb_status run_open(struct site *s, const char *rank, const char *key, uint64_t run);
void rank_begins(struct site *s); /* "rank" comes and opens run 100 by key "k" */
enum tb_status version_open(struct site *s, const char *rank, uint64_t number, uint32_t shards, uint64_t uid);
enum tb_status seal(struct site *s, const char *rank, uint64_t uid, uint32_t shard, uint8_t root);
#define SHARD_CHUNKS 10
#define SHARD_BYTES  1000
void land(struct site *s, uint64_t uid, uint32_t shard, uint32_t chunks); /* reserves when it has to */
/* uid = number; one shard; ready, landed. */
void publish_whole(struct site *s, const char *rank, uint64_t number);

/* West hears of a version of east's and gets it. */
enum tb_status hear(struct site *s, const char *from, uint64_t number, enum tb_catalog_state state);
void up(struct site *s, const char *site, bool is_up);  /* a link to that site */
void name_durable(struct site *s, const char *gateway); /* for the model: its copy is as good as one here */
void west_follows(struct site *s);                      /* a follower whose link to east is up */
void cross_begin(struct site *s, uint64_t uid);
void cross_whole(struct site *s, uint64_t uid);

/* Following. */
enum tb_status join(struct site *s, const char *worker, const char *group, uint32_t index, uint32_t count);
enum tb_status join_active(struct site *s, const char *worker, const char *group, uint32_t index,
                           uint32_t count, uint64_t active);
enum tb_status join_as(struct site *s, const char *worker, const char *group, uint32_t index, uint32_t count,
                       const char *owner);
enum tb_status stage(struct site *s, const char *worker, uint64_t uid);
enum tb_status staged(struct site *s, const char *worker, uint64_t uid); /* whole, and exported */
enum tb_status progress(struct site *s, const char *worker, uint64_t uid, uint32_t held);
enum tb_status progress_at(struct site *s, const char *worker, uint64_t uid, uint32_t held,
                           uint64_t bytes_per_s);
enum tb_status export_of(struct site *s, const char *worker, uint64_t uid, uint32_t held);
enum tb_status activate(struct site *s, const char *worker, uint64_t uid);
enum tb_status activated(struct site *s, const char *worker, uint64_t uid);
void switch_to(struct site *s, const char *worker, uint64_t uid); /* activate is TB_OK, activated */
/* The handle; after 0: any. */
uint64_t wait_for(struct site *s, const char *worker, enum tb_catalog_wait_kind kind, uint64_t number,
                  uint64_t after, uint64_t timeout_ms);

void drain(struct site *s);
/* Drains, compares the trace since the last time with this, and empties it. */
void said_at(struct site *s, const char *expected, const char *file, int line);
#define said(s, expected) said_at(s, expected, __FILE__, __LINE__)
/* Drains and forgets. */
void hush(struct site *s);
/* "ready", "kept", ... */
const char *state_of(struct site *s, uint64_t uid);

#endif

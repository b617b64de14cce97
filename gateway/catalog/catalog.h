/* catalog.h - a site's single truth of models, runs, versions, references, reader groups, waits and
 * plans. This is its beginning and its clock; each room has a header of its own (README.md).
 *
 * Pure: no socket, file, clock, thread, heap or randomness. The caller gives all memory at init,
 * and passes in `now` and fresh ids. A request is a function that answers at once. A todo (todos.h)
 * is a mark on the row that it is about: none can be lost, and none overflows.
 *
 * Promises: P2 (a group switches together), P3 and P6 (leases, recovery), P4 (a request said twice
 * changes nothing), P10 (a todo names its version, its receiver and its reason). Kept by
 * tests/unit/catalog and tests/scenario.
 *
 * The caller keeps rights (to publish, to read, to withdraw), bytes, bitmaps, manifests, tokens,
 * links and SQLite.
 *
 * Statuses of all rooms, beside those named at a function:
 *   TB_PEER_LEASE  there is no such session, or its lease ran out
 *   TB_NOT_FOUND   there is no such uid, model or run
 *   TB_SITE_NOMEM  a table is full: tb_catalog_full names it
 * A failed request changes nothing, except where a function says so.
 *
 * Threads: one at a time. */
#ifndef TB_GATEWAY_CATALOG_H
#define TB_GATEWAY_CATALOG_H

#include "base/ident.h"
#include "base/time.h"
#include "tombolo/status.h"

#define TB_CATALOG_TEXT_MAX    256 /* an identity, a run key; with the NUL */
#define TB_CATALOG_FROM_MAX    8   /* sites a model may be crossed from */
#define TB_CATALOG_DURABLE_MAX 64  /* gateways, besides this one, whose copy of a model makes it kept */
#define TB_CATALOG_ALL_SHARDS  UINT32_MAX
#define TB_CATALOG_NONE        UINT32_MAX

struct tb_catalog;

/* Table sizes. 0 takes the default beside it. */
#define TB_CATALOG_RUNS            1024u /* what is kept of runs, here and in the store */
#define TB_CATALOG_VERSIONS        512u
#define TB_CATALOG_SHARDS          64u
#define TB_CATALOG_SITE_REFERENCES 1024u

struct tb_catalog_limits {
    uint32_t models;         /* 16 */
    uint32_t runs;           /* TB_CATALOG_RUNS; full, it forgets the oldest shut-out run without a version */
    uint32_t versions;       /* TB_CATALOG_VERSIONS, of all models; what leaves and when: version_removal.c */
    uint32_t model_versions; /* of one model at most; as `versions` */
    uint32_t shards;         /* TB_CATALOG_SHARDS, of one version */
    uint32_t sessions;       /* 1024 */
    uint32_t references;     /* 4096: of sealed shards, and of workers that stage or hold */
    /* TB_CATALOG_SITE_REFERENCES, of other sites. Peers take no place from workers here. */
    uint32_t site_references;
    uint32_t groups;         /* 512 */
    uint32_t members;        /* 1024, of all groups */
    uint32_t waits;          /* 2048 */
    uint32_t sites;          /* 32 */
    uint32_t records;        /* 128: one for each other site and model (records.h) */
    uint64_t manifest_bytes; /* TB_MANIFESTS_BYTES_MAX, of one version that is sealed */
};

struct tb_catalog_config {
    struct tb_name site;
    struct tb_name host; /* where the gateway shares memory with workers */
    tb_time_ns lease_ns; /* 10 s */
    tb_time_ns
        tick_ns; /* the longest time between two ticks; a longer gap is a pause of this process (0: 100 ms) */
    tb_time_ns drain_ns;   /* largest drain of an unpublish: 10 s */
    tb_time_ns pin_max_ns; /* 10 min */
    tb_time_ns retry_ns;   /* a source that failed is tried again after this when there is no other: 1 s */
    tb_time_ns turn_ns;    /* sites that cannot send one version at once have so long each; 0: all can */
    /* readers on one NIC; 0: as nic_bytes_per_s and the rate of arrival allow */
    uint32_t fan_out;
    uint64_t nic_bytes_per_s; /* of each host of the site, each way; 0: as each says of its own */
};

size_t tb_catalog_bytes(const struct tb_catalog_limits *limits);

/* `memory` (max-aligned, tb_catalog_bytes(limits) of it) is the caller's and outlives the catalog.
 * Recovery begins: for one lease time nothing is evicted and nothing is judged lost. Never fails;
 * zeros in config and limits take their defaults. */
struct tb_catalog *tb_catalog_init(void *memory, const struct tb_catalog_limits *limits,
                                   const struct tb_catalog_config *config, tb_time_ns now);

/* The rate of the gateway's own NIC; 0: not known, as at the beginning. The config's rate comes
 * before it. */
void tb_catalog_nic(struct tb_catalog *c, uint64_t bytes_per_s);

/* The table that refused the last request that answered TB_SITE_NOMEM: "versions", ... or "". */
const char *tb_catalog_full(const struct tb_catalog *c);

/* Ends leases, waits, drains and recovery that are due. A gap since the last tick that is longer
 * than tick_ns extends leases and recovery: a pause of this process ends no lease. */
void tb_catalog_tick(struct tb_catalog *c, tb_time_ns now);

bool tb_catalog_recovering(const struct tb_catalog *c);

/* Call it before the first session, where no catalog of this site ran before. Recovery ends at
 * once: no session, uid or reference can be announced again. */
void tb_catalog_first_start(struct tb_catalog *c, tb_time_ns now);

#endif

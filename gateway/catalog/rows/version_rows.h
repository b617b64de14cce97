/* version_rows.h - versions: their rows, small questions about one, and the marks of a change. */
#ifndef TB_GATEWAY_VERSION_ROWS_H
#define TB_GATEWAY_VERSION_ROWS_H

#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/lives/version_life.h"
#include "gateway/catalog/rows/tables.h"

#define BADS_MAX 8

struct shard {
    struct tb_catalog_shard info;
    uint32_t held_chunks;
    bool known;  /* info is filled */
    bool sealed; /* by a rank, in this life of the catalog */
};

struct bad_chunk {
    struct tb_id publisher;
    uint32_t shard, chunk;
};

struct version {
    struct row row;
    struct tb_version_key key;
    uint32_t model;
    enum tb_version_life life;
    enum tb_version_copy copy;
    enum tb_version_crossing crossing;
    bool was_ready;
    /* the store calls it open; one that lost its last writes says so of what was ready, too */
    bool restored_open;
    bool ending;         /* it ended, and settling has not yet drawn the conclusions */
    bool rank_lost;      /* while open: a rank that had opened or sealed it is gone */
    bool withdrawn_here; /* WITHDRAWN by this site's operator, for this site alone */
    const char *why;
    char who[TB_CATALOG_TEXT_MAX];       /* the operator that withdrew it; empty: not at this site */
    char pinned_by[TB_CATALOG_TEXT_MAX]; /* the operator that pinned it, or took the pin away */
    struct tb_id blamed;                 /* session of a rank */
    struct tb_name blamed_name;
    uint32_t blamed_shard;

    uint64_t bytes;
    uint32_t chunk_count, held_chunks;
    uint32_t known_count, sealed_count;
    uint32_t holders;                   /* references of ranks and sites: the first of their list */
    uint32_t workers;                   /* those of workers, which may be thousands: the first of theirs */
    uint32_t asking_count, asking_last; /* plans.c: workers that want a plan, and the last asker */
    uint32_t landing_workers;           /* of those, how many LAND_FROM names */
    struct shard *shards;
    struct bad_chunk bads[BADS_MAX];
    uint32_t bad_count;

    bool whole;                /* every chunk of it is in the arena */
    bool pinned;               /* by an operator: readers here get it, and no newer one */
    bool awaits;               /* its home's signature: readers do not hear of it */
    bool unproven;             /* readers cannot judge each other's chunks: they read from the gateway */
    bool base;                 /* of a crossing under way */
    tb_time_ns moved_at;       /* when its crossing began, or last brought a chunk */
    tb_time_ns arriving_since; /* plans.c: its first chunks came; 0: none, in this life */
    uint32_t arriving_from;    /* and so many they were */
    tb_time_ns judged_at;      /* plans.c: a worker of it was last judged */
    tb_time_ns looked_at;      /* plans.c: it was last looked whether one leads all others */
    uint64_t fastest;          /* bytes a second: the most that a worker of it ever told */
    enum tb_version_search search;
    uint32_t trials;         /* of the search: readers that gave their place up to be compared */
    uint32_t yielding_count; /* plans.c: workers that wait for another to take their place */
    bool stands_told;        /* scratch of site_rules.c */
    bool wanted;             /* an exact wait asks for it */
    bool lost_at_home;       /* home gave it up: it lives as long as somebody here has all of it */
    bool had_more;           /* chunks that are not here were, and others may have read them */
    bool lacks;              /* home: some shard has no sure holder, since: */
    /* fed: a holder that was there by then last told of more chunks, or a site's link came up */
    tb_time_ns lacks_since, fed_at;
    tb_time_ns came_at; /* when bytes for it were last seen to come, of chunks that are not here yet */
    uint64_t came_bytes;
    tb_time_ns refused_until;
    bool activated_here; /* by every group of the model */
    bool whole_told;     /* SITE_STATE said whole */
    tb_time_ns opened_at, ready_at, whole_at;
    uint32_t unsaved; /* writes of its row that are on their way to the disk */
    bool touched;
};

static inline struct version *version_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct version *)tb_table_row(&c->versions, i);
}

static inline enum tb_catalog_state tb_version_state(const struct version *v)
{
    return tb_version_life_state(v->life);
}
/* The arena has a region for it. */
static inline bool tb_version_reserved(const struct version *v)
{
    return v->copy != TB_VERSION_COPY_NONE;
}
static inline bool tb_version_leaves(const struct version *v)
{
    return v->copy == TB_VERSION_COPY_LEAVING;
}
static inline bool tb_version_cross_asked(const struct version *v)
{
    return v->crossing == TB_VERSION_CROSSING_ASKED;
}
static inline bool tb_version_cross_begun(const struct version *v)
{
    return v->crossing == TB_VERSION_CROSSING_BEGUN;
}

uint32_t tb_version_find(const struct tb_catalog *c, const struct tb_id *uid);
/* A request about one version begins (tb_catalog_enter). NULL: there is no such version. */
struct version *tb_version_enter(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                 uint32_t *version_out);
int tb_which_compare(const struct which *a, const struct which *b);
struct which tb_which_of(const struct version *v);
bool tb_which_is(const struct which *w, const struct tb_id *uid);
bool tb_version_lives(const struct version *v); /* ready or kept: workers may hear of it */
bool tb_version_here(const struct version *v);  /* lives, whole at the gateway and staying */
bool tb_version_older(const struct version *a, const struct version *b);
/* The answer to a request about an ended version; TB_OK while it is open or lives. */
enum tb_status tb_version_status(const struct tb_catalog *c, const struct version *v);
bool tb_version_run_fenced(const struct tb_catalog *c, const struct version *v);
/* An operator pinned an older one: no reader of this site is offered this one. */
bool tb_which_held_back(const struct tb_catalog *c, uint32_t model, const struct which *w);
uint32_t tb_versions_of(const struct tb_catalog *c, uint32_t model); /* rows of the model */
/* A newer one of its model is whole here. */
bool tb_version_newer_here(const struct tb_catalog *c, const struct version *v);
bool tb_shard_published(const struct tb_catalog *c, const struct version *v, uint32_t shard);
bool tb_shard_whole(const struct version *v, uint32_t shard);
/* Some site or worker says that it has all of it: a reason to go on hoping for its bytes, and none
 * to give up bytes that are here. */
bool tb_version_whole_elsewhere(const struct tb_catalog *c, const struct version *v);
/* P3: all of it is at a gateway that the model names as durable, by that gateway's own
 * word. No worker and no relay makes a version safe. */
bool tb_version_safe_elsewhere(const struct tb_catalog *c, const struct version *v);
/* When something of it came last: bytes count as a chunk does, for a while behind the last
 * chunk. */
tb_time_ns tb_version_sign(const struct tb_catalog *c, const struct version *v, tb_time_ns chunk_at);

static inline bool tb_version_held_back(const struct tb_catalog *c, const struct version *v)
{
    const struct which w = tb_which_of(v);
    return tb_which_held_back(c, v->model, &w);
}

#endif

/* arena_inner.h - what the files of an arena share. Inside gateway/arena only. Functions here
 * are called with the arena's mutex held, or before another thread knows the arena. */
#ifndef TB_GATEWAY_ARENA_INNER_H
#define TB_GATEWAY_ARENA_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/layout/layouts.h"
#include "base/layout/place.h"
#include "gateway/arena/arena_file.h"

#define ARENA_NO_RECORD UINT32_MAX
#define ARENA_BUCKETS   256u

/* A shard's space, as this process sees it. `place` and what it points to never move
 * while the region lives. */
struct arena_shard {
    struct tb_place place;
    struct tb_manifest manifest;
    struct tb_manifest_memory manifest_memory;
    uint64_t *claimed; /* heap: a claim does not outlive its process */
    uint64_t *suspect; /* heap: held at open and not yet digested by this process; NULL when none is */
    uint32_t suspects;
    uint32_t record;
    struct tb_extent extent;
    struct arena_extent_plan plan;
    uint8_t has_space;   /* atomic */
    uint8_t is_ready;    /* atomic: digests complete */
    uint32_t rotted;     /* atomic: chunks condemned since tb_arena_place_rotted */
    uint32_t condemned;  /* chunks, ever */
    bool proves;         /* its chunks get their proofs here */
    bool all_proven;     /* each has it: as the search for one without found last */
    uint32_t prove_from; /* where the search for one without a proof goes on */
};

struct tb_arena_region {
    struct tb_arena *arena;
    struct tb_version_key key;
    uint32_t record;
    uint64_t made;
    uint32_t refs;
    uint32_t verifying; /* passes of the verifier over this region's bytes: a free waits for them */
    bool leaving;
    bool damaged; /* while recovering */
    struct tb_arena_region *next, *previous, *bucket_next;
    struct arena_shard shards[]; /* key.shard_count */
};

struct tb_arena {
    pthread_mutex_t mutex;
    pthread_cond_t verified; /* some region's `verifying` went down */
    struct arena_file file;
    _Atomic uint64_t mapped_bytes; /* from the file's first byte: arena_map.c */
    struct tb_extents extents;
    struct tb_extent *extents_memory;
    uint32_t *slots; /* numbers of free records, a stack */
    uint32_t slots_free;
    uint64_t made; /* of the newest region */
    uint32_t regions;
    struct tb_layouts *layouts;
    bool (*proves)(void *user, const struct tb_name *model); /* NULL: no model */
    void *proves_user;
    bool proves_later;                  /* in tb_arena_prove_step, not as chunks land */
    struct tb_arena_region *prove_from; /* the search for one without goes on there; NULL: at the first */
    struct tb_arena_region *first, *last;
    struct tb_arena_region *buckets[ARENA_BUCKETS];
};

/* Regions: heap only. tb_arena_region_link puts it among the others, ordered by `made`. */
struct tb_arena_region *tb_arena_region_alloc(struct tb_arena *arena, const struct tb_version_key *key);
void tb_arena_region_link(struct tb_arena_region *region);
struct tb_arena_region *tb_arena_region_find(struct tb_arena *arena, const struct tb_id *uid);
/* Frees records, extents and heap of a region that is linked; its own record goes first. Nothing
 * may pin it or verify it. */
void tb_arena_region_drop(struct tb_arena_region *region);
/* At close: heap only; the file keeps them. */
void tb_arena_regions_forget(struct tb_arena *arena);

/* A free record's number, or ARENA_NO_RECORD. */
uint32_t tb_arena_slot_take(struct tb_arena *arena);
/* Zero: the version has no root yet. It gets one once. */
bool tb_arena_root_is_zero(const struct tb_digest *root);
void tb_arena_record_set_root(struct tb_arena_region *region, const struct tb_digest *root);
/* Record, extent and heap of a shard go; of one that has none nothing happens. */
void tb_arena_shard_give(struct tb_arena_region *region, struct arena_shard *s);

/* Points a shard's place at its extent and gives it heap for claims. The manifest must be there.
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_arena_shard_attach(struct tb_arena_region *region, struct arena_shard *s);

/* Chunks of the shard that land get their proofs here, where tb_arena_prove said so. */
void tb_arena_shard_proves(struct tb_arena_region *region, struct arena_shard *s);

/* Asserts what must hold of list, table, slots and extents. In dev builds alone
 * (TB_CHECK_TURNS), and of a small arena; after each call that changed them. */
void tb_arena_tables_check(struct tb_arena *arena);

/* A fresh life, in the file when this returns. */
void tb_arena_life_renew(struct tb_arena *arena);

/* Rebuilds regions, extents and slots from the records. TB_SITE_NOMEM (heap), TB_SITE_CONFIG (a
 * region past the end). */
TB_MUST_USE enum tb_status tb_arena_recover(struct tb_arena *arena, char error_out[TB_ARENA_ERROR_BYTES]);
/* Of a file of which header and records alone are mapped: would tb_arena_recover refuse
 * it? Nothing is changed. */
TB_MUST_USE enum tb_status tb_arena_recover_check(const struct arena_file *f,
                                                  char error_out[TB_ARENA_ERROR_BYTES]);

#endif

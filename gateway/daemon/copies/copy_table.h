/* copy_table.h - the rows of this gateway's copies, one a version. A leaf: a room that changes
 * a row wakes the dispatcher. */
#ifndef TB_DAEMON_COPY_TABLE_H
#define TB_DAEMON_COPY_TABLE_H

#include <stdatomic.h>

#include "base/layout/shelf.h"
#include "base/time.h"
#include "gateway/catalog/catalog.h"
#include "gateway/daemon/copies/copy_life.h"
#include "gateway/daemon/copies/shard_files.h"
#include "gateway/daemon/links/crossing_failure_log.h"
#include "gateway/daemon/links/lag.h"
#include "intra/fabric/fabric.h"

struct tb_arena_region;
struct tb_daemon;
struct tb_encoded_chunks;
struct tb_shelf_work;

struct tb_copy_hop { /* at home: from one rank */
    struct tb_copy_hop *next;
    struct tb_copy *copy;
    struct tb_hop *hop; /* NULL: waiting to be tried again */
    uint64_t serial;    /* of this opening: a note of an earlier one is not taken for its own */
    struct tb_id session;
    uint32_t shard; /* or TB_CATALOG_ALL_SHARDS */
    uint64_t export_id;
    struct tb_id token; /* that its rank was asked to accept last */
    bool asks;          /* the rank has not answered: the token has a row in d->grants */
    tb_time_ns retry_at;
    tb_time_ns looks_until; /* its rank digests its own copy of this chunk; 0: it was not asked */
    uint32_t looks_shard, looks_chunk;
    /* its chunks are all here: it is open for chunks that the rank still encodes */
    bool for_encoded_chunks;
    struct tb_copy *base; /* it decodes from this; NULL: nothing */
    const struct tb_place *base_place;
    /* For encoded chunks, which come on the fabric's threads; they stay as long as the hop is
     * open. */
    struct tb_encoded_chunks *encoded_chunks;
    const struct tb_place *place; /* they are of; NULL: not known yet */
    tb_time_ns opened_at;
    atomic_uint classes; /* of one that came; 0: none did */
    /* Of encoded chunks since it was opened: their bytes once decoded, and as they came. */
    atomic_uint_fast64_t raw_bytes, wire_bytes;
    struct tb_id uid, on; /* on: the base that the rank encodes on; zero: it does not */
    uint32_t shard_count;
};

/* Its proofs on their way (links/proofs.c). Zeros: nobody owes them. */
struct tb_copy_proofs {
    bool owed;     /* by `peer`: its manifests came without, or it was asked */
    bool complete; /* all pages came: they wait for home's word */
    uint32_t peer;
    uint32_t shard, came; /* of that shard so many */
    uint32_t tried;       /* the peer after the one that was asked last */
    tb_time_ns asked_at;  /* 0: not, or it is down since */
};

/* Rooms that read a copy's bytes: the catalog spares it. Each sets and clears its own bit. */
enum tb_copy_user {
    TB_COPY_USED_BY_LANDING = 1, /* hops of a newer version decode from it */
    TB_COPY_USED_BY_ANCHOR = 2,  /* it is being written to a disk */
};

/* Which proofs of a version's chunks were told to the workers that stage it. */
struct tb_proofs_told {
    uint32_t left;       /* that were not */
    uint64_t word_count; /* of the bits of all shards, one behind another */
    uint64_t words[];    /* twice: those that were told; room for those that are told next */
};

struct tb_copy {
    struct tb_copy *next;
    struct tb_daemon *d;
    struct tb_version_key key;
    struct tb_arena_region *region;     /* NULL: no space yet (its manifests are on their way) */
    uint64_t export_id;                 /* 0: not exported */
    struct tb_proofs_told *proofs_told; /* NULL: nobody has staged it */
    uint8_t *source;                    /* its descriptor, for PLAN */
    uint32_t source_bytes;
    struct tb_shelf shelf; /* encoded chunks, for workers that hold shelf_base */
    void *shelf_memory;    /* NULL: it has none */
    struct tb_shelf_work *shelf_work;
    struct tb_copy *shelf_base; /* that the work reads; NULL: none is done */
    enum tb_copy_life life;     /* how its bytes come */
    enum tb_copy_serving serving;
    bool activated; /* by every group here */
    struct tb_copy_hop *hops;
    bool unproven_told;                /* a worker has chunks that home cannot judge: the log has said so */
    struct tb_shard_files_table files; /* of its sealed shards, until it is ready */
    /* Crossing here. */
    uint32_t from_count;
    struct tb_name from[TB_CATALOG_FROM_MAX]; /* in order of preference */
    struct tb_copy_proofs proofs;
    /* Home signed it, and makes its proofs once more: peers and the catalog hear of it then. */
    bool proves_anew;
    bool land_due; /* its proofs are known since: relays may be asked for chunks */
    /* The arena had no room for so many bytes when it was asked last. False: it had, or was not
     * asked. */
    bool lacks_room;
    uint64_t room_bytes;
    struct tb_crossing_told told; /* since something of it came last */
    /* The room that it lacked, as the log was told last; zero: nothing since it began. */
    struct tb_digest room_told;
    enum tb_status
        failed; /* the last time that it did, since something of it was held last; TB_OK: it did not */
    struct {    /* the chunk that came with a wrong digest last; times 0: none did */
        uint32_t peer, shard, chunk, times;
    } bad;
    bool failed_lately;       /* since its pace was looked at: it is shown for a second at least */
    uint32_t used_by;         /* bits of enum tb_copy_user */
    bool base;                /* it is used, also by a crossing under way, as the catalog was told */
    enum tb_status evict_why; /* it leaves */
    uint32_t evict_waits;     /* retract and land_stop under way */
    uint64_t hop_wire_bytes;  /* read from ranks by hops that ended */
    uint64_t link_wire_bytes; /* delivered by links that were closed (restart_closed opens new ones) */
    uint32_t rotted;          /* chunks found damaged since it was whole last */
    tb_time_ns rotted_at;     /* the first of them */
    /* After damage its other chunks are digested, from here on. */
    bool sweeping;
    uint32_t sweep_shard, sweep_chunk;
    uint32_t swept_chunks, swept_bad;
    uint32_t swept_untold; /* damaged, and not in `rotted` yet: no reason to begin once more */
    tb_time_ns seen_at, whole_at;
    tb_time_ns asked_at, landing_at, activated_at; /* its stages (version_status.c); 0: not begun */
    struct tb_lag_moves moves;
    tb_time_ns pace_ns; /* the longest time in which all encoded chunks of one rank came; 0: not known */
    uint64_t opened_wall_ms;
};

static inline bool tb_copy_is_whole(const struct tb_copy *copy)
{
    return copy->life == TB_COPY_WHOLE || copy->life == TB_COPY_WHOLE_LEAVES;
}

/* It is being given back: nobody may begin to read it. */
static inline bool tb_copy_leaves(const struct tb_copy *copy)
{
    return copy->life == TB_COPY_PART_LEAVES || copy->life == TB_COPY_WHOLE_LEAVES;
}

/* Links bring it, or it was asked of them. */
static inline bool tb_copy_is_crossing(const struct tb_copy *copy)
{
    return copy->life == TB_COPY_ASKED || copy->life == TB_COPY_AWAITS_ROOM || copy->life == TB_COPY_CROSSES;
}

/* Home said so: it may be offered and staged. */
static inline bool tb_copy_is_ready(const struct tb_copy *copy)
{
    return copy->serving != TB_COPY_UNREADY;
}

void tb_copy_free(struct tb_copy *copy); /* its row: nothing of it is open any more */
struct tb_copy *tb_copy_find(struct tb_daemon *d, const struct tb_id *uid);
/* Makes it; NULL: no memory. */
struct tb_copy *tb_copy_get(struct tb_daemon *d, const struct tb_version_key *key);
uint64_t tb_copy_held_bytes(const struct tb_copy *copy);
/* Bytes that came for it over the fabric from ranks, and over links, since this process began. */
uint64_t tb_copy_wire_bytes(const struct tb_copy *copy);

#endif

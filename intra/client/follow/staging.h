/* staging.h - a version that is staged in this process: its row, how it is described, and how it
 * goes. */
#ifndef TB_INTRA_CLIENT_STAGING_H
#define TB_INTRA_CLIENT_STAGING_H

#include <pthread.h>

#include "base/layout/layouts.h"
#include "base/layout/place.h"
#include "base/layout/shelf.h"
#include "intra/client/follow/home_word.h"
#include "intra/client/follow/staging_life.h"
#include "intra/client/memory/registration.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/shared_memory.h"
#include "intra/session_msg.h"

struct tb_session;
struct tb_subscription;

struct tb_staged_shard {
    struct tb_manifest_memory manifest_memory; /* zero: not here yet */
    struct tb_manifest manifest;
    struct tb_place place;
    uint64_t bytes_offset, held_offset; /* in the staging's memory */
    /* Staged on a GPU: where its tensors stand in the stage; `bytes_offset` is of its blobs. */
    uint64_t far_offset;
    struct tb_place_far far;
    struct tb_place_owner owner; /* the place has it where the bytes do not simply stay */
};

/* Reports of the hop's callback that the session thread has not read yet; under note_lock. */
struct tb_hop_note {
    bool opened, lost, whole;
    enum tb_transport transport;
    enum tb_transport_why why_transport;
    enum tb_status why;
    /* chunks that came wrong twice; more than fit are told again by the next read */
    uint32_t bad_count;
    struct tb_hop_bad {
        uint32_t shard, chunk;
        bool encoded; /* its encoded form */
    } bad[16];
};

/* A version in this process's memory, for one or more subscriptions. */
struct tb_staging {
    struct tb_staging *next;
    struct tb_session *session;
    enum tb_staging_life life;
    enum tb_status status; /* it has failed: why */
    char why[TB_TEXT_BYTES_MAX + 1];
    struct tb_id uid;
    struct tb_version_key key;
    struct tb_home_word word; /* of its home, as the gateway passed it on */
    bool believed;            /* some of its bytes were read from a source whose digests counted */
    uint32_t uses;
    uint32_t manifests_here;
    struct tb_staged_shard *shards; /* key.shard_count */
    struct tb_shared_memory memory; /* of a patch: ours alone, without a descriptor */
    uint64_t *claimed;
    uint32_t total_chunks;
    /* Of it only what these want; NULL: all. */
    struct tb_registration *slices_for;
    uint64_t *wanted; /* bits of all shards */
    uint64_t wanted_bytes;
    /* for a GPU: the pages of what is wanted; views into the memory */
    struct tb_shared_memory *pinned;
    uint32_t pinned_count;
    /* To be staged in the memory of the GPU that its tensors stand on; NULL: in that of the host,
     * or that GPU cannot. */
    struct tb_registration *gpu_for;
    struct tb_gpu_stage *stage; /* NULL: not there */
    uint64_t stage_bytes;       /* of it */
    /* Staged as a patch for these buffers; NULL: whole. It becomes NULL when the manifests show
     * that they are no base. */
    struct tb_registration *patch_for;
    struct tb_patch *patch;              /* from PREPARED on */
    uint64_t shelf_offset;               /* in the memory; 0: it has no shelf */
    struct tb_shelf shelf;               /* encoded chunks for those behind it */
    struct tb_staging *base;             /* whole here: what the hop decodes from; NULL: nothing */
    const struct tb_place **base_places; /* of it, while there is a hop */
    struct tb_hop_stats read;            /* by hops that ended */
    tb_time_ns lost_at;                  /* when its source was lost; 0: it has one, or never had */
    uint64_t export_id;                  /* 0: not exported */
    bool unserved;   /* damaged, and computed from: the gateway sends nobody there any more */
    uint8_t *source; /* encoded */
    size_t source_bytes;
    struct tb_hop *hop;
    bool hop_opened; /* its source has answered */
    uint64_t plan;   /* of the hop */
    /* The newest plan, its source span behind it: followed once the places stand. */
    struct tb_msg_plan *kept_plan;
    enum tb_transport transport;
    enum tb_transport_why why_transport;
    uint32_t told_chunks; /* in the last PROGRESS */
    uint64_t told_bytes;
    tb_time_ns told_at;
    pthread_mutex_t note_lock;
    struct tb_hop_note note;
};

enum tb_status tb_staging_manifest(struct tb_session *s, const struct tb_msg_manifest *m);
/* Its last use has ended. Under the lock, let go while readers drain. */
void tb_staging_drop(struct tb_session *s, struct tb_staging *st, uint32_t drain_ms);
/* Under the lock: memory for the first version that the subscription stages is prepared, where its
 * registration says how large that will be. */
void tb_staging_prepare_ahead(struct tb_session *s, const struct tb_subscription *sub);
/* Frees the spare memory, and what is prepared, if nobody is subscribed to its model any more. */
void tb_staging_drop_spare(struct tb_session *s);

#endif

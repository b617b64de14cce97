/* patch.h - a version on its way into buffers that hold an older one: its staging keeps the deltas
 * and nothing else. A shell.
 *
 * A chunk lands whole, verified, in memory whose pages exist for that moment; it is encoded against
 * what the buffers hold there, and its pages go. Or it comes encoded on that, and is kept as it
 * came once what it decodes to has been seen. The switch decodes, writes, and digests what the
 * buffers then hold: a chunk that is not what was sealed has to come again whole (P1; "never patch
 * the only copy": a server of the version has it). Chunks that the buffers do not cover (blobs,
 * tensors that are not registered) and deltas that got no smaller stay as they landed.
 *
 * Of a device's tensors the device does it all (patch_device.c): it encodes what lands whole,
 * proves a delta that comes encoded, and at the switch decodes, writes and digests. A chunk that
 * its kernels do not take stays whole.
 *
 * Tensors that share one memory (tied_tensors.h) are written once, by the chunks of the first of
 * them. A chunk of the others alone is not kept: its bytes are in the buffers once those of the
 * first are. A chunk that has others and more stays whole, and only the rest of it is written; all
 * of it is looked at when everything was written.
 *
 * Nobody reads from such a staging. A patch rests on the bytes of one switch: once the buffers were
 * written again it is void, and its chunks come whole.
 *
 * Threads: what lands comes from any thread of the fabric; all functions are called one at a
 * time. */
#ifndef TB_INTRA_CLIENT_PATCH_H
#define TB_INTRA_CLIENT_PATCH_H

#include <pthread.h>

#include "base/codec/codec.h"
#include "base/layout/place.h"
#include "intra/client/memory/thread_crew.h"
#include "intra/coalesce.h"
#include "intra/cuda_part_deltas.h"
#include "intra/tensor_spread.h"

/* Tensors that a rollout computes from: several threads read them, and a switch writes to them. */
struct tb_patch_target {
    /* readers: encoders; writers: a thread that changes or takes away the memory */
    pthread_rwlock_t lock;
    bool gone;                 /* suspended */
    uint64_t writes;           /* how often the bytes were changed by us */
    struct tb_gpu_memory *gpu; /* some tensors are a device's; NULL: none is */
};

struct tb_patch;

/* Of a tensor. */
enum tb_patch_tie {
    TB_PATCH_OWN = 0, /* it has its memory, or is not here */
    TB_PATCH_TIED,    /* it stands in another's memory, whose chunks are written */
    /* likewise, and by their digests both have the same bytes in this version */
    TB_PATCH_TIED_ALIKE
};

struct tb_patch_shard_of {
    const struct tb_manifest *manifest;
    uint8_t **memory; /* for each tensor in packed order, NULL: not registered; taken over */
    bool *on_device;  /* of each: it is the target's gpu's; taken over */
    /* of each: enum tb_patch_tie; NULL: no tensor of the version is tied; taken over */
    uint8_t *ties;
};

/* `shards` is copied, its tables are the patch's from here on, whatever is answered.
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_patch_new(struct tb_patch_target *target,
                                        const struct tb_patch_shard_of *shards, uint32_t count,
                                        struct tb_patch **patch_out);
void tb_patch_free(struct tb_patch *patch);
/* The device's memory goes: the patch takes no delta for it any more. The target is gone, so the
 * patch is void. The proofs are the caller's to close, without the session's lock, before the
 * device's memory goes. NULL: there were none. */
struct tb_gpu_proofs *tb_patch_take_proofs(struct tb_patch *patch);
bool tb_patch_has_left(struct tb_patch *patch);
/* Zero where the device has proven nothing. */
void tb_patch_proofs_facts(struct tb_patch *patch, struct tb_gpu_proofs_facts *facts_out);

/* The table of a shard, to be filled again when the tensors have moved; not while a chunk may
 * land. */
uint8_t **tb_patch_memory(struct tb_patch *patch, uint32_t shard);
bool *tb_patch_on_device(struct tb_patch *patch, uint32_t shard);
uint8_t *tb_patch_ties(struct tb_patch *patch, uint32_t shard);

/* Gives the place of a shard its owner: chunks are encoded as they land, and deltas on what the
 * buffers hold are kept as they came, once their digest matched. */
void tb_patch_watch(struct tb_patch *patch, uint32_t shard, struct tb_place *place);

/* Nobody writes to the buffers, or has since the patch was made: else the place refuses every
 * delta. Does not wait; any thread. */
bool tb_patch_rests(const struct tb_patch *patch);

/* Memory that it has kept: encoded chunks, those that stayed whole, and the edges of pages between
 * them. */
uint64_t tb_patch_staged_bytes(const struct tb_patch *patch);

struct tb_patch_result {
    uint64_t copied_bytes;  /* written from chunks that had stayed whole, or came again */
    uint64_t patched_bytes; /* written by decoding */
    /* chunks that the buffers do not hold now; they are absent in their places, and will stay
     * whole */
    uint32_t failed;
};
/* Writes the version into the buffers, and looks at all of it there. Call it again when the failed
 * ones are held: it goes on with those. TB_OK, also when some failed; TB_CHUNK_DIGEST: one that
 * came whole is not what the buffers hold after it was written; TB_LAYOUT_MISMATCH: the version has
 * other bytes for a tied tensor than for the one whose memory it has; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_patch_apply(struct tb_patch *patch, struct tb_crew *crew,
                                          struct tb_patch_result *result_out);

#endif

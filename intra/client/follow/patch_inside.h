/* patch_inside.h - what patch.c and patch_device.c share. */
#ifndef TB_INTRA_CLIENT_PATCH_INSIDE_H
#define TB_INTRA_CLIENT_PATCH_INSIDE_H

#include <stdatomic.h>

#include "intra/client/follow/patch.h"

enum tb_patch_state {
    TB_PATCH_LANDED,   /* as it came, in its place; also before it came */
    TB_PATCH_CODED,    /* in `coded`, on what the buffers held */
    TB_PATCH_DONE,     /* the buffers hold it */
    TB_PATCH_FETCH,    /* they do not: it comes whole, and stays so */
    TB_PATCH_NEEDLESS, /* it came, and is of tied tensors alone: it is in no form here */
};

struct tb_patch_chunk {
    uint8_t state;
    bool stayed; /* whole, in its place */
    struct tb_codec_form form;
    uint32_t bytes;
    uint8_t *coded;
    const uint8_t *kept; /* by the proofs, instead of `coded`: where the device has it */
};

struct tb_patch_shard {
    struct tb_patch *patch;
    struct tb_spread spread;
    const struct tb_manifest *manifest;
    uint8_t **memory;
    bool *on_device;
    uint8_t *ties; /* NULL: none */
    uint8_t **own; /* where the switch writes: `memory` without tied tensors */
    struct tb_patch_chunk *chunks;
    struct tb_place *place;
    struct tb_place_owner owner; /* of the place */
    uint64_t first;              /* of its chunks in the line of all */
};

/* A codec and room for two chunks: one for each thread that works at the same time. */
struct tb_patch_tool {
    struct tb_patch_tool *next;
    struct tb_codec *codec;
    uint8_t *gathered, *made;
};

struct tb_patch {
    struct tb_patch_target *target;
    uint64_t rests_on; /* target->writes */
    struct tb_patch_shard *shards;
    uint32_t shard_count;
    uint64_t chunk_total;
    uint32_t chunk_bytes_max;
    size_t page_bytes;
    _Atomic uint64_t staged_bytes;
    pthread_mutex_t lock; /* of `idle` */
    struct tb_patch_tool *idle;
    struct tb_together encodings; /* of the device */
    pthread_mutex_t device_lock;  /* of what follows */
    struct tb_gpu_proofs *proofs; /* from the first delta on; NULL: none yet */
    bool left;                    /* the device's memory goes: no more proofs */
};

/* ---- tied tensors (patch_tied.c) ---- */

enum tb_patch_tied { TB_PATCH_TIED_NONE, TB_PATCH_TIED_SOME, TB_PATCH_TIED_ALL };
/* How much of a chunk is of tied tensors. */
enum tb_patch_tied tb_patch_tied_of(const struct tb_patch_shard *sh, uint32_t k);
/* Fills `own` of each shard. */
void tb_patch_own(struct tb_patch *patch);
/* Behind all others: chunks with tied tensors are in the buffers, too. False: one is not. */
bool tb_patch_ties_hold(struct tb_patch *patch, struct tb_patch_tool *t);

/* ---- the buffers' bytes ---- */

/* The buffers hold what the patch rests on, and stay so until their lock is given back. False: they
 * do not, or a writer is at work; it is not waited for. */
bool tb_patch_begin_look(const struct tb_patch *patch);
void tb_patch_end_look(const struct tb_patch *patch);

/* ---- where a chunk stands; under the target's lock ---- */

enum tb_patch_side { TB_PATCH_ON_HOST, TB_PATCH_ON_DEVICE, TB_PATCH_ON_BOTH };
enum tb_patch_side tb_patch_side_of(const struct tb_patch_shard *sh, const struct tb_chunk *chunk);
bool tb_patch_holds(const struct tb_patch_shard *sh, struct tb_patch_tool *t, uint32_t k);
/* Between one range of ours and where the chunk stands, also on a device; what is not here is left
 * out, and to tensors also what is tied. The bytes moved, or a failure. */
enum tb_status tb_patch_exchange(const struct tb_patch_shard *sh, const struct tb_chunk *chunk,
                                 uint8_t *whole, bool to_tensors, uint64_t *bytes_out);

/* ---- by the device that has the chunk; under the target's lock ---- */

void tb_patch_device_init(struct tb_patch *patch);
void tb_patch_device_fini(struct tb_patch *patch);

/* The device answers the look by what the delta makes of the tensors there, which stay as they
 * are. TB_CHUNK_CODEC: it cannot say. */
void tb_patch_prove_by_device(struct tb_patch_shard *sh, struct tb_place_look *look);
/* Encodes `bytes` as a delta against the bytes that stand there, into `room` for as many. False:
 * the delta is not smaller. */
bool tb_patch_encode_by_device(struct tb_patch_shard *sh, uint32_t k, const uint8_t *bytes, uint8_t *room,
                               struct tb_codec_coded *coded_out);

/* ---- the switch ---- */

struct tb_patch_applying {
    struct tb_patch *patch;
    _Atomic uint64_t copied_bytes, patched_bytes;
    _Atomic uint32_t failed;
    _Atomic int status;
};
void tb_patch_done(struct tb_patch_chunk *c);
void tb_patch_failed(struct tb_patch_applying *a, struct tb_patch_shard *sh, uint32_t k);
bool tb_patch_device_decodes(const struct tb_patch_shard *sh, uint32_t k);
void tb_patch_apply_by_device(struct tb_patch_applying *a);

#endif

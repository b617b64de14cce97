/* cuda_part_deltas.h - deltas against the bytes of a GPU's tensors: the GPU proves them, patches
 * with them, and makes them. Over the bus go the deltas alone. Part of cuda_part.h.
 *
 * Threads: any. */
#ifndef TB_INTRA_CUDA_PART_DELTAS_H
#define TB_INTRA_CUDA_PART_DELTAS_H

#include "intra/cuda_part_queue.h"

/* A chunk as it stands in its tensors: pieces one behind another, all of them on the device. */
struct tb_gpu_piece {
    uint8_t *at;
    uint64_t bytes;
};
struct tb_gpu_delta {
    const struct tb_gpu_piece *pieces;
    uint32_t piece_count;
    uint32_t bytes;      /* of the chunk */
    uint32_t form_bytes; /* less than the chunk's */
    const uint8_t *form; /* sparse (base/codec/sparse.h): a delta against these bytes */
    /* Where a proof has kept the form: memory that the device reads. NULL: nowhere, and `form`
     * counts. */
    const uint8_t *kept;
    bool foreign;            /* it came from one who is not believed about it (base/layout/place.h) */
    bool patched;            /* out: the form was one; else what stands there is of any content */
    struct tb_digest digest; /* out, of what stands there then */
    struct tb_blake3 proof;  /* likewise, of a foreign chunk */
};

/* The device patches and encodes: it has the kernels, and was not found without room for it. */
bool tb_gpu_may_patch(const struct tb_gpu_memory *m);
/* The device decodes each delta over the bytes of its chunk, and digests the result. TB_SITE_NOMEM:
 * it has no room for it, and nothing was changed; TB_SITE_IO: what stands there is of any
 * content. */
TB_MUST_USE enum tb_status tb_gpu_patch(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count);

/* ---- proofs: what a delta would make of the tensors, which stay as they are ---- */

struct tb_gpu_proof {
    struct tb_gpu_ask asked;
    struct tb_gpu_delta delta; /* with the answer TB_OK: `kept`, `patched`, `digest` and `proof` */
};
struct tb_gpu_proofs;
struct tb_gpu_proofs_user {
    /* Until `close`, on the same thread, the tensors hold what the deltas are against. False: they
     * do not, and each proof that waits is answered TB_BAD_STATE. It must not wait. */
    bool (*open)(void *user);
    void (*close)(void *user);
    void *user;
};
/* Deltas that were proven stay on the device up to `keep_bytes`, the others in pinned memory of the
 * host, until close. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_gpu_proofs_open(struct tb_gpu_memory *m, const struct tb_gpu_proofs_user *user,
                                              uint64_t keep_bytes, struct tb_gpu_proofs **proofs_out);
/* Before the memory's close. Proofs that wait are answered first. NULL is fine. */
void tb_gpu_proofs_close(struct tb_gpu_proofs *proofs);
void tb_gpu_proofs_ask(struct tb_gpu_proofs *proofs, struct tb_gpu_proof *proof);

struct tb_gpu_proofs_facts {
    uint64_t device_bytes, pinned_bytes; /* of kept deltas, and of the room that they left */
    struct tb_gpu_queue_counts queue;
};
void tb_gpu_proofs_facts(struct tb_gpu_proofs *proofs, struct tb_gpu_proofs_facts *facts_out);

/* ---- new deltas ---- */

/* A chunk of host memory, and its delta against the bytes of the device: the very bytes that the
 * codec writes. */
struct tb_gpu_new_delta {
    const struct tb_gpu_piece *pieces; /* the base */
    uint32_t piece_count;
    uint32_t bytes; /* of the chunk */
    const uint8_t *chunk;
    unsigned kind;       /* tb_sparse_kind_of (base/codec/sparse.h) */
    unsigned classes;    /* 1 to 16 */
    uint8_t *form;       /* room for `bytes` */
    uint32_t form_bytes; /* out; 0: it does not pay */
};
/* TB_SITE_NOMEM as above. */
TB_MUST_USE enum tb_status tb_gpu_encode(struct tb_gpu_memory *m, struct tb_gpu_new_delta *deltas,
                                         uint32_t count);

#endif

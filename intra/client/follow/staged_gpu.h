/* staged_gpu.h - a version that is staged in a GPU's memory. */
#ifndef TB_INTRA_CLIENT_STAGED_GPU_H
#define TB_INTRA_CLIENT_STAGED_GPU_H

#include "intra/client/follow/staging.h"
#include "intra/cuda_part_queue.h"

/* Of a staging that is for a GPU: memory there, or a line says why not, and it is for the host as
 * any other. Before its places; without the lock. */
void tb_staging_find_gpu(struct tb_staging *st);
/* A shard's place, which is laid out over the host's memory: its tensors are far from now on. */
void tb_staging_put_far(struct tb_staging *st, struct tb_staged_shard *sh);
/* P10: no memory there, and why. */
void tb_staging_not_on_gpu(const struct tb_staging *st, const char *why);
/* Under the lock. Memory and batches of a GPU for it; zero where a GPU has no part in it. */
struct tb_staged_gpu_facts {
    uint64_t ring_bytes;               /* pinned, in which chunks land */
    uint64_t kept_bytes, pinned_bytes; /* for proven deltas: on the device; in the host's memory */
    struct tb_gpu_queue_counts queue;
};
struct tb_staged_gpu_facts tb_staged_gpu_facts(const struct tb_staging *st);
/* Under the lock, let go meanwhile. The registration is suspended: nothing that was staged in its
 * GPU's memory is there at return. */
void tb_stagings_leave_gpu(struct tb_session *s, struct tb_registration *r);

#endif

/* cuda_lanes.h - work on one of the two lanes of a device memory (cuda_memory.h): copies, digests,
 * proofs, kernels, and batches that take turns. All of it in a job. Inside intra/cuda only. */
#ifndef TB_INTRA_CUDA_LANES_H
#define TB_INTRA_CUDA_LANES_H

#include "intra/cuda/cuda_memory.h"

TB_MUST_USE enum tb_status tb_cuda_copy(struct tb_gpu_memory *m, uint32_t lane, struct tb_gpu_move move);
/* In one call of the driver where it takes that, else row by row. A row is pinned whole or not at
 * all, as the driver wants it. */
TB_MUST_USE enum tb_status tb_cuda_copy_rows(struct tb_gpu_memory *m, uint32_t lane,
                                             const struct tb_gpu_rows *rows);
/* The first jobs of the lane's slate in host memory: their digests are there once
 * the lane is waited for, and the proofs that were asked for. */
TB_MUST_USE enum tb_status tb_cuda_digest(struct tb_gpu_memory *m, uint32_t lane, uint32_t count);
/* In a batch, before tb_cuda_digest: the chunk of job i is foreign, so it is proven too. A chunk
 * that is too short for the digest's kernel is proven by the host. */
void tb_cuda_prove(struct tb_gpu_memory *m, uint32_t lane, uint32_t i);
/* Behind the lane's work: the proof of such a chunk. */
struct tb_blake3 tb_cuda_proof(const struct tb_gpu_memory *m, uint32_t lane, uint32_t i, uint64_t bytes);
/* From now on wait waits for what is on the lane. */
TB_MUST_USE enum tb_status tb_cuda_mark(struct tb_gpu_memory *m, uint32_t lane);
TB_MUST_USE enum tb_status tb_cuda_wait(struct tb_gpu_memory *m, uint32_t lane);

/* The work that was marked on the lane is done, or failed: a wait is short. */
bool tb_cuda_is_done(const struct tb_gpu_memory *m, uint32_t lane);

TB_MUST_USE enum tb_status tb_cuda_run_kernel(struct tb_gpu_memory *m, uint32_t lane,
                                              enum tb_cuda_kernel kernel, const void *jobs, uint32_t count);

/* A lane's load: chunks, or deltas of them. */
struct tb_cuda_batch {
    uint32_t first, count; /* 0: there are no more */
};
struct tb_cuda_turns {
    struct tb_cuda_batch (*next)(void *run);
    /* puts it on the lane */
    enum tb_status (*begin)(void *run, const struct tb_cuda_batch *b, uint32_t lane);
    void (*end)(void *run, const struct tb_cuda_batch *b, uint32_t lane); /* all of it is done */
};
/* All batches, in a job: while one is on its lane, the one before it is ended. On failure some
 * may still be on theirs. */
TB_MUST_USE enum tb_status tb_cuda_by_turns(struct tb_gpu_memory *m, const struct tb_cuda_turns *turns,
                                            void *run);

#endif

/* cuda_deltas.h - a batch of deltas on a lane: decoded over the tensors, or beside them, and
 * digested. Inside intra/cuda only: cuda_patch.c, for a switch and for proofs. */
#ifndef TB_INTRA_CUDA_DELTAS_H
#define TB_INTRA_CUDA_DELTAS_H

#include "intra/cuda/cuda_memory.h"
#include "intra/cuda_part_deltas.h"

struct tb_cuda_deltas {
    struct tb_gpu_delta *list[TB_CUDA_BATCH_CHUNKS];
    uint32_t count;
    bool writes; /* else what would be there is digested */
    /* Device memory for the forms that are not kept yet, as many as tb_cuda_forms_bytes: they are
     * kept there. NULL: they go up to the lane's own. */
    uint8_t *keep;
};

/* The sizes of a batch. */
struct tb_cuda_load {
    uint64_t bytes, forms, moves;
    uint32_t count;
};
/* Adds it. False: there is no room for it beside the others. */
bool tb_cuda_load_add(const struct tb_gpu_memory *m, struct tb_cuda_load *load,
                      const struct tb_gpu_delta *delta, bool writes);

uint64_t tb_cuda_forms_bytes(const struct tb_cuda_deltas *b); /* of those that are not kept yet */
TB_MUST_USE enum tb_status tb_cuda_deltas_begin(struct tb_gpu_memory *m, uint32_t lane,
                                                struct tb_cuda_deltas *b);
/* Behind the lane's work: fills in `patched`, `digest` and `proof`. */
void tb_cuda_deltas_end(const struct tb_gpu_memory *m, uint32_t lane, struct tb_cuda_deltas *b);

#endif

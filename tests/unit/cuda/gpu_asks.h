/* gpu_asks.h - what is asked of a GPU's queue and waited for: landings of a stage, and proofs. */
#ifndef TB_TESTS_GPU_ASKS_H
#define TB_TESTS_GPU_ASKS_H

#include <pthread.h>

#include "intra/cuda_part_deltas.h"
#include "intra/cuda_part_stage.h"

/* Answers that are waited for. */
struct gpu_asks {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    uint32_t count, asked; /* answers that came; that are owed */
    enum tb_status status; /* the first that is not TB_OK */
};
void gpu_asks_init(struct gpu_asks *a);
enum tb_status gpu_asks_wait(struct gpu_asks *a); /* for all of them; the status of all */
uint32_t gpu_asks_answered(struct gpu_asks *a);

struct gpu_asked_landing {
    struct tb_gpu_landing landing;
    struct gpu_asks *asks;
};
void gpu_asks_land(struct gpu_asks *a, struct tb_gpu_stage *stage, struct gpu_asked_landing *landing);
/* One, waited for. */
enum tb_status gpu_land(struct tb_gpu_stage *stage, struct tb_gpu_landing *landing);

/* All of them, waited for. The deltas get their answers; what is kept stays with `proofs`. */
enum tb_status gpu_prove_with(struct tb_gpu_proofs *proofs, struct tb_gpu_delta *deltas, uint32_t count);
/* The same by proofs of their own, over tensors that hold what the deltas are against. Nothing is
 * kept. */
enum tb_status gpu_prove(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count);
struct tb_gpu_proofs *gpu_proofs(struct tb_gpu_memory *m, uint64_t keep_bytes);

#endif

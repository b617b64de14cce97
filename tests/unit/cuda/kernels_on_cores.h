/* kernels_on_cores.h - the kernels of intra/cuda on the processor's cores: the same text, compiled
 * as C, a block being real threads that meet at a real barrier (so ThreadSanitizer sees a sync that
 * is missing). It shows that what they compute is right; it cannot show that a GPU does so, nor how
 * fast: tests/gpu and bench/gpu do. */
#ifndef TB_TESTS_KERNELS_ON_CORES_H
#define TB_TESTS_KERNELS_ON_CORES_H

#include "intra/cuda/kernel_jobs.h"

void cores_digest(struct tb_digest_job *jobs, uint32_t count, uint32_t threads);
void cores_blake3(struct tb_blake3_job *jobs, uint32_t count, uint32_t threads);
void cores_encode(struct tb_encode_job *jobs, uint32_t count, uint32_t threads);
void cores_patch(struct tb_patch_job *jobs, uint32_t count, uint32_t threads);
void cores_move(struct tb_move_job *jobs, uint32_t count, uint32_t threads);

#endif

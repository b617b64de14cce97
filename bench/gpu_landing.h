/* gpu_landing.h - a version lands on a GPU in chunks, from several threads of a worker, as whole
 * chunks or as deltas. Each chunk's digest is compared with the host's; a wrong one ends the
 * program. */
#ifndef TB_BENCH_GPU_LANDING_H
#define TB_BENCH_GPU_LANDING_H

#include "gpu/real_device.h"

#define GPU_LANDING_CHUNK_BYTES ((uint64_t)1 << 20)
#define GPU_LANDING_THREADS     16u /* of a worker: a core each */

struct gpu_landing;
/* The memory is a registration's: its one tensor of `bytes`, BF16, stands at `tensor`. Bytes are
 * whole chunks. */
struct gpu_landing *gpu_landing_new(struct real_device *real, struct tb_gpu_memory *memory, uint8_t *tensor,
                                    uint64_t bytes);
void gpu_landing_free(struct gpu_landing *l); /* NULL is fine */

/* Copies a version into pageable host memory, where it stands as another worker's would. */
void gpu_landing_fill(struct gpu_landing *l, const uint8_t *version);
/* Then the tensor becomes `base`, of the device, and the deltas against it are encoded. */
void gpu_landing_encode(struct gpu_landing *l, const void *base);

/* Seconds in which the whole version lands and is digested on the device; all threads at once. */
double gpu_landing_stage(struct gpu_landing *l); /* whole chunks */
double gpu_landing_prove(struct gpu_landing *l); /* deltas, which are applied and digested there */

#endif

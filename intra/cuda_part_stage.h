/* cuda_part_stage.h - memory of ours on a GPU, in which a version lands. Part of cuda_part.h.
 *
 * It stands on the device of a registration's memory, is no part of that memory, and outlives it.
 * The device digests the bytes that stand there (P1). A NIC may write there by itself. Else chunks
 * land in a ring of pinned host memory, and go up many at a time.
 *
 * Threads: any. */
#ifndef TB_INTRA_CUDA_PART_STAGE_H
#define TB_INTRA_CUDA_PART_STAGE_H

#include "intra/cuda_part_queue.h"

struct tb_gpu_stage;
struct tb_gpu_stage_size {
    uint64_t bytes;       /* of the version */
    uint32_t chunk_bytes; /* of the largest chunk */
};
/* On a 2 MiB border. Beside it the device gives room to digest in. On failure
 * `why` (TB_GPU_WHY_BYTES) is a sentence.
 *   TB_NOT_FOUND   the device has no kernels
 *   TB_SITE_NOMEM  no room, here or there
 *   TB_SITE_IO     the driver refused: see gpu.failed */
TB_MUST_USE enum tb_status tb_gpu_stage_open(struct tb_gpu_memory *beside,
                                             const struct tb_gpu_stage_size *size,
                                             struct tb_gpu_stage **stage_out, char *why);
/* Nothing is asked of it any more, all that was lent is back, and no NIC has it registered. NULL is
 * fine. */
void tb_gpu_stage_close(struct tb_gpu_stage *stage);

uint8_t *tb_gpu_stage_base(const struct tb_gpu_stage *stage); /* an address of the device's */
/* Fills in the descriptor by which a NIC writes some of it, until close. False: a NIC cannot, or
 * the device would not see its writes. */
bool tb_gpu_stage_device(struct tb_gpu_stage *stage, const void *at, uint64_t bytes,
                         struct tb_export_device *device_out);

/* Pinned memory for one chunk. NULL: all of the ring is lent, or there is none. */
uint8_t *tb_gpu_stage_lend(struct tb_gpu_stage *stage, uint32_t bytes);
void tb_gpu_stage_give(struct tb_gpu_stage *stage, uint8_t *lent);

struct tb_gpu_landing {
    struct tb_gpu_ask asked;
    uint8_t *at;             /* in the stage */
    uint32_t bytes;          /* at least 1, at most a chunk's */
    const uint8_t *from;     /* of the host; NULL: a NIC has written it, and its READ is complete */
    bool foreign;            /* it came from one who is not believed about it (base/layout/place.h) */
    struct tb_digest digest; /* with the answer TB_OK: of what stands there */
    struct tb_blake3 proof;  /* likewise, of a foreign chunk */
};
/* After a failure tb_gpu_stage_failed. */
void tb_gpu_stage_take(struct tb_gpu_stage *stage, struct tb_gpu_landing *landing);
bool tb_gpu_stage_failed(const struct tb_gpu_stage *stage);

struct tb_gpu_stage_facts {
    uint64_t ring_bytes; /* pinned; 0: chunks go up from any memory */
    struct tb_gpu_queue_counts queue;
};
void tb_gpu_stage_facts(struct tb_gpu_stage *stage, struct tb_gpu_stage_facts *facts_out);

#endif

/* cuda_part_queue.h - what waits for a GPU does so together: a batch takes all that came, and those
 * who ask do not wait. Part of cuda_part.h. */
#ifndef TB_INTRA_CUDA_PART_QUEUE_H
#define TB_INTRA_CUDA_PART_QUEUE_H

#include "intra/cuda_part.h"

/* The first member of what is asked. Its memory is the GPU's until the answer. */
struct tb_gpu_ask {
    struct tb_gpu_ask *next;
    /* Once, on a thread of ours. It must not wait. TB_SITE_IO, TB_SITE_NOMEM: what should have been
     * written is of any content, and none of it runs on. */
    void (*answer)(struct tb_gpu_ask *ask, enum tb_status status);
};

struct tb_gpu_queue_counts {
    uint64_t batches, chunks; /* launches, and chunks in them */
    uint64_t beside;          /* batches that began while another was under way */
    uint32_t largest;         /* chunks of one batch, at most */
};

#endif

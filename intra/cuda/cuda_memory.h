/* cuda_memory.h - device memory of one registration, and the two lanes on which everything of it is copied. Inside
 * intra/cuda only. A shell.
 *
 * A lane is a stream with an event. Jobs go by turns over two of them, so that one is copied while what the other brought is
 * looked at: that is the double buffer. What is on one lane happens in order, so a lane's scratch is written again only behind
 * what still reads it. One job at a time has the lanes. */
#ifndef TB_INTRA_CUDA_MEMORY_H
#define TB_INTRA_CUDA_MEMORY_H

#include "intra/cuda/cuda_device.h"

#define TB_CUDA_LANES 2u
/* What a lane carries at a time: the largest chunk fits. 32 MiB take 1.3 ms on PCIe 4 and hide what begins a copy. */
#define TB_CUDA_BATCH_BYTES (2 * TB_CHUNK_BYTES_MAX)

struct tb_cuda_lane {
    CUstream stream;
    CUevent event;
};

struct tb_cuda_range { /* one allocation, as the driver knows it */
    uint64_t base, bytes;
    int dmabuf; /* DMABUF_UNASKED, DMABUF_REFUSED, or the descriptor */
};

struct tb_gpu_memory {
    struct tb_gpu *gpu;
    struct tb_cuda_device *device;
    uint32_t tensor_count;
    bool *has;                        /* of each tensor: on the device */
    uint64_t *at, *bytes;             /* likewise */
    struct tb_export_device *exports; /* likewise, once asked */
    struct tb_cuda_range *ranges;     /* ascending */
    uint32_t range_count;
    pthread_mutex_t lock; /* over all below, and over `dmabuf` and `exports` */
    struct tb_cuda_lane lanes[TB_CUDA_LANES];
};

/* Takes the lanes and the context. What a NIC wrote before is visible to the device from here on. */
TB_MUST_USE enum tb_status tb_cuda_job_begin(struct tb_gpu_memory *m);
/* Waits for both lanes when the job failed, so that nothing of it runs on; gives lanes and context back. The job's status. */
enum tb_status tb_cuda_job_end(struct tb_gpu_memory *m, enum tb_status status);

TB_MUST_USE enum tb_status tb_cuda_copy(struct tb_gpu_memory *m, uint32_t lane, struct tb_gpu_move move);
/* From now on wait waits for what is on the lane. */
TB_MUST_USE enum tb_status tb_cuda_mark(struct tb_gpu_memory *m, uint32_t lane);
TB_MUST_USE enum tb_status tb_cuda_wait(struct tb_gpu_memory *m, uint32_t lane);

#endif

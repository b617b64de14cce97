/* cuda_memory.h - device memory of one registration, or of ours, and what its two lanes have.
 * Inside intra/cuda only. A shell.
 *
 * A lane is a stream with an event. Jobs go by turns over two of them, so that one is copied while
 * what the other brought is looked at: that is the double buffer. Work on one lane runs in order,
 * so a lane's scratch is written again only behind the work that still reads it. One job at a time
 * has the lanes. */
#ifndef TB_INTRA_CUDA_MEMORY_H
#define TB_INTRA_CUDA_MEMORY_H

#include <stdatomic.h>

#include "base/layout/chunk_cut.h"
#include "base/proof/blake3.h"
#include "intra/cuda/cuda_kernels.h"
#include "intra/cuda_part_deltas.h"

#define TB_CUDA_LANES 2u
/* Chunks of one batch that the device digests. */
#define TB_CUDA_BATCH_CHUNKS 256u
#define TB_CUDA_CHUNK_ALIGN  256u
/* Bytes that a lane carries at a time: the largest chunk fits. 32 MiB take 1.3 ms on PCIe 4 and
 * hide what begins a copy. */
#define TB_CUDA_BATCH_BYTES (2 * TB_CHUNK_BYTES_MAX)
/* Of a large memory more, so that a launch has a chunk for each processor: a part of the memory,
 * within bounds. The two lanes have it three times each, where they patch. */
#define TB_CUDA_BATCH_BYTES_MAX (8 * TB_CHUNK_BYTES_MAX)
#define TB_CUDA_BATCH_PART      256u

/* Blocks of a lane that patch or encode at a time, each with a scratch of its own: a part of the
 * memory, within bounds. */
#define TB_CUDA_PATCH_BLOCKS_MIN 64u
#define TB_CUDA_PATCH_BLOCKS_MAX 256u
#define TB_CUDA_PATCH_BLOCK_OF   ((uint64_t)32 << 20)

/* Of a batch, by one launch; larger ones go in pieces, and those that there is no place for are
 * copied by themselves. */
#define TB_CUDA_MOVES_MAX      16384u
#define TB_CUDA_MOVE_BYTES_MAX 65536u

/* Pinned memory that goes to the device and comes back with each batch. */
struct tb_cuda_slate {
    struct tb_move_job moves[TB_CUDA_MOVES_MAX];
    struct tb_digest_job jobs[TB_CUDA_BATCH_CHUNKS];
    struct tb_digest digests[TB_CUDA_BATCH_CHUNKS];
    struct tb_blake3_job proof_jobs[TB_CUDA_BATCH_CHUNKS]; /* of foreign chunks alone */
    struct tb_blake3 proofs[TB_CUDA_BATCH_CHUNKS];         /* of the chunk with that number in the batch */
    struct tb_patch_job patches[TB_CUDA_BATCH_CHUNKS];
    struct tb_encode_job encodes[TB_CUDA_BATCH_CHUNKS];
    uint8_t small[TB_CUDA_BATCH_CHUNKS][TB_CUDA_CHUNK_ALIGN]; /* chunks that are too short for the kernel */
};

struct tb_cuda_lane {
    CUstream stream;
    CUevent event;
    /* For passes, from the first one on; all or none. */
    CUdeviceptr chunks; /* of one batch, each on a border of TB_CUDA_CHUNK_ALIGN */
    CUdeviceptr slate;  /* the same struct on the device; `small` is not used */
    struct tb_cuda_slate *host;
    uint32_t moves_listed, moves_run; /* of the batch's */
    uint32_t proofs_listed;           /* likewise */
    /* For patches, from the first one on; all or none. */
    CUdeviceptr forms;   /* of one batch, each on a border of TB_CUDA_CHUNK_ALIGN */
    CUdeviceptr bases;   /* likewise, of chunks that are encoded */
    CUdeviceptr blocks;  /* what patch_blocks of the kernel work on */
    uint8_t *host_forms; /* pinned; what goes up, then what comes down */
};

struct tb_cuda_range { /* one allocation, as the driver knows it */
    uint64_t base, bytes;
    bool mapped; /* by handles: pages of tensors that stand side by side */
    int dmabuf;  /* DMABUF_UNASKED, DMABUF_REFUSED, or the descriptor */
};

struct tb_gpu_memory {
    struct tb_gpu *gpu;
    struct tb_cuda_device *device;
    uint32_t tensor_count;
    bool *has;                    /* of each tensor: on the device */
    struct tb_cuda_range *ranges; /* ascending */
    uint32_t range_count;
    uint32_t patch_blocks;       /* of a lane that patch or encode at a time */
    uint64_t batch_bytes;        /* that a lane carries at a time; TB_CUDA_BATCH_BYTES and more */
    pthread_mutex_t export_lock; /* over `dmabuf` of ranges: an export does not wait for a job */
    pthread_mutex_t lock;        /* over all below */
    bool in_job;                 /* the lanes and the context are taken */
    struct tb_cuda_lane lanes[TB_CUDA_LANES];
    bool no_scratch; /* the device had no room for it: cores digest */
    /* Nor for patches. Until the registration ends or is suspended: what is staged as a patch and
     * finds no room comes whole while the buffers stand still. Any thread. */
    atomic_bool no_patch_room;
};

/* One range of memory that we have allocated ourselves, with no tensor; it outlives
 * tb_gpu_memory_close. */
TB_MUST_USE enum tb_status tb_cuda_memory_of_ours(struct tb_gpu *gpu, struct tb_cuda_device *device,
                                                  struct tb_cuda_range range,
                                                  struct tb_gpu_memory **memory_out);

/* Takes the lanes and the context. From here on the device sees earlier writes of a NIC, where NICs
 * may write. */
TB_MUST_USE enum tb_status tb_cuda_job_begin(struct tb_gpu_memory *m);
/* Again, behind READs that ended since. */
TB_MUST_USE enum tb_status tb_cuda_make_visible(const struct tb_gpu_memory *m);
/* Waits for both lanes when the job failed, so that nothing of it runs on; gives lanes and context
 * back. The job's status. */
enum tb_status tb_cuda_job_end(struct tb_gpu_memory *m, enum tb_status status);

/* In a job: the device can digest. False: it has no kernels, or no room for what they work on. */
bool tb_cuda_may_digest(struct tb_gpu_memory *m);
/* In a job: the lanes have what the digest's kernel works on. False: the device has no room for
 * it. */
bool tb_cuda_has_scratch(struct tb_gpu_memory *m);
/* Likewise: the lanes have room for patches too. */
bool tb_cuda_may_patch(struct tb_gpu_memory *m);

/* Which memory is on the device: a tensor's; any that the driver knows. */
bool tb_cuda_is_tensors(const struct tb_gpu_memory *m, const void *at);
bool tb_cuda_is_on_device(const struct tb_gpu_memory *m, const void *at);

/* To the next border of TB_CUDA_CHUNK_ALIGN. */
static inline uint64_t tb_cuda_aligned(uint64_t bytes)
{
    return (bytes + TB_CUDA_CHUNK_ALIGN - 1) / TB_CUDA_CHUNK_ALIGN * TB_CUDA_CHUNK_ALIGN;
}

#endif

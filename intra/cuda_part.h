/* cuda_part.h - the GPU part of a worker's library, which may be absent: intra/cuda where CUDA's
 * headers were found, else cuda_absent.c. Inside intra/ only.
 *
 * A registration's tensors may stand in the memory of one CUDA device, some of them or all. Nobody
 * has to say so: the driver knows whose a pointer is, and a process that never loaded the driver
 * has no such pointer, so nothing is loaded or made ready for it. A thread of the process may
 * capture a graph meanwhile. Our work on a device runs in its primary context, on streams of our
 * own. Each call here returns when its copies are complete, and after a failure none of them runs
 * on.
 *
 * Beside it: cuda_part_trays.h, cuda_part_stage.h and cuda_part_deltas.h.
 *
 * Threads: any, unless a call says otherwise. Failures of the driver leave one line, gpu.failed,
 * with call and error. */
#ifndef TB_INTRA_CUDA_PART_H
#define TB_INTRA_CUDA_PART_H

#include <stdbool.h>

#include "base/layout/chunk_cut.h"
#include "base/layout/manifest.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/shared_memory.h"
#include "intra/tensor_spread.h"

struct tb_gpu;
struct tb_gpu_memory;

#define TB_GPU_WHY_BYTES 400

/* On failure *gpu_out is NULL and `why` (TB_GPU_WHY_BYTES) a sentence.
 *   TB_NOT_FOUND      this process has no GPU memory for now; ask again when it registers more
 *   TB_PEER_PROTOCOL  its driver is too old to be asked, so no pointer's owner is known
 *   TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_gpu_open(struct tb_gpu **gpu_out, char *why);
/* Behind the last memory and the last pin. NULL is fine. */
void tb_gpu_close(struct tb_gpu *gpu);

/* ---- device memory of a registration ---- */

struct tb_gpu_tensors {
    const struct tb_layout *layout;
    uint8_t *const *at; /* where each stands, in packed order */
};
/* TB_OK and NULL: all of them stand in host memory (managed memory is that, too). `why`
 * (TB_GPU_WHY_BYTES) is a sentence on failure.
 *   TB_BAD_ARGUMENT  they stand on two devices, or in a context other than the device's primary one
 *   TB_SITE_NOMEM, TB_SITE_IO  the driver refused: see gpu.failed */
TB_MUST_USE enum tb_status tb_gpu_memory_open(struct tb_gpu *gpu, const struct tb_gpu_tensors *tensors,
                                              struct tb_gpu_memory **memory_out, char *why);
/* After it nothing of ours refers to the memory: streams, scratch and descriptors
 * are gone. NULL is fine. */
void tb_gpu_memory_close(struct tb_gpu_memory *m);

bool tb_gpu_memory_has(const struct tb_gpu_memory *m, uint32_t tensor); /* on the device; NULL: none is */

struct tb_gpu_facts {
    int device;
    char name[64];
    const char *digests; /* "gpu", or "cores: " and why; stays as long as the memory */
    bool dmabuf;         /* NICs may read it, as far as the driver says */
    bool nics_may_write; /* copies and digests here see what a NIC has written there, as into a stage */
};
void tb_gpu_memory_facts(const struct tb_gpu_memory *m, struct tb_gpu_facts *facts_out);

/* Fills in the descriptor by which a NIC reads some of the memory, until close. False: a NIC
 * cannot, or the memory is no device's, so the copy in host memory is read. */
bool tb_gpu_memory_device(struct tb_gpu_memory *m, const void *at, uint64_t bytes,
                          struct tb_export_device *device_out);

/* ---- copies ---- */

/* Pins the memory for this process's devices, unless it is; tb_shared_memory_unpin, which is a part
 * of its free, unpins it. A view into memory of ours may be given, by whole pages of which none is
 * pinned: its owner unpins it before they are unmapped. Where it is refused (ulimit -l) `pin` stays
 * NULL, copies are slower and the same otherwise, and a line, gpu.unpinned, says so. */
void tb_gpu_pin(struct tb_gpu *gpu, struct tb_shared_memory *memory);

struct tb_gpu_move {
    void *to;
    const void *from; /* either may be of the device or of the host */
    uint64_t bytes;
};
struct tb_gpu_rows {
    struct tb_gpu_move row;          /* the first */
    uint64_t rows;                   /* 0: that one */
    uint64_t to_stride, from_stride; /* of several: at least a row */
};
/* TB_SITE_IO, TB_SITE_NOMEM: some of where they go is of any content. */
TB_MUST_USE enum tb_status tb_gpu_move(struct tb_gpu_memory *m, const struct tb_gpu_rows *moves,
                                       uint32_t count);

/* One pass over a shard: all its chunks are digested, and copied if `to` says where. The copied
 * bytes are digested, so that a digest always fits the bytes beside it. */
struct tb_gpu_pass {
    const struct tb_manifest *manifest;
    struct tb_spread from; /* tensors of the device or the host, blobs of the host */
    uint8_t *to; /* packed, host: tensors land there, blobs stand there already; NULL: only digests */
    struct tb_digest *digests;
    /* Chunks that the device has not digested: `count` of them from `first` on stand at `bytes`,
     * one behind the other. */
    void (*landed)(void *user, uint32_t first, uint32_t count, const uint8_t *bytes);
    void *user;
};
TB_MUST_USE enum tb_status tb_gpu_pass(struct tb_gpu_memory *m, const struct tb_gpu_pass *pass);

#endif

/* cuda_part.h - the GPU part of a worker's library, which may be absent: intra/cuda where CUDA's headers were found, else
 * cuda_absent.c. Inside intra/ only.
 *
 * A registration's tensors may stand in the memory of one CUDA device, some of them or all. Nobody has to say so: the driver
 * knows whose a pointer is, and a process that never loaded the driver has no such pointer, so nothing is loaded or made
 * ready for it. What we do on a device happens in its primary context, on streams of our own, with host memory that is
 * pinned once; every call here returns when its copies are complete, and after a failure none of them runs on.
 *
 * Threads: any, unless a call says otherwise. Failures of the driver leave one line, gpu.failed, with call and error. */
#ifndef TB_INTRA_CUDA_PART_H
#define TB_INTRA_CUDA_PART_H

#include <stdbool.h>

#include "base/manifest.h"
#include "intra/fabric.h"
#include "intra/shared_memory.h"

struct tb_gpu;
struct tb_gpu_memory;

#define TB_GPU_WHY_BYTES 400

/* On failure *gpu_out is NULL and `why` (TB_GPU_WHY_BYTES) a sentence.
 *   TB_NOT_FOUND      this process has no GPU memory for now; ask again when it registers more
 *   TB_PEER_PROTOCOL  it has a driver that is too old to be asked: whose a pointer is cannot be known
 *   TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_gpu_open(struct tb_gpu **gpu_out, char *why);
/* Behind the last memory and the last pin. NULL is fine. */
void tb_gpu_close(struct tb_gpu *gpu);

/* ---- device memory of a registration ---- */

struct tb_gpu_tensors {
    const struct tb_layout *layout;
    uint8_t *const *at; /* where each stands, in packed order */
};
/* TB_OK and NULL: all of them stand in host memory (managed memory is that, too). `why` (TB_GPU_WHY_BYTES) is a sentence on failure.
 *   TB_BAD_ARGUMENT  they stand on two devices, or in a context other than the device's primary one
 *   TB_SITE_NOMEM, TB_SITE_IO  the driver refused: see gpu.failed */
TB_MUST_USE enum tb_status tb_gpu_memory_open(struct tb_gpu *gpu, const struct tb_gpu_tensors *tensors,
                                              struct tb_gpu_memory **memory_out, char *why);
/* After it nothing of ours refers to the memory: streams, scratch and descriptors are gone. NULL is fine. */
void tb_gpu_memory_close(struct tb_gpu_memory *m);

bool tb_gpu_memory_has(const struct tb_gpu_memory *m, uint32_t tensor); /* on the device; NULL: none is */

struct tb_gpu_facts {
    int device;
    char name[64];
    const char *digests; /* "gpu", or "cores: " and why; stays as long as the memory */
    bool dmabuf;         /* NICs may read it, as far as the driver says */
};
void tb_gpu_memory_facts(const struct tb_gpu_memory *m, struct tb_gpu_facts *facts_out);

/* What a NIC needs to read a tensor from the device; NULL: it cannot, the copy in host memory is read. Stays until close. */
const struct tb_export_device *tb_gpu_memory_device(struct tb_gpu_memory *m, uint32_t tensor);

/* ---- copies ---- */

/* Pins the memory for this process's devices, once; it is unpinned when it is freed. Where that is refused (ulimit -l) copies are
 * slower and the same otherwise, and one line, gpu.unpinned, says so. */
void tb_gpu_pin(struct tb_gpu *gpu, struct tb_shared_memory *memory);

struct tb_gpu_move {
    void *to;
    const void *from; /* either may be of the device or of the host */
    uint64_t bytes;
};
/* TB_SITE_IO, TB_SITE_NOMEM: some of `to` is of any content. */
TB_MUST_USE enum tb_status tb_gpu_move(struct tb_gpu_memory *m, const struct tb_gpu_move *moves,
                                       uint32_t count);

/* One pass over a shard: all its chunks are digested, and copied if `to` says where. What is digested is what was copied, so
 * that a digest always fits the bytes beside it. */
struct tb_gpu_pass {
    const struct tb_manifest *manifest;
    uint8_t *const *tensors; /* packed order; of the device or the host */
    const uint8_t *blobs;    /* host; NULL without */
    uint8_t *to; /* packed, host: tensors land there, blobs stand there already; NULL: only digests */
    struct tb_digest *digests;
    /* Chunks that the device has not digested: `count` of them from `first` on stand at `bytes`, one behind the other. */
    void (*landed)(void *user, uint32_t first, uint32_t count, const uint8_t *bytes);
    void *user;
};
TB_MUST_USE enum tb_status tb_gpu_pass(struct tb_gpu_memory *m, const struct tb_gpu_pass *pass);

/* ---- patches ---- */

/* A chunk as it stands in its tensors: pieces one behind another, all of them on the device. */
struct tb_gpu_piece {
    uint8_t *at;
    uint64_t bytes;
};
struct tb_gpu_step {
    const struct tb_gpu_piece *pieces;
    uint32_t piece_count;
    uint32_t bytes;          /* of the chunk */
    uint32_t form_bytes;     /* less than the chunk's */
    const uint8_t *form;     /* sparse (base/sparse.h), a difference to what stands there */
    bool patched;            /* out: the form was one; else what stands there is of any content */
    struct tb_digest digest; /* out, of what stands there then */
};

/* The device patches: it has the kernels, and was not found without room for it. */
bool tb_gpu_may_patch(const struct tb_gpu_memory *m);
/* The device writes each step over what stands there, and digests what it then finds there. TB_SITE_NOMEM: it has no room for it, and
 * nothing was changed; TB_SITE_IO: what stands there is of any content. */
TB_MUST_USE enum tb_status tb_gpu_patch(struct tb_gpu_memory *m, struct tb_gpu_step *steps, uint32_t count);

#endif

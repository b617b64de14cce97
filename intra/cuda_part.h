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
 * Threads: any, unless a call says otherwise. Failures of the driver leave one line, gpu.failed,
 * with call and error. */
#ifndef TB_INTRA_CUDA_PART_H
#define TB_INTRA_CUDA_PART_H

#include <stdbool.h>

#include "base/layout/chunk_cut.h"
#include "base/layout/manifest.h"
#include "intra/coalesce.h"
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

/* ---- for other processes of this host: trays ---- */

/* CUDA IPC, without lending anybody the caller's memory. A reader asks for a *tray*: device memory
 * of ours, of one reader, that it opens by its handle. The owner copies chunks into it, device to
 * device; the reader copies them out to where they land. So a reader can write to nothing but its
 * own tray, memory that CUDA IPC does not know (cuMemCreate) is read as well, however many tensors
 * a chunk has its reader opens one handle, and the owner's memory is its own again as soon as its
 * own copies are done: also when the reader stands still, and has its tray open. */
#define TB_GPU_HANDLE_BYTES   64u
#define TB_GPU_TRAY_BYTES_MAX (2u * TB_CHUNK_BYTES_MAX) /* two chunks may always be in flight */
#define TB_GPU_TRAY_PARTS     32u                       /* that its reader may copy out of at a time */

/* Where a shard's packed bytes stand. Borrowed, as is the memory. */
struct tb_gpu_origin {
    struct tb_gpu_memory *memory;
    const struct tb_manifest *manifest;
    struct tb_spread from; /* tensors of the device or the host, blobs of the host */
};
struct tb_gpu_offer {    /* what a reader needs to open it */
    struct tb_id device; /* as the driver names it, the same in every process; zero: it does not */
    uint64_t bytes;
    uint8_t handle[TB_GPU_HANDLE_BYTES];
};
struct tb_gpu_tray;
/* TB_SITE_NOMEM: the device has no room; TB_SITE_IO: it cannot be lent, see gpu.failed. */
TB_MUST_USE enum tb_status tb_gpu_tray_open(struct tb_gpu_memory *m, uint64_t bytes,
                                            struct tb_gpu_tray **tray_out, struct tb_gpu_offer *offer_out);
struct tb_gpu_fill {
    uint64_t offset; /* packed */
    uint64_t at;     /* in the tray */
    uint64_t bytes;  /* at least 1 */
};
/* Inside the manifest and the tray, as the caller has looked. Returns when all of them are there.
 * TB_SITE_IO, TB_SITE_NOMEM: some are of any content; none of it runs on. */
TB_MUST_USE enum tb_status tb_gpu_tray_fill(struct tb_gpu_tray *tray, const struct tb_gpu_origin *origin,
                                            const struct tb_gpu_fill *fills, uint32_t count);
/* To free what another process has open is undefined: the reader says by its connection's end that
 * it has closed it. Where it did not, the memory stays until this process ends, and a line,
 * gpu.tray_kept, says so. May come after the memory's end. */
void tb_gpu_tray_close(struct tb_gpu_tray *tray, bool reader_closed);

/* The reader's end, on a device on which it has memory registered: the tray's own, else
 * any that reaches it. */
struct tb_gpu_reach;
/* TB_NOT_FOUND: no device of this process is in use. TB_SITE_IO: the driver does not open it here,
 * see gpu.failed. TB_PEER_GARBLED: it is smaller than the offer says. */
TB_MUST_USE enum tb_status tb_gpu_reach_open(struct tb_gpu *gpu, const struct tb_gpu_offer *offer,
                                             struct tb_gpu_reach **reach_out);
/* `part` below TB_GPU_TRAY_PARTS: of those that are in use at the same time, each its own. Complete
 * at return, also of a failure. */
TB_MUST_USE enum tb_status tb_gpu_reach_copy(struct tb_gpu_reach *reach, uint32_t part, uint64_t at, void *to,
                                             uint64_t bytes);
void tb_gpu_reach_close(struct tb_gpu_reach *reach);

/* ---- staging ---- */

/* Memory of ours on the device of a registration's, in which a version lands. It is no part of that
 * memory, and outlives it. The device digests the bytes that stand there (P1). A NIC may write
 * there by itself. */
struct tb_gpu_stage;
/* Of at least `bytes`, on a 2 MiB border. Beside it the device gives 64 MiB to digest in. On
 * failure `why` (TB_GPU_WHY_BYTES) is a sentence.
 *   TB_NOT_FOUND   the device has no kernels
 *   TB_SITE_NOMEM  no room, here or there
 *   TB_SITE_IO     the driver refused: see gpu.failed */
TB_MUST_USE enum tb_status tb_gpu_stage_open(struct tb_gpu_memory *beside, uint64_t bytes,
                                             struct tb_gpu_stage **stage_out, char *why);
/* No take is on its way, and no NIC has it registered. NULL is fine. */
void tb_gpu_stage_close(struct tb_gpu_stage *stage);

uint8_t *tb_gpu_stage_base(const struct tb_gpu_stage *stage); /* an address of the device's */
/* Fills in the descriptor by which a NIC writes some of it, until close. False: a NIC cannot, or
 * the device would not see its writes. */
bool tb_gpu_stage_device(struct tb_gpu_stage *stage, const void *at, uint64_t bytes,
                         struct tb_export_device *device_out);

struct tb_gpu_landing {
    struct tb_asked asked;   /* the stage's while it has it */
    uint8_t *at;             /* in the stage */
    uint32_t bytes;          /* at least 1, at most a chunk's */
    const uint8_t *from;     /* of the host; NULL: a NIC has written it, and its READ is complete */
    struct tb_digest digest; /* out, of what stands there */
};
/* Several threads at a time, each with a chunk of its own; those that wait for the device are one
 * launch. TB_SITE_IO, TB_SITE_NOMEM: what stands there is of any content, none of it runs on, and
 * from then on tb_gpu_stage_failed. */
TB_MUST_USE enum tb_status tb_gpu_stage_take(struct tb_gpu_stage *stage, struct tb_gpu_landing *landing);
bool tb_gpu_stage_failed(const struct tb_gpu_stage *stage);

/* ---- patches ---- */

/* A chunk as it stands in its tensors: pieces one behind another, all of them on the device. */
struct tb_gpu_piece {
    uint8_t *at;
    uint64_t bytes;
};
struct tb_gpu_delta {
    const struct tb_gpu_piece *pieces;
    uint32_t piece_count;
    uint32_t bytes;          /* of the chunk */
    uint32_t form_bytes;     /* less than the chunk's */
    const uint8_t *form;     /* sparse (base/codec/sparse.h): a delta against these bytes */
    bool patched;            /* out: the form was one; else what stands there is of any content */
    struct tb_digest digest; /* out, of what stands there then */
};

/* The device patches and encodes: it has the kernels, and was not found without room for it. */
bool tb_gpu_may_patch(const struct tb_gpu_memory *m);
/* The device decodes each delta over the bytes of its chunk, and digests the result. TB_SITE_NOMEM:
 * it has no room for it, and nothing was changed; TB_SITE_IO: what stands there is of any
 * content. */
TB_MUST_USE enum tb_status tb_gpu_patch(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count);
/* The same, but nothing is written: the result is digested and goes. */
TB_MUST_USE enum tb_status tb_gpu_prove(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count);

/* A chunk of host memory, and its delta against the bytes of the device: the very bytes that the
 * codec writes. */
struct tb_gpu_new_delta {
    const struct tb_gpu_piece *pieces; /* the base */
    uint32_t piece_count;
    uint32_t bytes; /* of the chunk */
    const uint8_t *chunk;
    unsigned kind;       /* tb_sparse_kind_of (base/codec/sparse.h) */
    unsigned classes;    /* 1 to 16 */
    uint8_t *form;       /* room for `bytes` */
    uint32_t form_bytes; /* out; 0: it does not pay */
};
/* TB_SITE_NOMEM as above. */
TB_MUST_USE enum tb_status tb_gpu_encode(struct tb_gpu_memory *m, struct tb_gpu_new_delta *deltas,
                                         uint32_t count);

#endif

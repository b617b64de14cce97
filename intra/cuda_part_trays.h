/* cuda_part_trays.h - a GPU's memory for other processes of this host: trays. Part of cuda_part.h.
 *
 * CUDA IPC, without lending anybody the caller's memory. A reader asks for a *tray*: device memory
 * of ours, of one reader, that it opens by its handle. The owner copies chunks into it, device to
 * device; the reader copies them out to where they land. So a reader can write to nothing but its
 * own tray, memory that CUDA IPC does not know (cuMemCreate) is read as well, however many tensors
 * a chunk has its reader opens one handle, and the owner's memory is its own again as soon as its
 * own copies are done: also when the reader stands still, and has its tray open.
 *
 * Threads: any. */
#ifndef TB_INTRA_CUDA_PART_TRAYS_H
#define TB_INTRA_CUDA_PART_TRAYS_H

#include "intra/cuda_part.h"

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

#endif

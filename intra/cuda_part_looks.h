/* cuda_part_looks.h - what some bytes of a GPU's tensors come to, by the device: no byte of them
 * goes over the bus. Part of cuda_part.h.
 *
 * Threads: any. */
#ifndef TB_INTRA_CUDA_PART_LOOKS_H
#define TB_INTRA_CUDA_PART_LOOKS_H

#include "base/proof/blake3.h"
#include "intra/cuda_part.h"

struct tb_gpu_look {
    const struct tb_stretch_rows *pieces; /* all of them on the device, one behind another */
    uint32_t piece_count;
    uint32_t bytes; /* of all of them: at least 1, at most 2 x TB_CHUNK_BYTES_MAX */
    bool prove;     /* the proof is wanted too */
    struct tb_digest digest;
    struct tb_blake3 proof;
};
/* TB_NOT_FOUND: the device has no kernels, or no room for what they work on. TB_SITE_IO. */
TB_MUST_USE enum tb_status tb_gpu_look(struct tb_gpu_memory *m, struct tb_gpu_look *look);

#endif

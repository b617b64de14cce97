/* publish_pass.h - the one pass over a shard that is published: copy into the shadow, digest,
 * encode, chunk by chunk over the pool. A shell.
 *
 * Bytes touched per byte of the shard: read once; in shadow mode written once and digested from the
 * cache it was just written through, tile by tile; encoded from there too. In shadow mode the copy
 * is digested, so a caller that writes meanwhile cannot make a digest that fits no bytes.
 *
 * Threads: any; blocks until the pass is done. */
#ifndef TB_INTRA_CLIENT_PASS_H
#define TB_INTRA_CLIENT_PASS_H

#include "base/codec/codec.h"
#include "base/layout/manifest.h"
#include "intra/client/memory/thread_crew.h"
#include "intra/cuda_part.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/shared_memory.h"
#include "intra/tensor_spread.h"

struct tb_pass {
    struct tb_manifest *manifest;      /* laid out; the pass fills digests */
    uint8_t *const *tensors;           /* where each stands, in packed order */
    const struct tb_spread_rows *rows; /* NULL: all are dense */
    /* all, one behind the other, where they will be served from; NULL when there are none */
    uint8_t *blobs;
    uint8_t *shadow; /* packed tensors are copied here; NULL in place */
    /* some of the tensors stand on a device; with a codec there is a shadow, then */
    struct tb_gpu_memory *gpu;
    enum tb_codec_id codec;                   /* RAW: nothing is encoded */
    struct tb_source_encoded *encoded_chunks; /* with a codec: chunk_count, filled; buffer is left 0 */
};

/* With a codec *encoded_out gets memory with the encoded chunks (zeroed when none got smaller).
 * TB_SITE_NOMEM; TB_SITE_IO: the device cannot be read. */
TB_MUST_USE enum tb_status tb_pass_run(struct tb_crew *crew, const struct tb_pass *pass,
                                       struct tb_shared_memory *encoded_out);

/* Behind a pass: the proof of each chunk, of the bytes that are served. */
void tb_pass_prove(struct tb_crew *crew, const struct tb_pass *pass);

/* Digests what stands there (manifest, tensors, rows, blobs and gpu of the pass) and compares with
 * the manifest: TB_CONFLICT with one chunk that differs. TB_SITE_NOMEM; TB_SITE_IO: the device
 * cannot be read. */
TB_MUST_USE enum tb_status tb_pass_compare(struct tb_crew *crew, const struct tb_pass *with,
                                           uint32_t *differs_out);

#endif

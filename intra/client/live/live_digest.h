/* live_digest.h - digests of bytes where they stand in a rollout's memory: on cores, or on the GPU
 * whose memory it is.
 *
 * tb_live_sum_of is the one place that chooses the kind of digest. */
#ifndef TB_INTRA_CLIENT_LIVE_DIGEST_H
#define TB_INTRA_CLIENT_LIVE_DIGEST_H

#include "base/layout/manifest.h"

struct tb_gpu_memory;

/* BLAKE3 where the manifest's proof of the chunk is known, else XXH3. */
struct tb_live_sum {
    bool proof;
    struct tb_digest digest; /* XXH3 */
    struct tb_blake3 blake3;
};

/* Rows of one tensor of a registration. */
struct tb_live_piece {
    uint32_t want;
    bool on_device;
    uint64_t to; /* from the beginning of the tensor's memory */
    uint64_t run, rows, stride;
};

/* That chunk k must have. */
struct tb_live_sum tb_live_sum_of(const struct tb_manifest *manifest, uint32_t k);
bool tb_live_sum_equal(const struct tb_live_sum *a, const struct tb_live_sum *b);
/* Of one range. `kind` says which digest. */
struct tb_live_sum tb_live_sum_bytes(bool kind, const void *bytes, uint64_t count);

/* Where the pieces stand: `memory` has the address of each tensor. */
struct tb_live_bytes {
    uint8_t *const *memory;
    struct tb_gpu_memory *gpu; /* NULL: all of it is host memory */
    const struct tb_live_piece *pieces;
    uint32_t count;
    uint64_t bytes; /* of all pieces */
    /* Called after each stride of host memory, but for the last. False: stop. NULL: nothing. */
    bool (*between)(void *user);
    void *user;
};
/* Of all pieces, one behind the other. TB_SITE_NOMEM; TB_SITE_IO: see gpu.failed; TB_CANCELLED:
 * `between` said so. */
TB_MUST_USE enum tb_status tb_live_sum_pieces(const struct tb_live_bytes *from, bool kind,
                                              struct tb_live_sum *sum_out);

#endif

/* tensor_spread.h - packed bytes of a shard as they stand in somebody's tensors,
 * stretch by stretch. Pure.
 *
 * Threads: any; nothing is kept. */
#ifndef TB_INTRA_SPREAD_H
#define TB_INTRA_SPREAD_H

#include "base/layout/manifest.h"

/* A tensor whose bytes stand in runs, one a stride. Dense: run is all of it. */
struct tb_spread_rows {
    uint64_t run, stride;
};

struct tb_spread {
    const struct tb_layout *layout;
    uint8_t *const *tensors;           /* where each stands, in packed order; NULL for one that is not here */
    const struct tb_spread_rows *rows; /* of each; NULL: all are dense */
    uint8_t *blobs;                    /* all, one behind the other; NULL when there are none */
};

/* One contiguous piece of packed bytes. */
struct tb_stretch {
    uint8_t *at; /* NULL: its tensor is not here */
    uint64_t bytes;
};

/* The stretch that begins at packed `offset`, at most `most` bytes of it. *tensor_io: where the one
 * before was, at first tb_layout_tensor_at. */
struct tb_stretch tb_spread_at(const struct tb_spread *s, uint64_t offset, uint64_t most,
                               uint32_t *tensor_io);

/* The same, and where that is a whole run, the whole runs behind it: one call of a device copies
 * them. */
struct tb_stretch_rows {
    uint8_t *at;
    uint64_t bytes; /* of one */
    uint64_t rows;  /* at least 1 */
    uint64_t stride;
};
struct tb_stretch_rows tb_spread_rows_at(const struct tb_spread *s, uint64_t offset, uint64_t most,
                                         uint32_t *tensor_io);

/* Whether all of the chunk stands in tensors that are here. */
bool tb_spread_covers(const struct tb_spread *s, const struct tb_chunk *chunk);
/* The chunk as one range: where it stands, if that is one piece, else gathered into room.
 * Covered chunks only. */
const uint8_t *tb_spread_gather(const struct tb_spread *s, const struct tb_chunk *chunk, uint8_t *room);
/* From one range to where it stands; what is not here is left out. The bytes that were written. */
uint64_t tb_spread_scatter(const struct tb_spread *s, const struct tb_chunk *chunk, const uint8_t *from);
/* Of what stands there now. Covered chunks only. */
struct tb_digest tb_spread_digest(const struct tb_spread *s, const struct tb_chunk *chunk);

#endif

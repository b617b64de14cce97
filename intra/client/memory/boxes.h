/* boxes.h - where the boxes that a reader wants stand in the boxes that a version's shards have.
 * Pure, but for the list it makes.
 *
 * A wanted box may be covered by one shard's box or by several side by side; where shards have the
 * same bytes, the first has them. The result is a list of copies of rows: from packed bytes of a
 * shard to the dense, row-major memory of a wanted box. */
#ifndef TB_INTRA_CLIENT_BOXES_H
#define TB_INTRA_CLIENT_BOXES_H

#include "base/layout/layout.h"

/* rows x run bytes, the strides apart. */
struct tb_box_copy {
    uint32_t want; /* index */
    uint32_t shard;
    uint64_t rows, run;
    uint64_t from, from_stride; /* in the shard's packed bytes */
    uint64_t to, to_stride;     /* from the beginning of the wanted box */
};

struct tb_box_copies {
    struct tb_box_copy *list; /* to be freed with tb_free */
    uint32_t count;
    uint32_t cap;
    uint64_t bytes;
};

struct tb_box_question {
    const struct tb_layout *const *layouts; /* of the shards */
    uint32_t shard_count;
    const struct tb_tensor *wants; /* name, dtype, rank, full, box, bytes */
    uint32_t want_count;
};

/* TB_LAYOUT_MISMATCH: *missing_out is a want that the version has not, or not all of, or in another
 * shape. TB_SITE_NOMEM. TB_TOO_LARGE: it falls into more pieces than there is any use in. Free the
 * list whatever is answered. */
TB_MUST_USE enum tb_status tb_boxes_match(const struct tb_box_question *q, struct tb_box_copies *copies_out,
                                          uint32_t *missing_out);

/* Sets the bits of the chunks that the shard's copies touch. `wanted` is large enough. */
void tb_boxes_chunks(const struct tb_box_copies *copies, uint32_t shard, const struct tb_chunk *chunks,
                     uint32_t chunk_count, uint64_t *wanted);

#endif

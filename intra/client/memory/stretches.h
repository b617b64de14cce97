/* stretches.h - the caller's memory in as few pieces as it stands in. Pure, but for the lists it
 * makes.
 *
 * Engines keep a shard's tensors in a few flat buffers, one right behind the other. Each stretch is
 * exported, attached and registered with NICs once. Without stretches that would be done for each
 * of 100,000 tensors. Tensors' order does not matter, only their addresses.
 *
 * P8: a stretch has no byte that is in none of its pieces. Bytes between two tensors were not
 * published, even those that only align them, so such tensors are two stretches. */
#ifndef TB_INTRA_CLIENT_STRETCHES_H
#define TB_INTRA_CLIENT_STRETCHES_H

#include "intra/tensor_spread.h"

#define TB_STRETCH_NONE UINT32_MAX

struct tb_stretches {
    struct tb_stretch *list; /* ascending; none touches the next */
    uint32_t count;
    /* of each piece: the index of the stretch that has all of it; TB_STRETCH_NONE: it is
     * empty */
    uint32_t *of;
};

/* Joins pieces that touch or overlap; empty ones are in no stretch. n log n. TB_SITE_NOMEM:
 * *stretches_out is untouched. */
TB_MUST_USE enum tb_status tb_stretches_make(const struct tb_stretch *pieces, uint32_t count,
                                             struct tb_stretches *stretches_out);
void tb_stretches_free(struct tb_stretches *stretches); /* it is zero then; a zeroed one is fine */

#endif

/* slice_parts.h - under which numbers the boxes of one name stand in a shard's layout. Pure, but
 * for a list it makes.
 *
 * A layout has a name once for each part (layout.h). Of a name that is listed once the parts are
 * those of its split, and no others. Where several boxes of a name are listed (q, k and v of a
 * fused tensor, experts by number), their pieces have numbers above all those: pieces that are cut
 * alike, of whatever names, have one number, since who wants the one wants the other, and stand in
 * no chunk with what is cut in another way. Numbers follow from the boxes, not from the order in
 * which they are listed. */
#ifndef TB_INTRA_CLIENT_SLICE_PARTS_H
#define TB_INTRA_CLIENT_SLICE_PARTS_H

#include "base/layout/layout.h"
#include "base/layout/tensor.h"

enum tb_slice_parts_fault {
    TB_SLICE_PARTS_FINE = 0,
    /* slices[0] and slices[1], of one name, in dtype or in shape of the whole tensor */
    TB_SLICE_PARTS_DIFFER,
    /* slices[0] and slices[1], of one name, have elements in common, or are the same */
    TB_SLICE_PARTS_OVERLAP,
    TB_SLICE_PARTS_TOO_MANY /* pieces of the name of slices[0]: more than there are numbers */
};

struct tb_slice_parts {
    struct tb_tensor *tensors; /* pieces; part: of the slice's split, 0 where it is not split */
    const uint32_t *slice_of;  /* of each: which of the listed slices it is of */
    uint32_t count;
    /* Why they make no layout. */
    enum tb_slice_parts_fault fault;
    uint32_t slices[2];
};

/* Gives each piece of a name with several boxes its part. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_slice_parts_number(struct tb_slice_parts *p);

#endif

/* tensor.h - one tensor of a layout: its name, dtype, shape and box. Pure. */
#ifndef TB_BASE_TENSOR_H
#define TB_BASE_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/layout/dtype.h"
#include "tombolo/status.h"

#define TB_TENSOR_NAME_MAX 512 /* bytes, without the NUL */
#define TB_RANK_MAX        8   /* dimensions */

/* One tensor. full: its shape in the model; box: what of it is here, [first, first + count) an
 * axis. A layout of whole tensors has box_first all 0 and box_count equal to full. part: a tensor
 * that readers split along an axis stands as several boxes of one name, 1 + p where the p-th
 * reader's are, and those of all tensors that one reader wants stand together: chunks are cut
 * there. So do several boxes that a publisher has of a name, under numbers of their own
 * (intra/client/memory/slice_parts.h). 0: readers take it whole; at most TB_PARTS_MAX. */
struct tb_tensor {
    const char *name; /* canonical; UTF-8, 1 to TB_TENSOR_NAME_MAX bytes, no NUL, no control characters */
    enum tb_dtype dtype;
    uint8_t rank;
    uint16_t part;
    struct tb_dtype_other other; /* zero, unless dtype is TB_DTYPE_OTHER */
    uint64_t full[TB_RANK_MAX];
    uint64_t box_first[TB_RANK_MAX];
    uint64_t box_count[TB_RANK_MAX];
    /* product of box_count x bits, in whole bytes rounded up; filled by
     * tb_layout_build and decode */
    uint64_t bytes;
    uint64_t offset; /* in packed bytes; filled likewise */
};

/* "BF16", "F4", or "NAME:BITS" for a dtype that is not known here, into t->dtype and t->other.
 * False: the name is unknown and has no bits, is known with other bits, or is not one that
 * TB_DTYPE_NAME_MAX allows; t is untouched. */
bool tb_tensor_set_dtype(struct tb_tensor *t, const char *text);
const char *tb_tensor_dtype_name(const struct tb_tensor *t); /* without bits */
uint32_t tb_tensor_bits(const struct tb_tensor *t);          /* of one element; 0 for an unknown dtype */
bool tb_tensor_dtype_equal(const struct tb_tensor *a, const struct tb_tensor *b);
/* Packed order without part and name: larger units first, then dtype number, then the other dtypes
 * by name and bits. */
int tb_tensor_dtype_compare(const struct tb_tensor *a, const struct tb_tensor *b);
/* The dtype whose codecs take its elements. */
enum tb_dtype tb_tensor_codec_dtype(const struct tb_tensor *t);
/* Checks all but the name and says the bytes. TB_BAD_ARGUMENT; TB_TOO_LARGE past
 * TB_SHARD_BYTES_MAX. */
TB_MUST_USE enum tb_status tb_tensor_measure(const struct tb_tensor *t, uint64_t *bytes_out);
/* Of a dtype with fractions of a byte: the box begins and ends on whole bytes in every row of the
 * full tensor, or is all of it. Rows are those of the last axis: its length, first and count each
 * take whole bytes. Others: true. */
bool tb_tensor_box_on_bytes(const struct tb_tensor *t);

#endif

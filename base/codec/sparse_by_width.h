/* sparse_by_width.h - changes looked for by the width of elements, for a variant that has
 * changed_width, which the compiler lays out for each. Included by its file behind it. */
#ifndef TB_BASE_SPARSE_BY_WIDTH_H
#define TB_BASE_SPARSE_BY_WIDTH_H

#include "base/codec/sparse_kernels.h"

static void changed(struct tb_sparse_pair pair, size_t words, uint64_t *out)
{
    if (pair.width == 1)
        changed_width(pair, 1, words, out);
    else if (pair.width == 2)
        changed_width(pair, 2, words, out);
    else
        changed_width(pair, 4, words, out);
}

#endif

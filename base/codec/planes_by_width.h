/* planes_by_width.h - elements taken apart and put together again by their width, for a variant
 * that has split_bytes, split_pairs, split_quads and join_* of PLANES_STEP elements. Included by
 * its file behind them. */
#ifndef TB_BASE_PLANES_BY_WIDTH_H
#define TB_BASE_PLANES_BY_WIDTH_H

#include "base/codec/planes_kernels.h"

_Static_assert(TB_CASCADE_GROUP % PLANES_STEP == 0, "a group has whole steps");

static void split(const uint8_t *elements, unsigned width, size_t groups, struct tb_planes_apart to)
{
    for (size_t i = 0; i < TB_CASCADE_GROUP * groups; i += PLANES_STEP) {
        if (width == 1)
            split_bytes(elements + i, to.hot + i);
        else if (width == 2)
            split_pairs(elements + 2 * i, to.hot + i, to.rest + i);
        else
            split_quads(elements + 4 * i, to.hot + i, to.rest + i, to.stride);
    }
}

static void join(struct tb_planes_apart from, unsigned width, size_t groups, uint8_t *out)
{
    for (size_t i = 0; i < TB_CASCADE_GROUP * groups; i += PLANES_STEP) {
        if (width == 1)
            join_bytes(from.hot + i, out + i);
        else if (width == 2)
            join_pairs(from.hot + i, from.rest + i, out + 2 * i);
        else
            join_quads(from.hot + i, from.rest + i, from.stride, out + 4 * i);
    }
}

#endif

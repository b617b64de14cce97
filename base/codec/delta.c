#include "base/codec/delta.h"

#include <string.h>

#include "base/assert.h"
#include "base/codec/planes_kernels.h"

bool tb_delta_width_valid(unsigned width)
{
    return width == 1 || width == 2 || width == 4 || width == 8;
}

void tb_delta_take(struct tb_delta d, const uint8_t *bytes, const uint8_t *base, size_t count, uint8_t *out)
{
    TB_ASSERT(tb_delta_width_valid(d.width));
    const size_t tail = count % d.width;
    tb_planes_kernels(d.vector)->subtract(bytes, base, d.width, count - tail, out);
    if (tail > 0) memcpy(out + count - tail, bytes + count - tail, tail);
}

void tb_delta_undo(struct tb_delta d, uint8_t *bytes, const uint8_t *base, size_t count)
{
    TB_ASSERT(tb_delta_width_valid(d.width));
    tb_planes_kernels(d.vector)->add(bytes, base, d.width, count - count % d.width);
}

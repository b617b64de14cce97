/* delta.h - the delta to a base as a transform: each element less the base's, as integers
 * modulo their width, never as floats. Exact whatever the bits mean. Pure. */
#ifndef TB_BASE_DELTA_H
#define TB_BASE_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vector.h"

/* 1, 2, 4 and 8 bytes an element. */
bool tb_delta_width_valid(unsigned width);

struct tb_delta {
    enum tb_vector vector;
    unsigned width; /* a valid one */
};

/* `count` bytes of each. Those behind the last whole element stay as they are in `bytes`. */
void tb_delta_take(struct tb_delta d, const uint8_t *bytes, const uint8_t *base, size_t count, uint8_t *out);
/* Back, in place: `bytes` are differences before and the version after. */
void tb_delta_undo(struct tb_delta d, uint8_t *bytes, const uint8_t *base, size_t count);

#endif

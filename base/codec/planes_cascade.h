/* planes_cascade.h - which frequent keys a section's cascade has, and at which level. Pure.
 * Inside planes*.c only. */
#ifndef TB_BASE_PLANES_CASCADE_H
#define TB_BASE_PLANES_CASCADE_H

#include "base/codec/planes_kernels.h"

#define TB_CASCADE_KEYS_MAX (3 * TB_CASCADE_LEVELS_MAX)

/* Keys by how often they were seen, the most frequent first. */
struct tb_frequent {
    uint8_t key[TB_CASCADE_KEYS_MAX];
    uint32_t seen[TB_CASCADE_KEYS_MAX];
    uint32_t all;
};

/* Keys of hot bytes, of which so many were seen each. */
struct tb_frequent tb_frequent_of(const uint32_t *by_hot, unsigned raw_bits);
/* The levels that take the fewest bits, where one more level has to save one bit in 64: it costs
 * time in both directions. No level at all: literals are hot bytes whole. */
void tb_cascade_choose(const struct tb_frequent *f, unsigned raw_bits, struct tb_cascade *c);
/* With `keys` level after level, as they are on the wire. */
void tb_cascade_fill(struct tb_cascade *c, const uint8_t *keys);
/* To write by: where a level has a key twice (fewer were seen than it has places), it is the
 * earlier one's, as in `index`. Kernels compare with all three and take that none is both the
 * second and the third. */
void tb_cascade_single(struct tb_cascade *c);
/* Of all levels, as they are on the wire. */
size_t tb_cascade_keys(const struct tb_cascade *c);

#endif

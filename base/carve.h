/* carve.h - takes 16-byte aligned pieces, in turn, from one block of memory that the caller gave.
 * Pure. */
#ifndef TB_BASE_CARVE_H
#define TB_BASE_CARVE_H

#include <stddef.h>
#include <stdint.h>

struct tb_carve {
    uint8_t *at;
    size_t left; /* bytes */
};

static inline size_t tb_carve_bytes(size_t bytes)
{
    return (bytes + 15u) & ~(size_t)15u;
}

/* NULL when there is not that much. Sizes are rounded up to 16, so a block of the sum of
 * tb_carve_bytes suffices. */
static inline void *tb_carve_take(struct tb_carve *c, size_t bytes)
{
    const size_t rounded = tb_carve_bytes(bytes);
    if (rounded < bytes || rounded > c->left) return NULL;
    uint8_t *piece = c->at;
    c->at += rounded;
    c->left -= rounded;
    return piece;
}

#endif

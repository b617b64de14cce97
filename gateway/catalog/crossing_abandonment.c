/* crossing_abandonment.c - one comparison, and what it promised. Pure. */
#include "gateway/catalog/crossing_abandonment.h"

/* Sooner by less than an eighth is within the error of any estimate. */
static bool clearly_less(uint64_t a, uint64_t b)
{
    return a < b - b / 8;
}

bool tb_abandon_ask(struct tb_abandon *a, const struct tb_abandon_view *v)
{
    if (!clearly_less(v->newer_bytes, v->left_bytes)) return false;
    if (a->promised && !clearly_less(v->newer_bytes, a->left_bytes)) return false;
    a->promised = true;
    a->left_bytes = v->newer_bytes;
    return true;
}

void tb_abandon_came(struct tb_abandon *a, uint64_t wire_bytes)
{
    a->left_bytes = a->left_bytes > wire_bytes ? a->left_bytes - wire_bytes : 0;
}

void tb_abandon_whole(struct tb_abandon *a)
{
    a->promised = false;
}

/* crossing_abandonment.h - may a crossing that has begun be given up for a newer version? Pure.
 *
 * Only if the newer version, with what is held here as base, will be whole sooner. Over one link
 * that means: clearly fewer bytes have to come.
 *
 * Estimates are wrong, and a trainer that is faster than the link must not keep a site from ever
 * having a version (P6). So the bytes that were to come when a crossing was given up are kept as a
 * promise, which shrinks by each byte that comes. The next crossing is given up only for fewer
 * bytes than the promise, too. Each promise is smaller by an eighth at least, so this ends.
 *
 * Kept by tests/unit/catalog/abandon.c, tests/scenario/policy.c. */
#ifndef TB_GATEWAY_CATALOG_CROSSING_ABANDONMENT_H
#define TB_GATEWAY_CATALOG_CROSSING_ABANDONMENT_H

#include <stdbool.h>
#include <stdint.h>

struct tb_abandon {
    bool promised;       /* a crossing was given up since a version was whole here last */
    uint64_t left_bytes; /* with promised: what is still to come, as it was estimated then */
};

/* Wire bytes, as the owner estimates them. */
struct tb_abandon_view {
    uint64_t left_bytes;  /* of the crossing: what has not come */
    uint64_t newer_bytes; /* of the newer: all that has to come, given what is held here */
};

/* True: give it up, and cross the newer. The promise is kept here. */
bool tb_abandon_ask(struct tb_abandon *a, const struct tb_abandon_view *view);
void tb_abandon_came(struct tb_abandon *a, uint64_t wire_bytes); /* of whatever crosses now */
void tb_abandon_whole(struct tb_abandon *a);                     /* a version became whole: a new beginning */

#endif

/* feed_landings.h - the numbers of crossings that land here, and the places of each.
 *
 * Threads: any, but for what is marked. */
#ifndef TB_WAN_FEED_LANDINGS_H
#define TB_WAN_FEED_LANDINGS_H

#include "wan/send/feed.h"

#define TB_FEED_LANDINGS_MAX 16u
#define TB_FEED_EXPECTED_MAX 16u

struct tb_feed_landing {
    uint32_t crossing; /* 0: empty */
    bool on_base;      /* the peer was told a base, which may be gone since */
    bool foreign;      /* its chunks have to fit their proofs (base/layout/place.h) */
    struct tb_shared_places *share;
    struct tb_shared_places *base; /* NULL: none, or gone; the main loop keeps it alive */
    bool expected; /* of an answer: it lands nowhere yet, and the main loop is to say whether it does */
};

/* Main loop. A number above all before, whose chunks may come before it is known where they land:
 * streams wait with them until then. 0: no room. */
uint32_t tb_feed_expect(struct tb_feed *f);
/* Main loop. Chunks that wait for it are dropped (0: for all). The caller tells the streams
 * (tb_links_heed). */
void tb_feed_unexpect(struct tb_feed *f, uint32_t crossing);
/* Main loop. Gives the landing a number above all before, or that one, which was expected; 0: no
 * room. Of `landing`: share, base or NULL, foreign. */
uint32_t tb_feed_landing_add(struct tb_feed *f, uint32_t expected, const struct tb_feed_landing *landing);
void tb_feed_landing_remove(struct tb_feed *f, uint32_t crossing);
/* Main loop. The number was given to a landing, or is expected, some time. */
bool tb_feed_landing_issued(struct tb_feed *f, uint32_t crossing);
/* Streams. Share and base of a crossing number, referenced where they are not NULL. False: that
 * number was never given. */
bool tb_feed_landing(struct tb_feed *f, uint32_t crossing, struct tb_feed_landing *out);

#endif

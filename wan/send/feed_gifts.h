/* feed_gifts.h - chunks that came by a second way while a slower stream has the claim.
 *
 * Threads: any, but for what is marked. */
#ifndef TB_WAN_FEED_GIFTS_H
#define TB_WAN_FEED_GIFTS_H

#include "wan/send/feed.h"

#define TB_FEED_GIFTS_MAX 4u

/* A chunk that came by a second way, with the right digest, while a slower stream is in the middle
 * of it and has the claim. The stream that has the claim, or gets it, finishes the chunk with
 * these bytes. */
struct tb_gift {
    struct tb_shared_places *share; /* referenced */
    uint32_t shard, chunk;
    uint8_t *bytes; /* as large as the chunk; tb_free */
    bool fresh;     /* the loops were not told yet */
};

/* Main loop. Finishes gifts whose chunk nobody has claimed any more, and forgets those
 * that are held or whose places were taken back. True: new ones wait for the streams
 * that have the claims. */
bool tb_feed_gifts_settle(struct tb_feed *f);
void tb_feed_gifts_drop(struct tb_feed *f); /* main loop: no stream is left */

/* Streams. Takes the gift with its reference and its bytes. False: full, or the chunk has one;
 * both stay the caller's. */
bool tb_feed_gift(struct tb_feed *f, const struct tb_gift *gift);
/* Streams. The stream that has the claim of a chunk takes the bytes that were left for it; NULL:
 * there are none. tb_free. */
uint8_t *tb_feed_gift_take(struct tb_feed *f, const struct tb_shared_places *share, uint32_t shard,
                           uint32_t chunk);

#endif

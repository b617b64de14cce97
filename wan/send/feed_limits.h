/* feed_limits.h - what an operator allows a link to send: a rate, and the bytes of a day.
 *
 * Threads: any, but for what is marked. */
#ifndef TB_WAN_FEED_LIMITS_H
#define TB_WAN_FEED_LIMITS_H

#include "wan/send/feed.h"
#include "wan/send/rate_cap.h"

/* Main loop. The most that all streams of the link send together, 0: no limit. */
void tb_feed_cap(struct tb_feed *f, uint64_t bytes_per_s);
bool tb_feed_capped(const struct tb_feed *f);
/* Streams. How much of `want` may go as one piece, and from when on. */
uint32_t tb_feed_piece(struct tb_feed *f, uint32_t want, const struct tb_cap_price *price,
                       tb_time_ns *at_out);
/* Main loop. Frames begin until so many bytes of them were sent since ever, and none that would go
 * over it; UINT64_MAX: no end. */
void tb_feed_until(struct tb_feed *f, uint64_t bytes);
/* Streams. May a frame of so many bytes begin? It counts then. False: the next may not
 * either (tb_feed_spent). */
bool tb_feed_spend(struct tb_feed *f, uint64_t bytes);
void tb_feed_unspend(struct tb_feed *f, uint64_t bytes); /* of a frame that was begun, and will not be sent */
/* Any. There is no room for the frame that waits (*short_bytes_out), or none at all (0): nothing
 * begins before tb_feed_until allows more. `short_bytes_out` or NULL. */
bool tb_feed_spent(struct tb_feed *f, uint64_t *short_bytes_out);
/* Streams. Bytes that TCP sent again. */
void tb_feed_charge(struct tb_feed *f, uint64_t bytes);

#endif

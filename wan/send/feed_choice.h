/* feed_choice.h - in which form a chunk goes: codec_choice.h under the lock of the feed.
 *
 * Threads: any, but for what is marked. */
#ifndef TB_WAN_FEED_CHOICE_H
#define TB_WAN_FEED_CHOICE_H

#include "wan/send/feed.h"

#define TB_FEED_SLOTS_MAX 64u /* streams of a link */

/* The bytes that a stream's connection carried lately. */
struct tb_feed_slot {
    tb_time_ns at;   /* when that was seen */
    tb_time_ns time; /* since it was seen before */
    tb_time_ns busy; /* of it, something was to be sent or acknowledged */
    uint64_t acked_bytes;
    bool full; /* it took no more: the link was the limit, not the writer */
};

/* Main loop, before a stream sends: what the machine's codecs do. */
void tb_feed_seed(struct tb_feed *f, const struct tb_choice_speed speeds[TB_WAYS]);
/* Any: codec_choice.h under the lock. */
enum tb_choice_way tb_feed_pick(struct tb_feed *f, const struct tb_choice_ask *ask);
bool tb_feed_takes(struct tb_feed *f, const struct tb_choice_made *made);
bool tb_feed_chains(struct tb_feed *f, const struct tb_choice_made *joined, unsigned steps);
void tb_feed_learn(struct tb_feed *f, const struct tb_choice_sample *sample);
void tb_feed_choice(struct tb_feed *f, struct tb_choice *choice_out);
/* Streams. All of them together say what the link carries while it is busy. */
void tb_feed_carry(struct tb_feed *f, uint32_t slot, const struct tb_feed_slot *carried);

#endif

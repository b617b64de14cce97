/* feed_inside.h - the lock of a feed and the tables behind it. Private to feed.c and feed_*.c.
 *
 * Each field belongs to the file that its comment names. Functions whose names end with `locked`
 * are called under the lock. */
#ifndef TB_WAN_FEED_INSIDE_H
#define TB_WAN_FEED_INSIDE_H

#include <uv.h>

#include "wan/send/feed.h"
#include "wan/send/feed_choice.h"
#include "wan/send/feed_gifts.h"
#include "wan/send/feed_landings.h"
#include "wan/send/feed_limits.h"
#include "wan/send/feed_parcels.h"

struct tb_feed {
    uv_mutex_t lock;
    /* feed_parcels.c */
    uint64_t session; /* whose streams may pop; 0: none */
    uint64_t slots;   /* of them, these */
    uint32_t ready_first, ready_count;
    struct tb_feed_parcel ready[TB_FEED_READY_MAX];
    uint32_t taken_count;
    struct tb_feed_taken taken[TB_FEED_TAKEN_MAX];
    /* feed.c */
    uint32_t note_count;
    struct tb_note notes[TB_FEED_NOTES_MAX];
    /* feed_landings.c */
    struct tb_feed_landing landings[TB_FEED_LANDINGS_MAX];
    uint32_t expected[TB_FEED_EXPECTED_MAX]; /* crossings that the peer may begin unasked; 0: none */
    uint32_t issued;                         /* the highest crossing number ever given to a landing here */
    /* feed_gifts.c */
    atomic_uint gift_count; /* written under the lock */
    struct tb_gift gifts[TB_FEED_GIFTS_MAX];
    /* feed_choice.c */
    struct tb_choice choice;
    struct tb_feed_slot slots_carried[TB_FEED_SLOTS_MAX];
    tb_time_ns carried_at;
    bool carried_full;
    /* feed_rate_cap.c */
    struct tb_cap cap;
    atomic_bool capped; /* cap has a limit: else streams need not ask */
    /* feed_day_budget.c */
    uint64_t until_bytes; /* of frames, begun since ever; UINT64_MAX: no end */
    uint64_t begun_bytes;
    uint64_t short_bytes; /* the least frame that was over it; 0: none was */
};

/* feed_parcels.c: no stream takes a parcel of an earlier session. */
void tb_feed_parcels_session_locked(struct tb_feed *f, uint64_t session);
/* No parcel that waits goes as deltas to `base` any more. */
void tb_feed_parcels_base_gone_locked(struct tb_feed *f, struct tb_shared_places *base);
/* feed_landings.c: no landing has `base` any more. */
void tb_feed_landings_base_gone_locked(struct tb_feed *f, const struct tb_shared_places *base);
/* feed_choice.c */
void tb_feed_choice_protocol_locked(struct tb_feed *f, uint32_t protocol);
void tb_feed_choice_cap_locked(struct tb_feed *f, uint64_t bytes_per_s);

/* Each asserts what holds of its table. */
void tb_feed_parcels_check_locked(struct tb_feed *f);
void tb_feed_landings_check_locked(const struct tb_feed *f);
void tb_feed_gifts_check_locked(const struct tb_feed *f);
void tb_feed_limits_check_locked(const struct tb_feed *f);

#endif

/* feed_parcels.h - parcels of a feed that wait for a stream, and those that a stream took.
 *
 * Threads: any, but for what is marked. */
#ifndef TB_WAN_FEED_PARCELS_H
#define TB_WAN_FEED_PARCELS_H

#include <stdatomic.h>

#include "wan/send/feed.h"
#include "wan/send/outbound.h"
#include "wan/send/outbound_parcels.h"

#define TB_FEED_READY_MAX 64u
#define TB_FEED_TAKEN_MAX 128u

struct tb_feed_parcel {
    struct tb_shared_places *share; /* referenced */
    struct tb_shared_places *base;  /* referenced: its chunks may be deltas to it; NULL: they are not */
    uint32_t crossing;
    struct tb_parcel parcel;
    bool again;     /* it is on its way already, and late (hedge.h) */
    uint64_t avoid; /* slots that had better not take it, a bit for each */
};

struct tb_feed_taken {
    uint32_t crossing;
    uint32_t slot;
    bool again;
    struct tb_parcel parcel;
};

/* Main loop. Takes the references of parcel->share and parcel->base with it; what goes again
 * goes first. False: full. */
bool tb_feed_push(struct tb_feed *f, const struct tb_feed_parcel *parcel);
uint32_t tb_feed_ready(struct tb_feed *f);
/* Main loop. Takes back all parcels of a crossing (0: of all) that no stream took. */
void tb_feed_purge(struct tb_feed *f, uint32_t crossing);
/* Main loop. Takes back parcels that were to go again and that the peer holds by now. */
void tb_feed_purge_held(struct tb_feed *f, uint32_t crossing, const struct tb_outbound *c);
/* Main loop. Takes back the parcel that was to go again and has this chunk. False: none waits. */
bool tb_feed_recall(struct tb_feed *f, const struct tb_frame_refused *refused, struct tb_parcel *parcel_out);
/* Main loop. Takes back one parcel of the crossing that no stream took; *parcel_out has no
 * references. False: none waits. */
bool tb_feed_take_back(struct tb_feed *f, uint32_t crossing, struct tb_feed_parcel *parcel_out);
/* Main loop. Only these slots take parcels from now on, a bit for each; one that avoids them all
 * avoids none. True: some slot that found nothing may find something now. */
bool tb_feed_use(struct tb_feed *f, uint64_t slots);
/* Main loop. Empties a table into the caller's, which has TB_FEED_TAKEN_MAX,
 * TB_FEED_NOTES_MAX entries; how many. */
uint32_t tb_feed_collect_taken(struct tb_feed *f, struct tb_feed_taken *out);
/* Streams. TB_OK: *out is theirs, with its reference; TB_AGAIN: nothing there now for this slot;
 * `hungry` was set under the lock. */
TB_MUST_USE enum tb_status tb_feed_pop(struct tb_feed *f, uint64_t session, uint32_t slot,
                                       atomic_bool *hungry, struct tb_feed_parcel *out);

#endif

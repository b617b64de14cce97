/* hedge.h - which parcels are late on their stream, and may go again on another.
 *
 * Pure. A parcel is on its way from the moment a stream took it until the peer says that it holds
 * it. Most take about as long as each other, so the median of the last ones says how long is
 * usual. Deltas and whole chunks have a median each, for deltas are a sixtieth of whole chunks on
 * the wire. Late is
 *
 *   near the end (nothing is left to send): a parcel that took over twice the usual time, or is
 *     on a stream whose parcels do;
 *   before it: a parcel on a stream from which nothing came for four times the usual time and
 *     250 ms. Not all that is late there: a stream at a tenth of its rate still carries a tenth.
 *
 * A late parcel goes again once, if some other stream brought something after this one was taken.
 * Else the link stands still, and nothing helps.
 *
 * The bytes that go again are at most `permille` of those that the crossing sent of that kind. One
 * parcel more may go again, where crossings before it left as much unused: a small version hedges
 * its last parcel, and after a terabyte nobody sends a version twice. The receiver drops the copy
 * that comes second.
 *
 * Promise P6: one slow stream does not hold up the rest. Kept by tests/unit/wan/hedge.c,
 * tests/fault/hedge_events.c and tests/scenario/slow_stream.c. */
#ifndef TB_WAN_HEDGE_H
#define TB_WAN_HEDGE_H

#include "base/time.h"
#include "wan/send/outbound.h"
#include "wan/send/outbound_parcels.h"

#define TB_HEDGE_PERMILLE 20u /* of the bytes sent, if not said otherwise */
/* parcels watched; 190 MB of them are 10 Gbit/s for 150 ms. More are not hedged */
#define TB_HEDGE_WAYS_MAX      1024u
#define TB_HEDGE_TIMES_MAX     32u /* of the last parcels, for their median */
#define TB_HEDGE_SLOTS_MAX     64u
#define TB_HEDGE_CROSSINGS_MAX 16u /* that send at once; of more nothing is hedged */

struct tb_hedge_way {
    tb_time_ns taken_at;
    uint32_t crossing;
    struct tb_parcel parcel;
    uint32_t left; /* chunks that the peer does not hold yet */
    uint8_t slot;
    bool again;   /* it went again, or is the second way itself */
    bool on_base; /* of a crossing on a base, and not plain */
};

struct tb_hedge_slot {
    tb_time_ns moved_at;     /* something it carried came to be held; 0: never */
    tb_time_ns parcel_ns[2]; /* how long its parcels take, smoothed; 0: not known; [1] of those on a base */
};

/* The times of the last parcels of one kind. */
struct tb_hedge_kind {
    uint64_t left_millibytes; /* that crossings which are over did not use: for one parcel */
    uint32_t time_count, time_at;
    tb_time_ns times[TB_HEDGE_TIMES_MAX];
};

/* The bytes that a crossing may send again, by those that it sent. */
struct tb_hedge_credit {
    uint32_t crossing;      /* 0: free */
    uint64_t millibytes[2]; /* [1]: on a base */
};

struct tb_hedge {
    uint32_t permille;
    struct tb_hedge_kind kinds[2]; /* [1]: on a base */
    struct tb_hedge_credit credits[TB_HEDGE_CROSSINGS_MAX];
    struct tb_hedge_slot slots[TB_HEDGE_SLOTS_MAX];
    uint32_t way_count;
    struct tb_hedge_way ways[TB_HEDGE_WAYS_MAX];
};

/* A parcel that goes again: its part that the peer does not hold, and the slots that had better
 * not take it. */
struct tb_hedge_again {
    struct tb_parcel parcel;
    uint64_t avoid; /* a bit for each slot */
};

void tb_hedge_init(struct tb_hedge *h, uint32_t permille);
/* Asserts what holds of the tables between two calls. */
void tb_hedge_check(const struct tb_hedge *h);
/* A stream took a parcel; `again`: one that tb_hedge_next gave. Chunks of it that the peer already
 * holds are not counted as on their way. */
void tb_hedge_taken(struct tb_hedge *h, tb_time_ns now, const struct tb_hedge_way *way,
                    const struct tb_outbound *c);
/* HELD came for this crossing. */
void tb_hedge_held(struct tb_hedge *h, tb_time_ns now, uint32_t crossing, const struct tb_outbound *c);
/* START came, and what went before it may have waited there for that: its time begins now. */
void tb_hedge_started(struct tb_hedge *h, tb_time_ns now, uint32_t crossing);
/* That chunk did not land: no way of it counts any more. The other chunks of its parcels are still
 * on their way. */
void tb_hedge_refused(struct tb_hedge *h, const struct tb_frame_refused *refused,
                      const struct tb_outbound *c);
/* A parcel that tb_hedge_next gave was taken back from the queue: it has its first way
 * alone, and may go again. */
void tb_hedge_unqueued(struct tb_hedge *h, uint32_t crossing, const struct tb_parcel *parcel);
/* The crossing is over; 0: all are. */
void tb_hedge_over(struct tb_hedge *h, uint32_t crossing);
/* The stream is gone. The crossing gives its chunks back, and the slot belongs to another stream
 * from now on. */
void tb_hedge_stream_gone(struct tb_hedge *h, uint32_t slot);
/* The next late parcel of the crossing; it counts as sent again. False: none, or no
 * bytes are left for it. */
bool tb_hedge_next(struct tb_hedge *h, tb_time_ns now, uint32_t crossing, const struct tb_outbound *c,
                   struct tb_hedge_again *again_out);
/* How long a parcel of that kind usually takes; 0: not known yet. */
tb_time_ns tb_hedge_usual(const struct tb_hedge_kind *k);

#endif

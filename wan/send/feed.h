/* feed.h - what the main loop and the stream loops of one link share: parcels to send,
 * parcels taken, chunks that came wrong, and which crossing number lands where. A shell, but
 * it only locks and counts.
 *
 * "One queue a link; whichever stream can send takes the next parcel": the main loop fills `ready`
 * from the crossing cores, a stream pops from it, and what it popped is written into `taken` under
 * the same lock, so the main loop knows before any byte leaves which stream a chunk is on. All
 * tables are fixed: nothing is allocated per parcel.
 *
 * Threads: any, but for what is marked. */
#ifndef TB_WAN_FEED_H
#define TB_WAN_FEED_H

#include <stdatomic.h>

#include "wan/send/codec_choice.h"
#include "wan/send/inbound.h"
#include "wan/send/rate_cap.h"
#include "wan/send/shared_places.h"

#define TB_FEED_READY_MAX    64u
#define TB_FEED_TAKEN_MAX    128u
#define TB_FEED_NOTES_MAX    1024u
#define TB_FEED_LANDINGS_MAX 16u
#define TB_FEED_GIFTS_MAX    4u
#define TB_FEED_EXPECTED_MAX 16u
#define TB_FEED_SLOTS_MAX    64u /* streams of a link */

struct tb_feed_parcel {
    struct tb_shared_places *share; /* referenced */
    struct tb_shared_places *base;  /* referenced: what its chunks may be differences to; NULL: nothing */
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

enum tb_note_kind {
    TB_NOTE_BAD,     /* received, wrong, or no base for it: why says in which way */
    TB_NOTE_DROPPED, /* received while another writer had it claimed */
    TB_NOTE_UNSENT   /* to be sent, but not held here any more */
};
struct tb_note {
    enum tb_note_kind kind;
    enum tb_refusal why;
    uint32_t crossing, shard, chunk;
};

/* A chunk that came by a second way, with the right digest, while a slower stream is in the
 * middle of it and has the claim. Whoever has the claim, or gets it, finishes the chunk
 * with these bytes. */
struct tb_gift {
    struct tb_shared_places *share; /* referenced */
    uint32_t shard, chunk;
    uint8_t *bytes; /* as large as the chunk; tb_free */
    bool fresh;     /* the loops were not told yet */
};

/* What a stream's connection carried lately. */
struct tb_feed_slot {
    tb_time_ns at;   /* when that was seen */
    tb_time_ns time; /* since it was seen before */
    tb_time_ns busy; /* of it, something was to be sent or acknowledged */
    uint64_t acked_bytes;
    bool full; /* it took no more: the link was the limit, not the writer */
};

struct tb_feed_landing {
    uint32_t crossing; /* 0: empty */
    bool based;        /* the peer was told a base, which may be gone since */
    struct tb_shared_places *share;
    struct tb_shared_places *base; /* NULL: none, or gone; the main loop keeps it alive */
    bool expected; /* of an answer: it lands nowhere yet, and the main loop is to say whether it does */
};

struct tb_feed; /* feed_inside.h */

/* NULL: no memory. */
struct tb_feed *tb_feed_new(enum tb_choice_wish wish, uint32_t cores);
void tb_feed_free(struct tb_feed *f); /* no stream is left */

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
/* Main loop. Only these slots take parcels from now on, a bit for each; one that avoids them all
 * avoids none. True: some slot that found nothing may find something now. */
bool tb_feed_use(struct tb_feed *f, uint64_t slots);
/* Main loop. From now on only streams of this session pop. Purges. */
void tb_feed_session(struct tb_feed *f, uint64_t session, uint32_t protocol);
/* Main loop. Empties a table into the caller's, which has TB_FEED_TAKEN_MAX,
 * TB_FEED_NOTES_MAX entries; how many. */
uint32_t tb_feed_collect_taken(struct tb_feed *f, struct tb_feed_taken *out);
uint32_t tb_feed_collect_notes(struct tb_feed *f, struct tb_note *out);
/* Main loop. A number above all before, whose chunks may come before it is known where they land:
 * streams wait with them until then. 0: no room. */
uint32_t tb_feed_expect(struct tb_feed *f);
/* Main loop. What waits for it is dropped (0: of all); the streams are to be told
 * (tb_links_heed). */
void tb_feed_unexpect(struct tb_feed *f, uint32_t crossing);
/* Main loop. Gives the landing a number above all before, or that one, which was expected; 0: no
 * room. `base` or NULL. */
uint32_t tb_feed_landing_add(struct tb_feed *f, uint32_t expected, struct tb_shared_places *share,
                             struct tb_shared_places *base);
void tb_feed_landing_remove(struct tb_feed *f, uint32_t crossing);
/* Main loop. The number was given to a landing, or is expected, some time. */
bool tb_feed_landing_issued(struct tb_feed *f, uint32_t crossing);
/* Main loop. Nothing here is a difference to it any more: what waits to be sent goes whole. */
void tb_feed_base_gone(struct tb_feed *f, struct tb_shared_places *base);

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

/* Main loop. Finishes gifts whose chunk nobody has claimed any more, and forgets those
 * that are held or whose places were taken back. True: new ones wait for the streams
 * that have the claims. */
bool tb_feed_gifts_settle(struct tb_feed *f);
void tb_feed_gifts_drop(struct tb_feed *f); /* main loop: no stream is left */

/* Streams. TB_OK: *out is theirs, with its reference; TB_AGAIN: nothing there now for this slot;
 * `hungry` was set under the lock. */
TB_MUST_USE enum tb_status tb_feed_pop(struct tb_feed *f, uint64_t session, uint32_t slot,
                                       atomic_bool *hungry, struct tb_feed_parcel *out);
/* Streams. Share and base of a crossing number, referenced where they are not NULL. False: that
 * number was never given. */
bool tb_feed_landing(struct tb_feed *f, uint32_t crossing, struct tb_feed_landing *out);
/* Main loop, before a stream sends: what the machine's codecs do. */
void tb_feed_seed(struct tb_feed *f, const struct tb_choice_speed speeds[TB_WAYS]);
/* Any: codec_choice.h under the lock. */
enum tb_choice_way tb_feed_pick(struct tb_feed *f, const struct tb_choice_ask *ask);
bool tb_feed_takes(struct tb_feed *f, const struct tb_choice_made *made);
bool tb_feed_joins(struct tb_feed *f, const struct tb_choice_made *joined, unsigned steps);
void tb_feed_learn(struct tb_feed *f, const struct tb_choice_sample *sample);
void tb_feed_choice(struct tb_feed *f, struct tb_choice *choice_out);
/* Streams. All of them together say what the link carries while it is busy. */
void tb_feed_carry(struct tb_feed *f, uint32_t slot, const struct tb_feed_slot *carried);

/* Streams. Takes the gift with its reference and its bytes. False: full, or the chunk has one;
 * both stay the caller's. */
bool tb_feed_gift(struct tb_feed *f, const struct tb_gift *gift);
/* Streams. Who has the claim of a chunk takes what was left for it; NULL: nothing was. tb_free. */
uint8_t *tb_feed_gift_take(struct tb_feed *f, const struct tb_shared_places *share, uint32_t shard,
                           uint32_t chunk);
/* Streams. False: full; the stream ends itself, so what it brought is asked for again. */
bool tb_feed_note(struct tb_feed *f, const struct tb_note *note);
/* The same for who can come again later: half of the room stays to streams. */
bool tb_feed_note_late(struct tb_feed *f, const struct tb_note *note);

#endif

/* feed.h - what the main loop and the stream loops of one link share: parcels to send, parcels taken, chunks
 * that came wrong, and which crossing number lands where. A shell, but it only locks and counts.
 *
 * "One queue a link; whichever stream can send takes the next parcel": the main loop fills `ready` from the
 * crossing cores, a stream pops from it, and what it popped is written into `taken` under the same lock, so
 * the main loop knows before any byte leaves which stream a chunk is on. All tables are fixed: nothing is
 * allocated per parcel.
 *
 * Threads: any, but for what is marked. */
#ifndef TB_WAN_FEED_H
#define TB_WAN_FEED_H

#include <stdatomic.h>
#include <uv.h>

#include "wan/send/codec_choice.h"
#include "wan/send/inbound.h"
#include "wan/send/rate_cap.h"
#include "wan/send/sent_counters.h"

#define TB_FEED_READY_MAX    64u
#define TB_FEED_TAKEN_MAX    128u
#define TB_FEED_NOTES_MAX    1024u
#define TB_FEED_LANDINGS_MAX 16u
#define TB_FEED_GIFTS_MAX    4u
#define TB_FEED_EXPECTED_MAX 16u
#define TB_FEED_SLOTS_MAX    64u /* streams of a link */

/* Places of one version that streams may touch, kept alive by counts. The main loop owns one reference from
 * new to the end; it revokes, and when its own is the last one no thread touches the places any more. */
struct retired;
struct tb_objects;
struct tb_known;
struct tb_share {
    atomic_uint refs;
    atomic_bool revoked;
    atomic_ullong received_bytes; /* of chunk frames that came for it, dropped and refused ones too */
    struct tb_sent *sent;         /* of an offer, ours; NULL: of a landing */
    struct tb_objects *objects;   /* with known: whose it is */
    struct tb_known *
        known; /* ours: a version that left, whose places these are (encoded_chunks.h); NULL: one that is here */
    uv_async_t *wake;      /* the main loop's */
    struct tb_share *next; /* the main loop's own: shares that retire, and the call that took them back */
    struct retired *call;
    struct tb_id uid;
    uint32_t shard_count;
    struct tb_place places[];
};
struct tb_share *tb_share_new(const struct tb_id *uid, const struct tb_place *places, uint32_t shard_count,
                              uv_async_t *wake); /* NULL: no memory */
void tb_share_ref(struct tb_share *s);
void tb_share_unref(struct tb_share *s);
bool tb_share_revoked(const struct tb_share *s);
void tb_share_revoke(struct tb_share *s);    /* main loop */
bool tb_share_only_ours(struct tb_share *s); /* main loop */
void tb_share_free(struct tb_share *s);      /* main loop, when only ours */

struct tb_feed_parcel {
    struct tb_share *share; /* referenced */
    struct tb_share *base;  /* referenced: what its chunks may be differences to; NULL: nothing */
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

/* A chunk that came by a second way, with the right digest, while a slower stream is in the middle of it and has the claim. Whoever has
 * the claim, or gets it, finishes the chunk with these bytes. */
struct tb_gift {
    struct tb_share *share; /* referenced */
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
    struct tb_share *share;
    struct tb_share *base; /* NULL: none, or gone; the main loop keeps it alive */
    bool expected; /* of an answer: it lands nowhere yet, and the main loop is to say whether it does */
};

struct tb_feed {
    uv_mutex_t lock;
    uint64_t session; /* whose streams may pop; 0: none */
    uint64_t slots;   /* of them, these */
    uint32_t ready_first, ready_count;
    struct tb_feed_parcel ready[TB_FEED_READY_MAX];
    uint32_t taken_count;
    struct tb_feed_taken taken[TB_FEED_TAKEN_MAX];
    uint32_t note_count;
    struct tb_note notes[TB_FEED_NOTES_MAX];
    struct tb_feed_landing landings[TB_FEED_LANDINGS_MAX];
    uint32_t expected[TB_FEED_EXPECTED_MAX]; /* crossings that the peer may begin unasked; 0: none */
    atomic_uint gift_count;                  /* written under the lock */
    struct tb_gift gifts[TB_FEED_GIFTS_MAX];
    uint32_t issued; /* the highest crossing number ever given to a landing here */
    struct tb_choice choice;
    struct tb_cap cap;
    atomic_bool capped;   /* cap has a limit: else streams need not ask */
    uint64_t until_bytes; /* of frames, begun since ever; UINT64_MAX: no end */
    uint64_t begun_bytes;
    uint64_t short_bytes; /* the least frame that was over it; 0: none was */
    struct tb_feed_slot slots_carried[TB_FEED_SLOTS_MAX];
    tb_time_ns carried_at;
    bool carried_full;
};

TB_MUST_USE enum tb_status tb_feed_init(struct tb_feed *f, enum tb_choice_wish wish, uint32_t cores);
void tb_feed_fini(struct tb_feed *f);

/* Main loop. Takes the references of parcel->share and parcel->base with it; what goes again goes first. False: full. */
bool tb_feed_push(struct tb_feed *f, const struct tb_feed_parcel *parcel);
uint32_t tb_feed_ready(struct tb_feed *f);
/* Main loop. Takes back all parcels of a crossing (0: of all) that no stream took. */
void tb_feed_purge(struct tb_feed *f, uint32_t crossing);
/* Main loop. Takes back parcels that were to go again and that the peer holds by now. */
void tb_feed_purge_held(struct tb_feed *f, uint32_t crossing, const struct tb_crossing *c);
/* Main loop. Takes back the parcel that was to go again and has this chunk. False: none waits. */
bool tb_feed_recall(struct tb_feed *f, const struct tb_frame_refused *refused, struct tb_parcel *parcel_out);
/* Main loop. Only these slots take parcels from now on, a bit for each; one that avoids them all avoids none. True: some slot that found
 * nothing may find something now. */
bool tb_feed_use(struct tb_feed *f, uint64_t slots);
/* Main loop. From now on only streams of this session pop. Purges. */
void tb_feed_session(struct tb_feed *f, uint64_t session, uint32_t protocol);
/* Main loop. Empties a table into the caller's, which has TB_FEED_TAKEN_MAX, TB_FEED_NOTES_MAX entries; how
 * many. */
uint32_t tb_feed_collect_taken(struct tb_feed *f, struct tb_feed_taken *out);
uint32_t tb_feed_collect_notes(struct tb_feed *f, struct tb_note *out);
/* Main loop. A number above all before, whose chunks may come before it is known where they land: streams wait with them until then.
 * 0: no room. */
uint32_t tb_feed_expect(struct tb_feed *f);
/* Main loop. What waits for it is dropped (0: of all); the streams are to be told (links_heed). */
void tb_feed_unexpect(struct tb_feed *f, uint32_t crossing);
/* Main loop. Gives the landing a number above all before, or that one, which was expected; 0: no room. `base` or NULL. */
uint32_t tb_feed_landing_add(struct tb_feed *f, uint32_t expected, struct tb_share *share,
                             struct tb_share *base);
void tb_feed_landing_remove(struct tb_feed *f, uint32_t crossing);
/* Main loop. Nothing here is a difference to it any more: what waits to be sent goes whole. */
void tb_feed_base_gone(struct tb_feed *f, struct tb_share *base);

/* Main loop. The most that all streams of the link send together, 0: no limit. */
void tb_feed_cap(struct tb_feed *f, uint64_t bytes_per_s);
bool tb_feed_capped(const struct tb_feed *f);
/* Streams. How much of `want` may go as one piece, and from when on. */
uint32_t tb_feed_piece(struct tb_feed *f, uint32_t want, const struct tb_cap_price *price,
                       tb_time_ns *at_out);
/* Main loop. Frames begin until so many bytes of them were sent since ever, and none that would go over it; UINT64_MAX: no end. */
void tb_feed_until(struct tb_feed *f, uint64_t bytes);
/* Streams. May a frame of so many bytes begin? It counts then. False: the next may not either (tb_feed_spent). */
bool tb_feed_spend(struct tb_feed *f, uint64_t bytes);
void tb_feed_unspend(struct tb_feed *f, uint64_t bytes); /* of a frame that was begun, and will not be sent */
/* Any. There is no room for the frame that waits (*short_bytes_out), or none at all (0): nothing begins before tb_feed_until allows more.
 * `short_bytes_out` or NULL. */
bool tb_feed_spent(struct tb_feed *f, uint64_t *short_bytes_out);
/* Streams. Bytes that TCP sent again. */
void tb_feed_charge(struct tb_feed *f, uint64_t bytes);

/* Main loop. Finishes gifts whose chunk nobody has claimed any more, and forgets those that are held or whose places were taken
 * back. True: new ones wait for the streams that have the claims. */
bool tb_feed_gifts_settle(struct tb_feed *f);
void tb_feed_gifts_drop(struct tb_feed *f); /* main loop: no stream is left */

/* Streams. TB_OK: *out is theirs, with its reference; TB_AGAIN: nothing there now for this slot; `hungry` was set under
 * the lock. */
TB_MUST_USE enum tb_status tb_feed_pop(struct tb_feed *f, uint64_t session, uint32_t slot,
                                       atomic_bool *hungry, struct tb_feed_parcel *out);
/* Streams. Share and base of a crossing number, referenced where they are not NULL. False: that number was never given. */
bool tb_feed_landing(struct tb_feed *f, uint32_t crossing, struct tb_feed_landing *out);
/* Any: codec_choice.h under the lock. */
enum tb_choice_way tb_feed_pick(struct tb_feed *f, const struct tb_choice_ask *ask);
bool tb_feed_takes(struct tb_feed *f, const struct tb_choice_made *made);
bool tb_feed_joins(struct tb_feed *f, const struct tb_choice_made *joined, unsigned steps);
void tb_feed_learn(struct tb_feed *f, const struct tb_choice_sample *sample);
void tb_feed_choice(struct tb_feed *f, struct tb_choice *choice_out);
/* Streams. All of them together say what the link carries while it is busy. */
void tb_feed_carry(struct tb_feed *f, uint32_t slot, const struct tb_feed_slot *carried);

/* Streams. Takes the gift with its reference and its bytes. False: full, or the chunk has one; both stay the caller's. */
bool tb_feed_gift(struct tb_feed *f, const struct tb_gift *gift);
/* Streams. Who has the claim of a chunk takes what was left for it; NULL: nothing was. tb_free. */
uint8_t *tb_feed_gift_take(struct tb_feed *f, const struct tb_share *share, uint32_t shard, uint32_t chunk);
/* Streams. False: full; the stream ends itself, so what it brought is asked for again. */
bool tb_feed_note(struct tb_feed *f, const struct tb_note *note);
/* The same for who can come again later: half of the room stays to streams. */
bool tb_feed_note_late(struct tb_feed *f, const struct tb_note *note);

#endif

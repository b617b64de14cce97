/* feed.h - what the main loop and the stream loops of one link share: the feed as a whole, and the
 * notes that streams leave. A shell, but it only locks and counts. Each table has a header of its
 * own: feed_parcels.h, feed_landings.h, feed_gifts.h, feed_choice.h and feed_limits.h.
 *
 * "One queue a link; whichever stream can send takes the next parcel": the main loop fills `ready`
 * from the crossing cores, a stream pops from it, and what it popped is written into `taken` under
 * the same lock, so the main loop knows before any byte leaves which stream a chunk is on. All
 * tables are fixed: nothing is allocated per parcel.
 *
 * Threads: any, but for what is marked. */
#ifndef TB_WAN_FEED_H
#define TB_WAN_FEED_H

#include "wan/frame/frame.h"
#include "wan/send/codec_choice.h"
#include "wan/send/shared_places.h"

#define TB_FEED_NOTES_MAX 1024u

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

struct tb_feed; /* feed_inside.h */

/* NULL: no memory. */
struct tb_feed *tb_feed_new(enum tb_choice_wish wish, uint32_t cores);
void tb_feed_free(struct tb_feed *f); /* no stream is left */

/* Main loop. Asserts what holds of each table between two calls. */
void tb_feed_check(struct tb_feed *f);
/* Main loop. From now on only streams of this session pop. Purges. */
void tb_feed_session(struct tb_feed *f, uint64_t session, uint32_t protocol);
/* Main loop. Empties the table into the caller's, which has TB_FEED_NOTES_MAX entries; how many. */
uint32_t tb_feed_collect_notes(struct tb_feed *f, struct tb_note *out);
/* Main loop. No chunk goes as a delta to it any more: those that wait go whole. */
void tb_feed_base_gone(struct tb_feed *f, struct tb_shared_places *base);

/* ---- notes ---- */

/* Streams. False: full; the stream ends itself, so what it brought is asked for again. */
bool tb_feed_note(struct tb_feed *f, const struct tb_note *note);
/* The same for a caller that can come again later: half of the room stays to streams. */
bool tb_feed_note_late(struct tb_feed *f, const struct tb_note *note);

#endif

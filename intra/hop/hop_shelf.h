/* hop_shelf.h - which deltas a hop reads from its source's shelf, and which chunks it waits for.
 * Pure; part of hop.h's core.
 *
 * A source's shelf (base/layout/shelf.h) is polled with its bitmaps. A reader that holds the
 * shelf's base reads deltas and decodes them, even before the source holds their chunks. It reads a
 * chunk whole where the shelf has no delta of it, where the delta failed, and where the source held
 * the chunk for `patience` and its shelf showed nothing new.
 *
 * A reader that does not hold the base reads chunks whole. It passes deltas on to its own shelf,
 * for readers behind it that hold the base. An owner may want every delta, to send it to other
 * sites: then the hop goes on until the shelf has no more.
 *
 * A delta is never the only way: whatever the shelf does, chunks come whole in the end. */
#ifndef TB_INTRA_HOP_SHELF_H
#define TB_INTRA_HOP_SHELF_H

#include "base/layout/place.h"
#include "base/layout/shelf.h"
#include "base/time.h"

#define TB_HOP_SHELF_PATIENCE    TB_MS(500)
#define TB_HOP_SHELF_ENTRIES_MAX 2048u /* asked for at once: 32 KiB */

/* The version that this process can decode deltas from: it holds it whole. */
struct tb_hop_base {
    struct tb_id uid;
    /* One a shard of the hop, in their order, of equal layouts. NULL with owner_decodes false:
     * there is no base. */
    const struct tb_place *const *places;
    /* The base is in the memory of the owner of the hop's places: the owner decodes, and keeps the
     * delta (struct tb_place_owner). A delta that it refuses is read again as a whole chunk. */
    bool owner_decodes;
};

struct tb_hop_shelf {
    uint32_t count; /* chunks of all shards, in a line */
    struct tb_shelf_head head;
    uint64_t *listed; /* bits of the source's shelf as last seen */
    uint64_t *known;  /* whose entries have come */
    uint64_t *done;   /* known, and nothing is to be done about the encoded chunk any more */
    uint64_t *busy;   /* the encoded chunk is in flight */
    struct tb_shelf_entry *entries;
    struct tb_hop_base base; /* ours; zeroed: none */
    struct tb_shelf *ours;   /* where encoded chunks are passed on; NULL: nowhere */
    tb_time_ns patience;     /* [TB_HOP_SHELF_PATIENCE] */
    bool decodes;            /* fewer bytes are worth a decoder's time: by tcp, or where they are kept so */
    bool keeps;              /* the owner wants every encoded chunk */
    bool news;               /* the last head showed a bit more */
    bool patient;
    tb_time_ns waits_since; /* it holds chunks for which it has shown no entry; 0: it does not */
};

/* Bytes of memory for a shelf of so many chunks, and the state in it; base, ours, patience and
 * decodes are the owner's to set. */
uint64_t tb_hop_shelf_bytes(uint32_t count);
void tb_hop_shelf_init(struct tb_hop_shelf *s, void *memory, uint32_t count);

/* Head and bits have come: TB_SHELF_HEAD_WORDS + TB_BITMAP_WORDS(count) words.
 * TB_PEER_GARBLED: they are no shelf of this version; the owner then uses it no more, and the
 * hop goes on without. */
TB_MUST_USE enum tb_status tb_hop_shelf_head(struct tb_hop_shelf *s, const uint64_t *words);
/* The entries to ask for next. False: none. */
bool tb_hop_shelf_wanted(const struct tb_hop_shelf *s, uint32_t *first_out, uint32_t *count_out);
/* They have come. chunk_bytes says what a chunk of the line has. TB_PEER_GARBLED as above. */
typedef uint32_t (*tb_hop_shelf_chunk_fn)(void *user, uint32_t line);
TB_MUST_USE enum tb_status tb_hop_shelf_entries(struct tb_hop_shelf *s, uint32_t first, const uint64_t *words,
                                                uint32_t count, tb_hop_shelf_chunk_fn chunk_bytes,
                                                void *user);
/* The entry has come, and says that there is no encoded chunk. */
bool tb_hop_shelf_none(const struct tb_hop_shelf *s, uint32_t line);
/* A round is over. waits: the source holds chunks that we lack and for which it has shown no
 * entry. */
void tb_hop_shelf_round(struct tb_hop_shelf *s, bool waits, tb_time_ns now);

/* The first chunk at or after `from` that has an encoded chunk which nobody here has
 * dealt with; count: none. */
uint32_t tb_hop_shelf_find(const struct tb_hop_shelf *s, uint32_t from);
/* We hold its base, and may decode it. */
bool tb_hop_shelf_fits(const struct tb_hop_shelf *s);
/* The encoded chunk goes on: to our own shelf, or to the owner. */
bool tb_hop_shelf_passes(const struct tb_hop_shelf *s, uint32_t line);
/* Nothing is to come of it that the owner wants. */
bool tb_hop_shelf_over(const struct tb_hop_shelf *s);
/* Its encoded chunk may still come, so it is not asked for whole. */
bool tb_hop_shelf_awaited(const struct tb_hop_shelf *s, uint32_t line);
/* Nothing is left to be done about a chunk's encoded chunk. */
void tb_hop_shelf_done(struct tb_hop_shelf *s, uint32_t line);

/* Asserts what holds of its bits: a delta that is in flight or done is known, and none is both. */
void tb_hop_shelf_check(const struct tb_hop_shelf *s);

#endif

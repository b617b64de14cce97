/* hop.h - what one hop asks its source for next. The deciding half of a hop; hop_run.c and its
 * like do what it says.
 *
 * Pure: no socket, clock, thread or heap. It knows the source's held bitmaps as last seen, our
 * places, what is in flight and what failed. A chunk is asked for only after the snapshot that
 * showed its bit (P1), only when nobody else fills it here (a claim), and at most twice from a
 * source whose bytes do not match: once again after the first failure, then never. Of a foreign
 * source, whose word about its bytes nobody takes, a chunk is asked for only once its proof is
 * known: what lands can be judged.
 *
 * Bitmaps are read again every 0.2 to 20 ms, at the rhythm in which the source fills: after an
 * eighth of the time that a chunk took there of late, or after a share of the time since the last
 * news, where that is longer.
 *
 * In a chain whose NICs are all as fast as its source, a hop that was late once stays late, and so
 * do all hops behind it. So 1,000 hops add the largest lateness of each, not the mean. Therefore
 * that share is 1/64, divided by the depth in the chain. An idle hop sleeps soon. A hop far down a
 * chain, where the lateness of all others adds up, goes on looking.
 *
 * One pause is no new rhythm: the time of a chunk at most doubles from one news to the next.
 *
 * Threads: one; the places may be filled by others at the same time. */
#ifndef TB_INTRA_HOP_H
#define TB_INTRA_HOP_H

#include "base/layout/place.h"
#include "base/time.h"
#include "intra/fabric/source_descriptor.h"
#include "intra/hop/hop_shelf.h"

#define TB_HOP_POLL_MIN    TB_US(200)
#define TB_HOP_POLL_RHYTHM 8u   /* so many looks in the time of a chunk */
#define TB_HOP_POLL_SHARE  64u  /* of a wait: one of so many, times the depth, */
#define TB_HOP_POLL_DEPTH  128u /* which is taken for so deep where it is not known, and never for deeper */
#define TB_HOP_POLL_MAX    TB_MS(20)
/* Asked for and not come; 1 ms at 8 GB/s. Two chunks may always be, however large. As much may have
 * come and not be digested, and always a chunk for each thread that digests and one more: a NIC
 * that is faster than a core goes on while several of them work, and it never runs so far ahead
 * that chunks leave the cache before they are digested. */
#define TB_HOP_WINDOW_BYTES ((uint64_t)8 << 20)
/* Where we copy ourselves: no NIC and no queue of the source's holds them, and the loop has more of
 * them to see to at a turn. */
#define TB_HOP_WINDOW_COPIED ((uint64_t)24 << 20)
/* Where the places' owner looks at chunks, as a GPU does: what has come and waits for it. It takes
 * many at a time, two times over, and 64 MiB are 1.2 ms of its bus. */
#define TB_HOP_WINDOW_LOOKED  ((uint64_t)128 << 20)
#define TB_HOP_POLL_WORDS_MAX 4096u /* of one shard a round: 32 KiB */
#define TB_HOP_ASKED_MAX      32u   /* asked for, and not come */
#define TB_HOP_CHUNKS_USUAL   32u   /* in flight: asked for, or come and not digested */
#define TB_HOP_CHUNKS_MAX     256u  /* likewise, where the places' owner looks at chunks */

/* One shard that the source has and we want. The first four are the owner's to fill before
 * init. */
struct tb_hop_shard {
    const struct tb_source_shard *source;
    struct tb_place *place;
    uint64_t *memory; /* tb_hop_shard_words of it */
    bool foreign;     /* base/layout/place.h */

    uint64_t *seen;    /* the source's held bits */
    uint64_t *suspect; /* failed once here */
    uint64_t *bad;     /* failed twice: not asked of this source any more */
    uint64_t *busy; /* in flight here: a chunk that failed is not asked again before its failure was judged */
    uint32_t chunk_count;
    uint32_t poll_from;  /* word where the next poll of a long bitmap begins */
    uint32_t full_words; /* so many at the beginning of `seen` have every bit: no poll looks there again */
};
uint64_t tb_hop_shard_words(uint32_t chunk_count);

struct tb_hop_state {
    struct tb_hop_shard *shards; /* the owner's */
    uint32_t shard_count;
    uint64_t chunk_total;
    uint64_t at;                          /* where the search goes on: an index over all shards' chunks */
    bool dry;                             /* nothing to ask until a snapshot, a lost claim or a failure */
    uint64_t window_bytes;                /* the owner's, after init: TB_HOP_WINDOW_BYTES */
    uint64_t came_max_bytes;              /* likewise: as window_bytes */
    uint32_t chunks_max;                  /* likewise: TB_HOP_CHUNKS_USUAL */
    uint32_t threads;                     /* that digest what came; likewise: 1 */
    uint64_t in_flight_bytes, came_bytes; /* of what is in flight this has come */
    uint32_t in_flight_chunks, came_chunks;
    tb_time_ns poll_every;
    tb_time_ns poll_at;
    tb_time_ns news_at;    /* the last round that showed something new; before the first, the beginning */
    tb_time_ns news_every; /* the time of a chunk by the last two of those; 0: there were not two */
    bool news_seen;        /* there was one */
    uint32_t round_news;   /* so many more than before were in the snapshots of this round */
    /* hops to the chain's beginning, this one counted; 0: not known. The owner's, after init */
    uint32_t depth;
    struct tb_hop_shelf *shelf; /* the source's, of all shards; NULL: it has none */
    uint32_t shelf_at;          /* where the search for encoded chunks goes on */
};

/* seed: where to begin; 0 is the first chunk. A source without bitmap counts as whole. The first
 * poll is due at once. */
void tb_hop_state_init(struct tb_hop_state *s, struct tb_hop_shard *shards, uint32_t shard_count,
                       uint32_t seed, tb_time_ns now);

struct tb_hop_aim {
    uint32_t shard_index; /* into shards */
    uint32_t chunk;
    uint32_t bytes; /* to read: of the encoded form if there is one */
    /* Of the source's shelf: read it, and, unless it is only passed on, decode it into the
     * chunk's place. NULL: none. */
    const struct tb_shelf_entry *encoded;
    uint32_t line;  /* of the chunk, with an encoded chunk */
    bool passed_on; /* nothing was claimed: it goes to our shelf alone */
    bool came;      /* tb_hop_came's */
};
/* True: *aim_out was claimed in its place and counts as in flight until one of the four calls
 * behind tb_hop_came. False: the window is full, or there is nothing to ask for now. */
bool tb_hop_next(struct tb_hop_state *s, struct tb_hop_aim *aim_out);
/* All of it has been read, or the thread that digests it copies it now: other chunks may be asked
 * for in its stead. */
void tb_hop_came(struct tb_hop_state *s, struct tb_hop_aim *aim);
void tb_hop_landed(struct tb_hop_state *s, const struct tb_hop_aim *aim);
/* Its digest failed while the source was still open to us, and its claim has ended. True: for the
 * second time; it is not asked of this source again. */
bool tb_hop_failed(struct tb_hop_state *s, const struct tb_hop_aim *aim);
/* The delta from the shelf does not decode to the chunk. The chunk is asked for whole, and the
 * source is not blamed. Its claim has ended. */
void tb_hop_encoded_failed(struct tb_hop_state *s, const struct tb_hop_aim *aim);
/* More proofs are known: chunks that waited for theirs may be asked for. */
void tb_hop_look_again(struct tb_hop_state *s);
/* It was not read to the end; its claim has ended. */
void tb_hop_dropped(struct tb_hop_state *s, const struct tb_hop_aim *aim);

/* The words of a shard's bitmap to ask for in this round: those between the first and the
 * last that are not full, at most TB_HOP_POLL_WORDS_MAX of it, another part each round.
 * False: it is known whole. */
bool tb_hop_poll_words(struct tb_hop_state *s, uint32_t shard_index, uint32_t *first_out,
                       uint32_t *count_out);
/* A snapshot of those words has come. TB_PEER_GARBLED: bits past the last chunk. A chunk
 * that the source does not hold any more is not asked for any more. */
TB_MUST_USE enum tb_status tb_hop_seen(struct tb_hop_state *s, uint32_t shard_index, uint32_t first,
                                       const uint64_t *words, uint32_t count);
/* All snapshots of a round have come (or none was worth asking): sets poll_at and looks
 * at the places again. */
void tb_hop_round_done(struct tb_hop_state *s, tb_time_ns now);

/* Asserts that bits, counts and bytes agree. Between two calls of the above. */
void tb_hop_state_check(const struct tb_hop_state *s);

/* Every place is whole. */
bool tb_hop_whole(const struct tb_hop_state *s);

#endif

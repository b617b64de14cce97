/* source_division.h - several sites send one version to here: which of them sends which chunks.
 * The receiver's side.
 *
 * Pure. The owner says which chunks each source holds (by its word), and how far away it is. The
 * divider gives each source chunks to send: as many as it brings in its round trip and a quarter
 * of a second, and never one chunk to two. So the fastest brings most. The places show which
 * chunks arrived, by whatever way.
 *
 * A source that brings no byte for a second is silent, and its chunks are taken back. A large
 * chunk on a slow path is no silence. But a source that brings bytes and no chunk counts as slow:
 * its chunks go to others as soon as those are done. At the end the fast take over the chunks that
 * the slow have not begun.
 *
 * Lanes: where this site has several gateways, each draws a share of its own from far, and the
 * rest from the others, which are *near*. So nothing crosses twice, and two paths are twice one. A
 * lane that is done with its share helps another that would need long, from the end of that share.
 * Where no other lane is there it draws all.
 *
 * A lane whose gateway says nothing may be busy, and its path may bring all that it should. Such a
 * lane counts as going on at its last rate. It counts as late only by its own words: the gateway is
 * heard, and nothing landed there. Its link decides whether a silent gateway is gone. A source is
 * slow only after a second with work: before, its rate was that of the work.
 *
 * A share is given whole to a site that is the only one. The path then has work whatever its
 * length, and however late a busy machine looks here.
 *
 * A turn in which nothing came costs a look at the words of the bitmaps, and none at chunks.
 *
 * Promises: P5 (little is fetched twice: chunks that were on their way when they were taken back),
 * P6 (no source holds up the rest). Kept by tests/unit/wan/source_division.c. */
#ifndef TB_WAN_DIVIDE_H
#define TB_WAN_DIVIDE_H

#include "base/layout/place.h"
#include "base/range.h"
#include "base/time.h"
#include "wan/frame/frame.h"

#define TB_DIVIDE_SOURCES_MAX 8u
#define TB_DIVIDE_NONE        UINT32_MAX
#define TB_DIVIDE_BYTES_MIN   ((uint64_t)4 << 20) /* given to a source of which nothing is known */
#define TB_DIVIDE_BYTES_MAX   ((uint64_t)1 << 30)
#define TB_DIVIDE_EVERY       TB_MS(250) /* and a round trip: how often a source is measured */
#define TB_DIVIDE_SILENT      TB_SECONDS(1)

struct tb_divide_source {
    bool on;
    bool near;   /* another gateway of this site */
    bool silent; /* in the last turn */
    tb_time_ns rtt;
    bool whole;                             /* it was given all of our share, being alone */
    uint64_t given_bytes, given_ours_bytes; /* given and not here yet; of it, of our lane's share */
    uint64_t window_bytes;
    uint64_t again_bytes; /* of chunks that may come twice: asked for from far before, or another lane's */
    uint64_t came_bytes;  /* of chunks, since measured_at */
    uint64_t bytes_per_s;
    uint64_t received_bytes; /* on its streams, as told last */
    uint64_t nothing_at;     /* `freed` when nothing that it may send was left */
    tb_time_ns measured_at, moved_at, silent_until;
    tb_time_ns busy_at; /* it was given the first chunk after it had none left */
    tb_time_ns came_at; /* a chunk came, or it was given the first after it had none left */
    /* Of one that is near: what it holds of the other lanes' shares and got from elsewhere, what
     * that was when it had grown last, when that was, and how fast it grew. */
    uint64_t landed_bytes, landed_then_bytes, landed_per_s;
    tb_time_ns landed_at;
    /* Of one that is near: its gateway said anything; what it said until known_at was read, for
     * more came long after. */
    tb_time_ns heard_at, known_at;
};

struct tb_divide_shard {
    const struct tb_place *place;
    uint64_t *seen;  /* held here, as counted */
    uint64_t *given; /* to some source, and not here yet */
    uint64_t *far;   /* that came from far */
    uint64_t *near;  /* held by another lane that is not silent */
    uint64_t *ours;  /* of our lane's share */
    uint64_t *asked; /* for from far, ever */
    struct {
        uint64_t *has;  /* held there */
        uint64_t *mine; /* given to it, and not here yet */
        uint64_t *take; /* what it may send: given and not taken back */
        uint64_t *told; /* of that, what it knows */
    } of[TB_DIVIDE_SOURCES_MAX];
};

struct tb_divide {
    struct tb_divide_shard *shards;
    uint32_t shard_count;
    uint64_t chunks; /* of all shards */
    uint64_t start;  /* of them, the one that is given first */
    uint64_t share;  /* so many from there on are our lane's; all, where there is one lane */
    /* of our lane's share: not here, given to nobody, and no other lane has them */
    uint64_t ours_lacking_bytes;
    uint64_t theirs_lacking_bytes;
    /* the most that far streams had in hand of our share: chunks that were begun and were not
     * here */
    uint64_t in_hand_bytes;
    uint64_t in_hand_now_bytes;
    tb_time_ns in_hand_at;
    uint64_t freed; /* grows whenever some source may have something more to send */
    tb_time_ns stepped_at;
    struct tb_divide_source sources[TB_DIVIDE_SOURCES_MAX];
};

size_t tb_divide_bytes_for(const struct tb_place *places, uint32_t shard_count);
/* `memory` (16-byte aligned) and the places stay until the divider is no longer used. Chunks are
 * given from `start_65536` of the version on and around: sites that begin at different places have
 * different chunks for each other should the site they came from be cut off. */
void tb_divide_init(struct tb_divide *d, const struct tb_place *places, uint32_t shard_count,
                    uint16_t start_65536, void *memory);

/* This is lane `lane` of `lanes`, whose shares have about as many bytes each: before
 * the first source joins. */
void tb_divide_lane(struct tb_divide *d, uint32_t lane, uint32_t lanes);

/* A source that knows nothing yet and has nothing, as far as is known; TB_DIVIDE_NONE: no room. */
uint32_t tb_divide_join(struct tb_divide *d, tb_time_ns now);
/* It is another lane's gateway; at once after it joined. */
void tb_divide_near(struct tb_divide *d, uint32_t source);
void tb_divide_leave(struct tb_divide *d, uint32_t source); /* its chunks are free */
uint32_t tb_divide_count(const struct tb_divide *d);
/* HAVE. TB_PEER_GARBLED: no such shard or chunk. */
TB_MUST_USE enum tb_status tb_divide_has(struct tb_divide *d, uint32_t source, uint32_t shard,
                                         const struct tb_span *words);
void tb_divide_rtt(struct tb_divide *d, uint32_t source, tb_time_ns rtt);
/* Of a near source: its gateway was heard then, with whatever word. */
void tb_divide_heard(struct tb_divide *d, uint32_t source, tb_time_ns heard_at);
/* So many bytes of this version came on its streams since ever: parts of chunks, and
 * what was dropped, too. */
void tb_divide_received(struct tb_divide *d, uint32_t source, uint64_t bytes, tb_time_ns now);
/* Counts what came, and gives, takes back and gives again. */
void tb_divide_step(struct tb_divide *d, tb_time_ns now);
/* Asserts that the sums are those of the bitmaps. It looks at each chunk that is given or lacks. */
void tb_divide_check(const struct tb_divide *d);
/* Words of one shard that the source is to be told, at most cap; from now on it knows
 * them. 0: nothing more. */
uint32_t tb_divide_news(struct tb_divide *d, uint32_t source, uint32_t *shard_out,
                        struct tb_held_word *words_out, uint32_t cap);

#endif

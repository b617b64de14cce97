/* outbound.h - the sending half of one version's way over one link: the chunks that the peer
 * lacks, without those that are on their way.
 *
 * Pure: no socket, file, clock, thread or heap. The owner tells it which chunks the peer holds,
 * which stream took a parcel and which streams are gone. It says which chunks go next. It polls
 * the places at each call for chunks that are held here, so a region that fills from elsewhere is
 * relayed without a word.
 *
 * Where the peer holds a base, chunks that are the same in it are not sent: the peer makes them
 * itself. One that it refuses is sent, and from then on whole. A chunk whose delta a rank is
 * making may be waited for.
 *
 * A chunk is absent there, queued (in a parcel that no stream took yet), on a stream, or held
 * there. It leaves "on a stream" only by the peer's word: HELD, REFUSED, or STREAM_GONE of that
 * stream, before which the peer has sent HELD of all that the stream brought. So an
 * acknowledgement lost in a cut is not work lost, and a chunk lost in a cut is not taken for
 * delivered.
 *
 * Promise P5: nothing that the peer acknowledged as held is sent again. Promise P4: a duplicate
 * HELD changes nothing. Kept by tests/scenario/crossing_cut.c and tests/unit/wan/outbound.c. */
#ifndef TB_WAN_OUTBOUND_H
#define TB_WAN_OUTBOUND_H

#include "base/layout/place.h"
#include "wan/frame/frame.h"
#include "wan/send/outbound_states.h"

#define TB_OUTBOUND_SLOTS_MAX    200u /* streams; a slot is the owner's name for one */
#define TB_OUTBOUND_REFUSALS_MAX 64u  /* chunks whose refusals are counted one by one */

struct tb_outbound_shard {
    const struct tb_place *place;
    uint64_t *peer;  /* held there, by the peer's word */
    uint64_t *busy;  /* queued or on a stream */
    uint64_t *same;  /* the peer makes it from its base */
    uint64_t *plain; /* was refused: whole from now on */
    uint64_t *take;  /* may be sent: all, until the peer said which */
    uint64_t *said;  /* where `takes` is not ALL: what the peer knows that is held here */
    uint64_t *wait;  /* not to be sent yet, unless whole: the owner's to write */
    uint8_t *owner;  /* of a busy chunk: OUTBOUND_QUEUED or its slot */
    /* Of a busy chunk that goes by two ways: OUTBOUND_QUEUED or its second slot + 1; 0: it does
     * not. */
    uint8_t *again;
    uint32_t peer_count;
};

/* Which chunks the peer takes from here. It moves on only. */
enum tb_outbound_takes {
    TB_OUTBOUND_TAKES_ALL,
    TB_OUTBOUND_TAKES_NAMED, /* TAKE came: others send the rest */
    /* A TAKE named a chunk: the search goes on from the first one so named. */
    TB_OUTBOUND_TAKES_AIMED
};

struct tb_refusals { /* chunks that were wrong, and how often */
    uint32_t count;
    struct {
        uint32_t shard, chunk, times;
    } items[TB_OUTBOUND_REFUSALS_MAX];
};
/* Counts one more and says how often it was; once the table is full, a chunk not in it
 * counts as the first time. */
uint32_t tb_refusals_add(struct tb_refusals *r, uint32_t shard, uint32_t chunk);

struct tb_outbound {
    struct tb_outbound_shard *shards;
    uint32_t shard_count;
    uint32_t at_shard; /* where the next search begins */
    uint32_t at_chunk;
    uint64_t chunks;    /* of all shards */
    uint64_t peer_held; /* of all shards */
    uint64_t busy;      /* of all shards */
    enum tb_outbound_state state;
    enum tb_outbound_takes takes;
    struct tb_refusals refusals;
};

/* Memory for a crossing over these places. */
size_t tb_outbound_bytes_for(const struct tb_place *places, uint32_t shard_count);
/* `memory` (16-byte aligned) and the places stay until the crossing is no longer used. */
void tb_outbound_init(struct tb_outbound *c, const struct tb_place *places, uint32_t shard_count,
                      void *memory);

/* The peer names a base. TB_PEER_GARBLED: a second one, or after START. */
TB_MUST_USE enum tb_status tb_outbound_name_base(struct tb_outbound *c);
/* Behind that, where its chunks are known: the peer holds that version whole, whose places these
 * are (none of them is kept). */
void tb_outbound_base(struct tb_outbound *c, const struct tb_place *base, uint32_t shard_count);

/* Behind the base: the peer expects the version, and holds nothing of it. Chunks go before
 * START. */
void tb_outbound_push(struct tb_outbound *c);

/* HELD. TB_PEER_GARBLED: no such shard or chunk, or the peer lost a chunk within one crossing; the
 * crossing is then as before. */
TB_MUST_USE enum tb_status tb_outbound_held(struct tb_outbound *c, uint32_t shard,
                                            const struct tb_span *words);
/* TAKE: with the first one nothing may be sent but what it names. TB_PEER_GARBLED: no
 * such shard or chunk. */
TB_MUST_USE enum tb_status tb_outbound_take(struct tb_outbound *c, uint32_t shard,
                                            const struct tb_span *words);
/* Of a shared crossing: words of one shard that changed here since the peer was told,
 * at most cap. 0: none. */
uint32_t tb_outbound_have(struct tb_outbound *c, uint32_t *shard_out, struct tb_held_word *words_out,
                          uint32_t cap);
/* START. TB_PEER_GARBLED: twice. */
TB_MUST_USE enum tb_status tb_outbound_start(struct tb_outbound *c);

/* The chunk is on a stream, and may be a delta there: the peer can know what that decodes to. */
bool tb_outbound_on_base(const struct tb_outbound *c, uint32_t shard, uint32_t chunk);
/* The peer could not land this chunk: it is sent again, whole unless another writer there
 * had only failed. *times_out counts refusals for wrong bytes. TB_PEER_GARBLED: no such
 * chunk, or one that it holds. */
TB_MUST_USE enum tb_status tb_outbound_refused(struct tb_outbound *c, const struct tb_frame_refused *refused,
                                               uint32_t *times_out);

/* Asserts that the sums are those of the bitmaps. It looks at each word. */
void tb_outbound_check(const struct tb_outbound *c);
bool tb_outbound_whole(const struct tb_outbound *c); /* the peer holds every chunk */

#endif

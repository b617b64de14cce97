/* inbound.h - the receiving half of one version's way over one link: what to tell the peer, and
 * what to ask for again.
 *
 * Pure. Streams write chunks into places; this half only looks at the places' bitmaps, so what
 * landed by another way (another link, a fabric) is told to the peer like the rest, and is not
 * sent by it any more.
 *
 * Promises: P4 (a chunk that is held or being written is dropped), P6 (a chunk that was dropped
 * because another writer had claimed it is asked for again if that writer fails). Kept by
 * tests/unit/wan/landing.c, tests/scenario/crossing_cut.c. */
#ifndef TB_WAN_INBOUND_H
#define TB_WAN_INBOUND_H

#include "base/time.h"
#include "wan/send/outbound.h"

#define TB_HELD_EVERY          TB_MS(10)
#define TB_INBOUND_DROPPED_MAX 256u

struct tb_inbound_shard {
    const struct tb_place *place;
    uint64_t *told; /* what the peer knows */
};

struct tb_inbound_chunk {
    uint32_t shard, chunk;
};

struct tb_inbound {
    struct tb_inbound_shard *shards;
    uint32_t shard_count;
    uint64_t chunks;
    uint64_t told_count;
    tb_time_ns told_at;
    bool told_any;
    bool lost; /* a chunk the peer was told of is held no more: the crossing has to begin again */
    struct tb_refusals refusals;
    uint32_t dropped_count;
    struct tb_inbound_chunk dropped[TB_INBOUND_DROPPED_MAX];
};

size_t tb_inbound_bytes_for(const struct tb_place *places, uint32_t shard_count);
/* `memory` (16-byte aligned) and the places stay until the landing is no longer used. */
void tb_inbound_init(struct tb_inbound *l, const struct tb_place *places, uint32_t shard_count, void *memory);

/* A new session: the peer knows nothing any more. */
void tb_inbound_rewind(struct tb_inbound *l);
/* True when HELD may be sent now: at most every TB_HELD_EVERY. The caller sends all differences
 * then and says so by `told`. */
bool tb_inbound_due(const struct tb_inbound *l, tb_time_ns now);
void tb_inbound_told(struct tb_inbound *l, tb_time_ns now);
/* Words of one shard that changed, at most cap; from now on they are known to the peer. 0: nothing
 * more changed anywhere. */
uint32_t tb_inbound_differences(struct tb_inbound *l, uint32_t *shard_out, struct tb_held_word *words_out,
                                uint32_t cap);
bool tb_inbound_whole(const struct tb_inbound *l); /* every chunk is held, and the peer was told of each */

/* Fits a chunk frame the version? TB_PEER_GARBLED: no such shard or chunk, or not its size. Reads
 * only the manifests: any thread. */
TB_MUST_USE enum tb_status tb_inbound_check(const struct tb_place *places, uint32_t shard_count,
                                            const struct tb_chunk_frame *frame);

/* Does the peer know already that this chunk is held? Then it is refused no more. */
bool tb_inbound_knows(const struct tb_inbound *l, uint32_t shard, uint32_t chunk);
/* A chunk came wrong: how often so far. */
uint32_t tb_inbound_bad(struct tb_inbound *l, uint32_t shard, uint32_t chunk);
/* A chunk came while another writer had it claimed, and was dropped. False: too many of them; ask
 * for it again at once. */
bool tb_inbound_dropped(struct tb_inbound *l, uint32_t shard, uint32_t chunk);
/* One of the dropped whose other writer gave up: ask for it again. False: none at the moment. */
bool tb_inbound_again(struct tb_inbound *l, struct tb_inbound_chunk *chunk_out);

#endif

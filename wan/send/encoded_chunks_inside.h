/* encoded_chunks_inside.h - what encoded_chunks.c and encoded_chunks_chain.c share. */
#ifndef TB_WAN_ENCODED_CHUNKS_INSIDE_H
#define TB_WAN_ENCODED_CHUNKS_INSIDE_H

#include <uv.h>

#include "wan/send/encoded_chunks.h"

struct tb_encoded_chunk {
    uint32_t refs; /* the table's own is one */
    enum tb_encoded_chunk_from from;
    struct tb_codec_form form;
    struct tb_digest digest; /* of its bytes, as they came */
    uint32_t count;
    uint8_t bytes[];
};

/* Of one shard; chunks NULL: nothing of it came yet. */
struct tb_encoded_chunk_shelf {
    struct tb_encoded_chunk **chunks;
    uint64_t *known; /* bits: the encoded chunk is here, or there is none */
    uint32_t count;
    bool coming, began; /* began: it was said once that they come */
    uint32_t came;      /* chunks that a rank said first what is of them */
    tb_time_ns news_at; /* while coming: the last one */
    tb_time_ns began_at;
};

/* Of one version on one base. */
struct tb_encoded_chunk_pair {
    struct tb_encoded_chunk_pair *next; /* older */
    struct tb_id uid, base;
    uint32_t shard_count;
    struct tb_encoded_chunk_shelf shards[];
};

struct tb_encoded_chunks {
    uv_mutex_t lock;
    uint64_t budget, bytes, count, used, chained, bad, damaged;
    uint64_t most_bytes; /* when it was looked at */
    struct tb_encoded_chunk_sum from[TB_ENCODED_CHUNK_FROMS];
    uint32_t pair_count;
    struct tb_encoded_chunk_pair *pairs; /* the newest first */
    uint32_t known_count;
    uint64_t known_bytes;
    struct tb_known *known; /* the newest first */
};

/* All under the lock. */
/* NULL: nothing is known of that shard. */
/* `least` pairs stay: what is being filled does not go for itself. Nothing goes for what
 * would not fit even alone. */
bool tb_encoded_chunks_room(struct tb_encoded_chunks *o, uint64_t bytes, uint32_t least);
/* Of a shard's slot: one that was not made here, or is damaged, goes. False: none is there. */
bool tb_encoded_chunks_is_wrong(struct tb_encoded_chunks *o, struct tb_encoded_chunk_shelf *shelf,
                                uint32_t chunk);
/* The chained deltas that lead to the chunk: those that were not made here go. */
void tb_encoded_chunks_chain_wrong(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name);
void tb_encoded_chunks_forget(struct tb_encoded_chunks *o, const struct tb_id *uid); /* NULL: all of them */

/* Asserts what holds of the known versions. The bytes of those in the list. */
uint64_t tb_encoded_chunks_known_check(const struct tb_encoded_chunks *o);

#endif

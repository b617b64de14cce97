/* arena_verify.h - chunks of an arena that an earlier process left, or that somebody doubts: they
 * are digested again. Chunks that landed without a proof get it. Threads: as arena.h says. */
#ifndef TB_GATEWAY_ARENA_VERIFY_H
#define TB_GATEWAY_ARENA_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

struct tb_arena;
struct tb_arena_region;

/* True: held, and its digest matched in this process (as it landed or since). Only such a
 * chunk may be a base. */
bool tb_arena_chunk_trusted(const struct tb_arena_region *region, uint32_t shard, uint32_t k);
/* Makes it so. TB_CHUNK_DIGEST: it did not match; it is no longer held and the arena has a new life
 * (logged). TB_CHUNK_ABSENT. */
TB_MUST_USE enum tb_status tb_arena_chunk_verify(struct tb_arena_region *region, uint32_t shard, uint32_t k);
/* The same for a chunk that somebody found to be wrong: it is digested whether trusted or not. */
TB_MUST_USE enum tb_status tb_arena_chunk_recheck(struct tb_arena_region *region, uint32_t shard, uint32_t k);

/* So many chunks of the shard failed since this was last asked. One caller asks: each
 * failure counts once. */
uint32_t tb_arena_place_rotted(struct tb_arena_region *region, uint32_t shard);

struct tb_arena_verified {
    uint64_t bytes;  /* digested in this step */
    uint32_t chunks; /* likewise */
    uint32_t bad;    /* chunks that failed in this step: not held any more; the life is new */
    uint32_t proven; /* shards whose last proof tb_arena_prove_step made in this step */
};
/* Digests held chunks that were found at open, at least one and until max_bytes are passed. For a
 * thread of low priority; a free that meets it waits for the chunk in hand (a few ms). TB_AGAIN:
 * there is more; TB_END: all are verified. */
TB_MUST_USE enum tb_status tb_arena_verify_step(struct tb_arena *arena, uint64_t max_bytes,
                                                struct tb_arena_verified *done_out);
/* Makes proofs of held chunks that lack one, where tb_arena_prove_later was called: at least one
 * and until max_bytes are passed. `suspects`: also of those that tb_arena_verify_step would digest,
 * which nobody calls. Threads and answers are those of tb_arena_verify_step. */
TB_MUST_USE enum tb_status tb_arena_prove_step(struct tb_arena *arena, uint64_t max_bytes, bool suspects,
                                               struct tb_arena_verified *done_out);

#endif

/* arena_proofs.h - the proofs of an arena's chunks (base/layout/manifest.h): at home made of chunks
 * as they land, elsewhere heard from peers, and kept in the file.
 *
 * Threads: the main loop alone. */
#ifndef TB_GATEWAY_ARENA_PROOFS_H
#define TB_GATEWAY_ARENA_PROOFS_H

#include "base/layout/manifest.h"

struct tb_arena;
struct tb_arena_region;

/* Here chunks of these models get their proofs: as they land, and as those that an earlier process
 * left are verified. Once, before a place is claimed or a chunk is verified. */
void tb_arena_prove(struct tb_arena *arena, bool (*of)(void *user, const struct tb_name *model), void *user);
/* `later`: chunks that land get their proofs in tb_arena_prove_step (arena_verify.h), which a
 * thread calls again and again; else as they land. Before tb_arena_prove. False: this arena
 * makes them as chunks land all the same (the simulator's). */
bool tb_arena_prove_later(struct tb_arena *arena, bool later);
/* Its shards have their digests, and every chunk of them has a proof. */
bool tb_arena_region_proven(const struct tb_arena_region *region);
uint64_t tb_arena_region_proven_bytes(const struct tb_arena_region *region);
/* Of a shard that has space: its proofs may be set. */
struct tb_manifest *tb_arena_manifest(struct tb_arena_region *region, uint32_t shard);
/* The proofs of each shard of which all are known go to the file, once: a restart finds them. An
 * extent that an older release made has no space for them. */
void tb_arena_proofs_keep(struct tb_arena_region *region);
/* Proofs of the file do not fit the signature of home: no chunk has one any more. Before any thread
 * looks at the region. */
void tb_arena_proofs_drop(struct tb_arena_region *region);

#endif

/* arena_reserve.h - space in an arena: a region for a version, and in it a place for each shard.
 * Threads: as arena.h says. */
#ifndef TB_GATEWAY_ARENA_RESERVE_H
#define TB_GATEWAY_ARENA_RESERVE_H

#include "base/ident.h"
#include "base/layout/manifest.h"
#include "gateway/arena/arena.h"

struct tb_arena_region;

/* A region without shards yet, for a version whose shards come one after another.
 * key->root may be zero.
 *   TB_DONE_BEFORE  the uid has a region: *region_out is that one
 *   TB_CONFLICT     it has, with another key (the root aside); *region_out is untouched
 *   TB_SITE_NOMEM   no slot, no heap
 *   TB_TOO_LARGE    more shards than the file has slots, for its life; error_out has the numbers */
TB_MUST_USE enum tb_status tb_arena_region_new(struct tb_arena *arena, const struct tb_version_key *key,
                                               struct tb_arena_region **region_out,
                                               char error_out[TB_ARENA_ERROR_BYTES]);
/* Space for one shard. The manifest is copied; its digests may come later (tb_arena_digests_done).
 *   TB_DONE_BEFORE  the shard has space and an equal manifest root
 *   TB_CONFLICT     it has space with another root
 *   TB_SITE_NOMEM   it does not fit: error_out says how much it needs, how much is free, and the
 *                   largest piece; nothing was changed
 *   TB_BAD_ARGUMENT shard is not below the key's shard_count */
TB_MUST_USE enum tb_status tb_arena_shard_reserve(struct tb_arena_region *region, uint32_t shard,
                                                  const struct tb_manifest *manifest,
                                                  char error_out[TB_ARENA_ERROR_BYTES]);
/* Both for all shards of a version in one step: all or nothing. manifests[s] is shard s; count must
 * be key->shard_count. */
TB_MUST_USE enum tb_status tb_arena_reserve(struct tb_arena *arena, const struct tb_version_key *key,
                                            const struct tb_manifest *const *manifests, uint32_t count,
                                            struct tb_arena_region **region_out,
                                            char error_out[TB_ARENA_ERROR_BYTES]);
/* Once all of place->manifest->digests are filled: checks them against the manifest's root and
 * writes them to the file, so that held bits set from now on survive. Until then nothing may be
 * claimed there. A reserve with complete digests has done this already. TB_DONE_BEFORE;
 * TB_CHUNK_DIGEST: they do not hash to the root; TB_BAD_STATE: the shard has no space. */
TB_MUST_USE enum tb_status tb_arena_digests_done(struct tb_arena_region *region, uint32_t shard);

#endif

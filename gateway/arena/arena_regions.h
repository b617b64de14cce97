/* arena_regions.h - the regions of an arena, one for each version, and the places in them.
 *
 * Threads: as arena.h says. A region pointer is valid until tb_arena_free; a thread that did not
 * agree on that with the freeing thread holds a pin (ref/unref) meanwhile. Places are used without
 * any lock, as place.h says. */
#ifndef TB_GATEWAY_ARENA_REGIONS_H
#define TB_GATEWAY_ARENA_REGIONS_H

#include "base/ident.h"
#include "base/layout/place.h"

struct tb_arena;
struct tb_arena_region;

struct tb_arena_region *tb_arena_region(struct tb_arena *arena, const struct tb_id *uid); /* NULL: none */
/* The region after `previous` in the order in which they were made (NULL: the first), or NULL. */
struct tb_arena_region *tb_arena_region_next(struct tb_arena *arena, struct tb_arena_region *previous);

/* Stays valid with the region; the root is zero until it was set. */
const struct tb_version_key *tb_arena_region_key(const struct tb_arena_region *region);
/* Once the version is ready. TB_CONFLICT: another root was set before. */
TB_MUST_USE enum tb_status tb_arena_region_set_root(struct tb_arena_region *region,
                                                    const struct tb_digest *root);
/* Every shard has space and its digests. */
bool tb_arena_region_complete(const struct tb_arena_region *region);
bool tb_arena_region_whole(const struct tb_arena_region *region); /* complete, and every chunk is held */
/* Tells the chunks held of each shard that is ready, and returns whether what was told is the whole
 * version. While it is told, streams and hops land: a thread that counts and then asks
 * tb_arena_region_whole may hear of a whole version whose last chunk was in no count. */
bool tb_arena_region_tell(const struct tb_arena_region *region,
                          void (*fn)(void *user, uint32_t shard, uint32_t held_chunks), void *user);
/* NULL until the shard has space. The same address for the region's life; after a restart claims
 * are clear and held bits as they were. */
struct tb_place *tb_arena_place(struct tb_arena_region *region, uint32_t shard);
/* True once digests are complete: the place may be claimed and served. */
bool tb_arena_place_ready(const struct tb_arena_region *region, uint32_t shard);

/* Pins: a stream, hop or export that may touch the bytes keeps one. */
void tb_arena_region_ref(struct tb_arena_region *region);
void tb_arena_region_unref(struct tb_arena_region *region);
/* TB_BAD_STATE while pinned: try again when the last pin is gone. Else the region is gone, in the
 * file too, and its pointers with it. */
TB_MUST_USE enum tb_status tb_arena_free(struct tb_arena_region *region);

#endif

/* arena_copy.h - the gateway's own copy of a version. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_ARENA_COPY_H
#define TB_GATEWAY_CATALOG_ARENA_COPY_H

#include "base/layout/manifest.h"
#include "gateway/catalog/catalog.h"

/* A shard as its manifest describes it. */
struct tb_catalog_shard {
    struct tb_digest root;
    struct tb_digest layout_id;
    uint32_t chunk_count;
    uint64_t bytes;
    uint64_t manifest_bytes; /* tb_manifest_decoded_bytes; 0: not at home */
};

/* Call it at start for each shard found in the arena, and when the manifest of a crossing came. At
 * home seals say it. TB_CONFLICT: it was sealed with another root. */
TB_MUST_USE enum tb_status tb_catalog_arena_shard(struct tb_catalog *c, tb_time_ns now,
                                                  const struct tb_id *uid, uint32_t shard,
                                                  const struct tb_catalog_shard *info);

/* The gateway has space for it and may serve it from now on, held or not yet. At home, call it at
 * the first seal. */
TB_MUST_USE enum tb_status tb_catalog_arena_reserved(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid);

/* The bitmap of a shard has so many chunks; it only grows. Cheap: call it at each look at a
 * bitmap. */
TB_MUST_USE enum tb_status tb_catalog_arena_progress(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid, uint32_t shard,
                                                     uint32_t held_chunks);

/* So many bytes of it have come over links and hops, whether they are whole chunks yet or not. The
 * count begins anew with a new crossing. Call it once a second: on a slow path a chunk takes longer
 * than a lease time, after which a version without any progress counts as lost or stuck. */
TB_MUST_USE enum tb_status tb_catalog_arena_came(struct tb_catalog *c, tb_time_ns now,
                                                 const struct tb_id *uid, uint64_t bytes);

/* A chunk failed its re-verification, and the shard has only so many now. Of a shard that is not
 * whole a higher count is ignored: other chunks may have landed since. References elsewhere are
 * asked again. TB_DONE_BEFORE: the shard is whole.
 *
 * Where no other holder has all of it, home reads from all that hold a part (LAND_FROM, CROSS). It
 * judges the version lost when nothing has come from them for a lease time, and not while a site
 * that holds a part is cut off. */
TB_MUST_USE enum tb_status tb_catalog_arena_shrunk(struct tb_catalog *c, tb_time_ns now,
                                                   const struct tb_id *uid, uint32_t shard,
                                                   uint32_t held_chunks);

/* The memory of an EVICT was given back. */
TB_MUST_USE enum tb_status tb_catalog_evicted(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid);

struct tb_catalog_room {
    uint64_t needed;    /* bytes asked for */
    uint64_t evictable; /* could go, or is going */
    uint64_t heads;     /* held by heads */
    uint64_t pinned;    /* held by readers and operators' pins */
    uint64_t last_copies;
    uint64_t arriving;
};

/* Asks for `bytes_needed` beyond the free ones.
 *   TB_OK          nothing is needed
 *   TB_AGAIN       EVICT todos come or are out: ask again after tb_catalog_evicted
 *   TB_SITE_NOMEM  it does not fit, and room_out has the numbers; nothing is evicted for it
 *
 * The oldest whole version goes first, then superseded partial ones, then bases of crossings. These
 * never go: a head, a version with readers or an operator's pin, the last copy of one of the newest
 * `keep`, and anything during recovery (TB_AGAIN while that could help). */
TB_MUST_USE enum tb_status tb_catalog_make_room(struct tb_catalog *c, tb_time_ns now, uint64_t bytes_needed,
                                                struct tb_catalog_room *room_out);

/* It is the base of a crossing under way, or no more. `keep` spares a base, and
 * tb_catalog_make_room takes it last. TB_NOT_FOUND, TB_DONE_BEFORE. */
TB_MUST_USE enum tb_status tb_catalog_base(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                           bool used);

#endif

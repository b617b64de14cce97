/* arena_copy.h - the gateway's own copy of a version. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_ARENA_COPY_H
#define TB_GATEWAY_CATALOG_ARENA_COPY_H

#include "base/layout/manifest.h"
#include "gateway/catalog/catalog.h"

/* At start, for each shard of each region found in the arena, and when a crossing's manifest came:
 * what the shard is. At home seals say it. TB_CONFLICT: it is another root than was sealed. */
struct tb_catalog_shard {
    struct tb_digest root;
    struct tb_digest layout_id;
    uint32_t chunk_count;
    uint64_t bytes;
    uint64_t manifest_bytes; /* tb_manifest_decoded_bytes; 0: not home, where nobody adds it up */
};

TB_MUST_USE enum tb_status tb_catalog_arena_shard(struct tb_catalog *c, tb_time_ns now,
                                                  const struct tb_id *uid, uint32_t shard,
                                                  const struct tb_catalog_shard *info);

/* The gateway has space for it and may serve it from now on, held or not yet. At home: call
 * it at the first seal. */
TB_MUST_USE enum tb_status tb_catalog_arena_reserved(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid);

/* What the bitmap of a shard says; it only grows. Cheap: call it as often as the
 * bitmaps are looked at. */
TB_MUST_USE enum tb_status tb_catalog_arena_progress(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *uid, uint32_t shard,
                                                     uint32_t held_chunks);

/* So many bytes for it came so far over links and hops, whether chunks became of them or not; from
 * 0 again when it begins again. Once a second will do: on a slow path a chunk takes longer than
 * the lease time after which home calls what nobody brings lost, and any site a crossing that
 * brings nothing stuck. */
TB_MUST_USE enum tb_status tb_catalog_arena_came(struct tb_catalog *c, tb_time_ns now,
                                                 const struct tb_id *uid, uint64_t bytes);

/* A chunk failed its re-verification: the shard has only so many now; and not fewer than before
 * where others have landed since: of a shard that is not whole it is believed. TB_DONE_BEFORE: it
 * is whole. References elsewhere are asked again. Where nobody else has all of it, home reads from
 * all that have a part (LAND_FROM, CROSS), and judges nothing lost until nothing has come from them
 * for one lease time; while a site that has a part is cut off, not at all. */
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

/* `bytes_needed` beyond what is free. TB_OK: nothing is needed. TB_AGAIN: EVICT todos come or are
 * out, ask again after tb_catalog_evicted. TB_SITE_NOMEM: it does not fit, room_out says why;
 * nothing is evicted for it. Order: the oldest whole version, then superseded partial ones, then
 * bases of crossings. Never: a head, a version with readers or an operator's pin, the last copy of
 * one of the newest `keep`, or anything during recovery (TB_AGAIN while that could help). */
TB_MUST_USE enum tb_status tb_catalog_make_room(struct tb_catalog *c, tb_time_ns now, uint64_t bytes_needed,
                                                struct tb_catalog_room *room_out);

/* It is the base of a crossing under way, or no more: `keep` spares it meanwhile, and who needs
 * room takes it last. TB_NOT_FOUND, TB_DONE_BEFORE. */
TB_MUST_USE enum tb_status tb_catalog_base(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                           bool used);

#endif

/* unpublish.h - a rank takes its memory back. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_UNPUBLISH_H
#define TB_GATEWAY_CATALOG_UNPUBLISH_H

#include "gateway/catalog/catalog.h"

/* Hides this session's reference to that shard, or to all that it sealed (TB_CATALOG_ALL_SHARDS),
 * at once. UNPUBLISHED follows: TB_OK when nothing retained is lost by it, TB_TIMEOUT after
 * drain_ns (at most config.drain_ns). TB_NOT_FOUND: it has none. TB_DONE_BEFORE: all of them are
 * being unpublished already, and are not gone yet: UNPUBLISHED follows for those that were asked
 * for then, by one request or several. */
TB_MUST_USE enum tb_status tb_catalog_unpublish(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_id *session, const struct tb_id *uid,
                                                uint32_t shard, tb_time_ns drain_ns);

/* Likewise of one shard whose memory goes when the drain ends: the reference does not come
 * back, and what is lost with it is told as of a rank that was lost. UNPUBLISHED says
 * TB_PEER_REVOKED then. TB_DONE_BEFORE: it is being unpublished already; it goes by itself from
 * now on, when the earlier of the two drains ends, and what was hidden with it drains on. A
 * seal of it at another export takes that back, and any other unpublish of it: UNPUBLISHED says
 * TB_TIMEOUT of that shard. */
TB_MUST_USE enum tb_status tb_catalog_unpublish_gone(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *session, const struct tb_id *uid,
                                                     uint32_t shard, tb_time_ns drain_ns);

/* Is a reference of this session to that shard, or to any (TB_CATALOG_ALL_SHARDS), hidden, or is an
 * UNPUBLISHED about it not taken yet? Until then nobody may be told how it ended. */
bool tb_catalog_unpublishing(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                             uint32_t shard);

#endif

/* unpublish.h - a rank takes its memory back. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_UNPUBLISH_H
#define TB_GATEWAY_CATALOG_UNPUBLISH_H

#include "gateway/catalog/catalog.h"

/* Hides the session's reference to that shard, or all of them (TB_CATALOG_ALL_SHARDS), at once.
 * UNPUBLISHED follows: TB_OK when no retained byte is lost by it, TB_TIMEOUT after drain_ns (at
 * most config.drain_ns).
 *   TB_NOT_FOUND    the session has none
 *   TB_DONE_BEFORE  all of them are hidden already; UNPUBLISHED follows for the earlier requests */
TB_MUST_USE enum tb_status tb_catalog_unpublish(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_id *session, const struct tb_id *uid,
                                                uint32_t shard, tb_time_ns drain_ns);

/* The same of one shard whose memory goes when the drain ends. The reference does not come back
 * then: UNPUBLISHED says TB_PEER_REVOKED, and the loss is told as when a rank is lost. A seal at
 * another export takes the request back, and UNPUBLISHED says TB_TIMEOUT of that shard.
 *   TB_DONE_BEFORE  the shard is hidden already: it goes by itself from now on, when the earlier of
 *                   the two drains ends. References hidden with it drain on. */
TB_MUST_USE enum tb_status tb_catalog_unpublish_gone(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *session, const struct tb_id *uid,
                                                     uint32_t shard, tb_time_ns drain_ns);

/* A reference of the session to that shard, or to any (TB_CATALOG_ALL_SHARDS), is hidden, or its
 * UNPUBLISHED was not taken yet. Until then nobody may be told how it ended. */
bool tb_catalog_unpublishing(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                             uint32_t shard);

#endif

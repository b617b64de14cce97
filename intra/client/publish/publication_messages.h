/* publication_messages.h - SEAL and UNPUBLISH of a sealed shard. NULL: no memory. */
#ifndef TB_INTRA_CLIENT_PUBLICATION_MESSAGES_H
#define TB_INTRA_CLIENT_PUBLICATION_MESSAGES_H

#include "base/ident.h"

struct tb_publication;
struct tb_request;
struct tb_session;

struct tb_request *tb_publication_seal(struct tb_session *s, const struct tb_publication *p);
#define TB_UNPUBLISH_ALL UINT32_MAX
/* One shard that this session sealed, or all of them. */
struct tb_request *tb_publication_unpublish(struct tb_session *s, const struct tb_id *uid, uint32_t shard,
                                            uint32_t drain_ms);
/* Likewise of one whose memory goes when the drain ends: the gateway is not to count on it after
 * that. */
struct tb_request *tb_publication_gone_request(struct tb_session *s, const struct tb_publication *p,
                                               uint32_t drain_ms);

#endif

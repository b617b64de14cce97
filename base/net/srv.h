/* srv.h - SRV answers of a name server, read from their raw bytes, and the order in which their
 * targets are tried (RFC 2782). Pure: the bytes are a stranger's, and c-ares' own reader leaves out
 * how long they may be kept. */
#ifndef TB_BASE_NET_SRV_H
#define TB_BASE_NET_SRV_H

#include <stddef.h>
#include <stdint.h>

#include "tombolo/status.h"

#define TB_SRV_TARGETS_MAX 8 /* of the lowest priorities; what an answer has more is left out */

struct tb_srv_target {
    char host[256];
    uint16_t priority; /* the lowest is tried first */
    uint16_t weight;   /* a share of those of its priority */
    uint16_t port;
};

struct tb_srv_answer {
    uint32_t count;
    uint32_t ttl_s; /* the least of the answer's records, as it stands there */
    struct tb_srv_target targets[TB_SRV_TARGETS_MAX];
};

/* A whole DNS message: targets by growing priority. TB_NOT_FOUND: no SRV record, or the one that
 * says that there is no such service (its target is "."). TB_PEER_GARBLED: no DNS answer, or a name
 * that is none; *out is undefined. */
TB_MUST_USE enum tb_status tb_srv_read(const uint8_t *message, size_t bytes,
                                       struct tb_srv_answer *answer_out);

/* Within a priority a target comes first as often as its weight says. `random` decides. */
void tb_srv_order(struct tb_srv_answer *answer, uint64_t random);

#endif

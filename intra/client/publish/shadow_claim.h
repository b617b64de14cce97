/* shadow_claim.h - which shadow the next version is written to. */
#ifndef TB_INTRA_CLIENT_SHADOW_CLAIM_H
#define TB_INTRA_CLIENT_SHADOW_CLAIM_H

#include "intra/client/session/session_lock.h"

struct tb_publication;
struct tb_session;

/* Under the lock. Waits until one of the two shadows may be written; TB_TIMEOUT, TB_CANCELLED,
 * TB_SITE_NOMEM. */
enum tb_status tb_shadow_take(struct tb_session *s, struct tb_publication *p, uint64_t bytes,
                              const struct tb_call *call);

#endif

/* shadow_claim.h - which shadow the next version is written to. */
#ifndef TB_INTRA_CLIENT_SHADOW_CLAIM_H
#define TB_INTRA_CLIENT_SHADOW_CLAIM_H

#include "intra/client/session/session_lock.h"

struct tb_publication;
struct tb_registration;
struct tb_session;

/* Under the lock. Waits until one of the two shadows may be written; TB_TIMEOUT, TB_CANCELLED,
 * TB_SITE_NOMEM. */
enum tb_status tb_shadow_claim_take(struct tb_session *s, struct tb_publication *p, uint64_t bytes,
                                    const struct tb_call *call);
/* Under the lock: memory of so many bytes is prepared for a shadow of that model and shard: the
 * first one, `of` a registration; without it, as many as there may be. */
void tb_shadow_claim_prepare(struct tb_session *s, const struct tb_publication *p, uint64_t bytes, bool pin,
                             struct tb_registration *of);
/* Under the lock, once it is sealed: what the next version of it needs is prepared. classes: of its
 * deltas; 0: there are none. */
void tb_shadow_claim_next(struct tb_session *s, const struct tb_publication *p, uint32_t classes, bool pin);

#endif

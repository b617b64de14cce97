/* staging_fill.h - how a staging fills: plans become hops, and what hops say. By the session
 * thread, under the lock. */
#ifndef TB_INTRA_CLIENT_STAGING_FILL_H
#define TB_INTRA_CLIENT_STAGING_FILL_H

#include "intra/client/follow/staging.h"

/* By the session thread, under the lock. */
enum tb_status tb_staging_plan(struct tb_session *s, const struct tb_msg_plan *m);
/* Proofs of its chunks: one that its hop waits with is asked for. */
enum tb_status tb_staging_proofs(struct tb_session *s, const struct tb_msg_proofs *m);
void tb_stagings_advance(struct tb_session *s); /* what pool and hops have done since */
/* A chunk of it is not held any more, as it was damaged: it is fetched again. */
void tb_staging_read_again(struct tb_session *s, struct tb_staging *st);
/* The gateway sends nobody there any more. */
void tb_staging_unserve(struct tb_session *s, struct tb_staging *st);
/* It goes: hops that decode from it end, and other sources are asked for. */
void tb_staging_base_goes(struct tb_session *s, const struct tb_staging *base);

#endif

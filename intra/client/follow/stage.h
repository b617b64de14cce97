/* stage.h - how a subscription asks for a version, and lets it go. */
#ifndef TB_INTRA_CLIENT_STAGE_H
#define TB_INTRA_CLIENT_STAGE_H

#include "intra/client/follow/staged_use.h"
#include "intra/client/session/session_lock.h"

/* Under the lock: posts STAGE. */
int tb_use_ask(struct tb_subscription *sub, struct tb_staged_use *use);
/* Under the lock: the gateway is told to forget what is staged here, and asked for it again: a
 * whole one gets a source again. */
int tb_use_ask_anew(struct tb_subscription *sub, struct tb_staged_use *use, const struct tb_call *call);
/* Under the lock, let go meanwhile: the gateway hears that the version goes from here with this
 * use. */
void tb_use_tell_release(struct tb_session *s, const struct tb_staging *st);

#endif

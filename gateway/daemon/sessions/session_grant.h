/* session_grant.h - a worker is asked to let a reader in at its door, and answers. */
#ifndef TB_DAEMON_SESSION_GRANT_H
#define TB_DAEMON_SESSION_GRANT_H

#include "base/net/wire.h"
#include "base/time.h"
#include "gateway/daemon/sessions/grant_table.h"
#include "intra/fabric/fabric.h"

struct tb_worker_session;

/* Asks the owner, which is connected, to accept grant->token from the reader with this
 * certificate. Sets owner and deadline of the row. grant->answer is called once, later, unless
 * tb_grants_drop comes first. TB_SITE_NOMEM: nothing was asked. */
TB_MUST_USE enum tb_status tb_grant_ask(struct tb_worker_session *owner, struct tb_grant_wait *grant,
                                        const struct tb_fingerprint *reader);
/* GRANTED. Anything but TB_OK ends the session: the peer broke the protocol. */
enum tb_status tb_worker_granted_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
/* Owners that did not answer in time. */
void tb_grants_tick(struct tb_daemon *d, tb_time_ns now);

#endif

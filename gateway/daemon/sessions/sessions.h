/* sessions.h - workers' connections. */
#ifndef TB_DAEMON_SESSIONS_H
#define TB_DAEMON_SESSIONS_H

#include <stdint.h>

#include "tombolo/status.h"

struct tb_daemon;
struct tb_id;
struct tb_worker_session;

TB_MUST_USE enum tb_status tb_sessions_open(struct tb_daemon *d);
void tb_sessions_shut(struct tb_daemon *d); /* no new ones */
void tb_sessions_close(struct tb_daemon *d);
/* The CAs changed: workers whose certificate is not trusted any more have to come again. */
void tb_sessions_distrust(struct tb_daemon *d);
void tb_sessions_revoke(struct tb_daemon *d); /* the list of revoked certificates is another */
void tb_sessions_tick(struct tb_daemon *d, uint64_t wall_s);
void tb_worker_over(struct tb_worker_session *s, enum tb_status why);    /* the catalog knows already */
void tb_worker_leaves(struct tb_daemon *d, const struct tb_id *session); /* the catalog hears it now */
uint32_t tb_sessions_max(const struct tb_daemon *d); /* connections; some of them may be about to say HELLO */

#endif

/* sessions_check.h - what holds of the rows of sessions, and of all that hangs on them, between two
 * turns. An assert that fails here is a mistake of this gateway. */
#ifndef TB_DAEMON_SESSIONS_CHECK_H
#define TB_DAEMON_SESSIONS_CHECK_H

struct tb_daemon;

/* Walks all sessions, seals that wait for room, and grants. */
void tb_sessions_check(const struct tb_daemon *d);

#endif

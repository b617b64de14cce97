/* session_check.h - asserts what holds of a session's tables while its lock is free. */
#ifndef TB_INTRA_CLIENT_SESSION_CHECK_H
#define TB_INTRA_CLIENT_SESSION_CHECK_H

struct tb_session;

/* A turn of the session thread ends. Under the lock. Only where turns are checked
 * (TB_CHECK_TURNS). */
void tb_session_check_turn(struct tb_session *s);
/* In every build; once a second. Under the lock. */
void tb_session_check(struct tb_session *s);

#endif

/* daemon_check.h - what holds of the daemon's tables between two turns of the loop. An assert that
 * fails here is a mistake of ours. Nothing that a peer, a worker or a file says is asserted. */
#ifndef TB_DAEMON_DAEMON_CHECK_H
#define TB_DAEMON_DAEMON_CHECK_H

struct tb_daemon;

/* Walks all rows once: of copies, sessions, withdrawals, limits, records and rows of the store. */
void tb_daemon_check(const struct tb_daemon *d);
/* The dispatcher's: a turn ended. Checks where turns are checked (TB_CHECK_TURNS). */
void tb_daemon_check_turn(const struct tb_daemon *d);

#endif

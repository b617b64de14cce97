/* daemon_check.h - what holds of the daemon's tables between two turns of the loop. An assert that
 * fails here is a mistake of ours. Nothing that a peer, a worker or a file says is asserted. */
#ifndef TB_DAEMON_DAEMON_CHECK_H
#define TB_DAEMON_DAEMON_CHECK_H

struct tb_daemon;

/* Once a second: all rows of all tables; among them statements and the arena's tables, which dev
 * builds check behind each change. */
void tb_daemon_check_all(struct tb_daemon *d);
/* At the end of each turn. Where turns are checked (TB_CHECK_TURNS), small tables are checked now.
 * Of large ones each turn pays for some rows, and the check runs once all are paid for. */
void tb_daemon_check_turn(struct tb_daemon *d);

#endif

/* daemon_check.h - what holds of this folder's tables between two turns of the loop, and how often
 * that is checked. */
#ifndef TB_DAEMON_CHECK_H
#define TB_DAEMON_CHECK_H

struct tb_daemon;

/* Walks all tables once. The dispatcher has drawn its conclusions. */
void tb_daemon_check(const struct tb_daemon *d);
/* At the end of each turn. Where turns are checked (TB_CHECK_TURNS), small tables are checked now.
 * Of large ones each turn pays for some rows, and the check runs once all are paid for. */
void tb_daemon_check_turn(struct tb_daemon *d);

#endif

/* copies_check.h - what holds of the rows of copies between two turns. An assert that fails here is
 * a mistake of this gateway. Nothing that a peer, a worker or a file says is asserted. */
#ifndef TB_DAEMON_COPIES_CHECK_H
#define TB_DAEMON_COPIES_CHECK_H

struct tb_daemon;

/* Walks all copies and their hops. The dispatcher has drawn its conclusions. */
void tb_copies_check(const struct tb_daemon *d);

#endif

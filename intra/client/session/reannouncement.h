/* reannouncement.h - what this session holds, said again after a cut. */
#ifndef TB_INTRA_CLIENT_REANNOUNCEMENT_H
#define TB_INTRA_CLIENT_REANNOUNCEMENT_H

#include <stdbool.h>

struct tb_session;

/* Puts what this session holds in front of all requests that wait. Session thread, under the lock.
 * same: the gateway knew the session. */
void tb_announce(struct tb_session *s, bool same);

#endif

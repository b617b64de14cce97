/* connection.h - the session thread and its wire to the gateway. */
#ifndef TB_INTRA_CLIENT_CONNECTION_H
#define TB_INTRA_CLIENT_CONNECTION_H

#include "tombolo/tombolo.h"

struct tb_session;

enum tb_status tb_connection_open(struct tb_session *s, const struct tb_session_options *options);
void tb_connection_close(struct tb_session *s); /* joins the thread */
/* How long after an attempt that failed the next one begins; `attempts`: those that did before it,
 * in a row. A gateway that starts anew waits for a lease before it calls lost what nobody has told
 * it of (design: recovery), so nobody is away from it for longer than a third of that. lease_ms 0:
 * no gateway has said yet. */
uint32_t tb_connection_retry_ms(uint32_t attempts, uint32_t lease_ms, uint32_t random);

#endif

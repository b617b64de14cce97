/* notices.h - what the gateway says without being asked. */
#ifndef TB_INTRA_CLIENT_NOTICES_H
#define TB_INTRA_CLIENT_NOTICES_H

#include "base/net/wire.h"

struct tb_session;

/* Session thread, under the lock. */
enum tb_status tb_notice(struct tb_session *s, struct tb_wire_frame *frame);

#endif

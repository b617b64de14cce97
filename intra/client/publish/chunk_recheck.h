/* chunk_recheck.h - this process digests its own copy of a chunk that a reader reported. */
#ifndef TB_INTRA_CLIENT_CHUNK_RECHECK_H
#define TB_INTRA_CLIENT_CHUNK_RECHECK_H

#include "intra/session_msg.h"

struct tb_session;

/* A reader got a damaged chunk from here, the gateway says. */
void tb_recheck(struct tb_session *s, const struct tb_msg_doubt *m);

#endif

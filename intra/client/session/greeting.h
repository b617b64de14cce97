/* greeting.h - HELLO and its answer, on one wire after the other. Called by the session thread,
 * without the lock. */
#ifndef TB_INTRA_CLIENT_GREETING_H
#define TB_INTRA_CLIENT_GREETING_H

#include "base/net/wire.h"
#include "intra/session_msg.h"

struct tb_session;

struct tb_greeting {
    struct tb_session *session;
    bool by_unix; /* to a gateway of this host */
    struct tb_wire *wire;
    uint64_t hello; /* request id */
    /* The fabric was opened for the other kind of network: dial again at once. */
    bool reopening;
    char refusal[TB_TEXT_BYTES_MAX + 1]; /* in the gateway's words; empty: none */
};

/* Says HELLO on a new wire; opens the fabric before if there is none. Not TB_OK: close the wire. */
TB_MUST_USE enum tb_status tb_greeting_begin(struct tb_greeting *g, struct tb_wire *wire);
/* TB_OK: the gateway welcomes this session. TB_AGAIN: the fabric is another one now, so the wire
 * has to be dialled again. Any other status: close the wire with it. */
TB_MUST_USE enum tb_status tb_greeting_answer(struct tb_greeting *g, struct tb_wire_frame *frame,
                                              struct tb_msg_welcome *welcome_out);

#endif

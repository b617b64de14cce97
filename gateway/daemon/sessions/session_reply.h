/* session_reply.h - replies to workers, and their rights. */
#ifndef TB_DAEMON_SESSION_REPLY_H
#define TB_DAEMON_SESSION_REPLY_H

#include "base/ident.h"
#include "base/net/wire.h"
#include "gateway/daemon/sessions/session_table.h"

void tb_worker_refusal_log(struct tb_worker_session *s, const char *event, const char *what, const char *why);
void tb_worker_reply(struct tb_worker_session *s, uint64_t request, enum tb_status status, const char *why);
/* P8. Logs and counts a refusal. */
enum tb_status tb_worker_may(struct tb_worker_session *s, const struct tb_name *model, bool publish);
void tb_worker_refused_audit(struct tb_worker_session *s, const char *what, const char *why);
void tb_worker_denied(struct tb_worker_session *s, const char *what, const char *why); /* logs and counts */
/* A frame of `type` around the encoder of one message; nothing when the worker is away. */
#define TB_WORKER_SEND(s, type, request, message, bytes, encode)                                             \
    do {                                                                                                     \
        struct tb_writer *send_w = (s)->wire ? tb_wire_begin((s)->wire, (type), (request), (bytes)) : NULL;  \
        if (send_w != NULL) {                                                                                \
            encode((message), send_w);                                                                       \
            tb_wire_end((s)->wire);                                                                          \
        }                                                                                                    \
    } while (0)
#define TB_WORKER_SMALL 4096 /* bytes: enough for any message without a span */

#endif

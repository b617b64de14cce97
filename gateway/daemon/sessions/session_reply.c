/* session_reply.c - replies to workers, and their rights: each refusal names the list and the
 * identity that it lacks. */
#include "gateway/daemon/daemon.h"

#include <stdio.h>

#include "base/assert.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/rights.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

/* A refusal names the list and the identity that it lacks, for the operator to add. It does not
 * say whether there is such a model (P8). */
static void denied_say(const struct tb_worker_session *s, char why_out[TB_TEXT_BYTES_MAX + 1])
{
    char identity[TB_URI_BYTES_MAX];
    tb_identity_format(&s->identity, identity);
    if (s->denied_model.text[0] == '\0')
        snprintf(why_out, TB_TEXT_BYTES_MAX + 1, "no publish or read list of the gateway's models has %.150s",
                 identity);
    else
        snprintf(why_out, TB_TEXT_BYTES_MAX + 1, "models.%s.%s of the gateway does not list %.146s",
                 s->denied_model.text, s->denied_publish ? "publish" : "read", identity);
}

void tb_worker_reply(struct tb_worker_session *s, uint64_t request, enum tb_status status, const char *why)
{
    struct tb_msg_reply reply = {.status_negated = tb_msg_status_put(status)};
    snprintf(reply.why.text, sizeof reply.why.text, "%s", why != NULL ? why : "");
    if (status == TB_PEER_DENIED && reply.why.text[0] == '\0') denied_say(s, reply.why.text);
    TB_WORKER_SEND(s, TB_MSG_REPLY, request, &reply, TB_WORKER_SMALL, tb_msg_reply_encode);
}

void tb_worker_refusal_log(struct tb_worker_session *s, const char *event, const char *what, const char *why)
{
    char identity[TB_URI_BYTES_MAX];
    tb_identity_format(&s->identity, identity);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, event);
    tb_log_str(&l, "worker", s->name.text);
    tb_log_str(&l, "identity", identity);
    tb_log_str(&l, "what", what);
    tb_log_str(&l, "why", why);
    tb_log_end(&l);
}

/* Of a worker that is let in, or not: a denial for the audit record. */
void tb_worker_refused_audit(struct tb_worker_session *s, const char *what, const char *why)
{
    char identity[TB_URI_BYTES_MAX];
    tb_identity_format(&s->identity, identity);
    tb_audit_denied(s->d, &(struct tb_audit_event){"session", identity, what, s->name.text, why}, 1);
}

void tb_worker_denied(struct tb_worker_session *s, const char *what, const char *why)
{
    s->d->counters.denied++;
    tb_worker_refusal_log(s, "session.denied", what, why);
    tb_worker_refused_audit(s, what, why);
}

enum tb_status tb_worker_may(struct tb_worker_session *s, const struct tb_name *model, bool publish)
{
    TB_ASSERT(s->welcomed);
    if (tb_rights_may(s->d->config, model, &s->identity, publish)) return TB_OK;
    char why[TB_NAME_BYTES_MAX + 40];
    snprintf(why, sizeof why, "models.%s.%s does not list it", model->text, publish ? "publish" : "read");
    tb_worker_denied(s, model->text, why);
    s->denied_model = *model;
    s->denied_publish = publish;
    return TB_PEER_DENIED;
}

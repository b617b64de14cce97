/* request.c - questions to the gateway by id: queued in order, sent when a wire is up, asked again
 * after a cut, given up by their caller.
 *
 * Promise P4: a request that was answered is never matched again; one that was cut is sent again
 * with the same id, and every message of intra/session_msg.h may be asked twice. */
#include "intra/client/session/request.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/client/session/session.h"

/* Fields besides spans: at most a few names, texts and keys. */
#define FIELDS_BYTES_MAX 2048

struct tb_request *tb_request_new(struct tb_session *s, uint16_t type, uint16_t expect, size_t spans_bytes)
{
    (void)s;
    const size_t cap = FIELDS_BYTES_MAX + spans_bytes;
    struct tb_request *request = tb_malloc(sizeof *request + cap);
    if (request == NULL) return NULL;
    memset(request, 0, sizeof *request);
    request->type = type;
    request->expect = expect;
    tb_writer_init(&request->payload, request + 1, cap);
    return request;
}

void tb_request_free(struct tb_request *request)
{
    if (request == NULL) return;
    tb_free(request->answer);
    tb_free(request);
}

void tb_request_post(struct tb_session *s, struct tb_request *request)
{
    TB_ASSERT_LOCKED(s);
    TB_ASSERT(request->next == NULL && !request->sent);
    TB_ASSERT(!request->payload.full);
    if (request->expect != 0) request->id = ++s->next_request;
    struct tb_request **at = &s->requests;
    while (*at != NULL)
        at = &(*at)->next;
    request->next = NULL;
    *at = request;
    tb_session_wake(s);
}

void tb_request_farewell(struct tb_session *s, struct tb_request *request)
{
    TB_ASSERT_LOCKED(s);
    if (request == NULL) {
        tb_log(TB_LOG_ERROR, "session.farewell_failed", "status=site_nomem");
        return;
    }
    TB_ASSERT(request->fn == NULL && !request->done);
    request->detached = request->farewell = true;
    tb_request_post(s, request);
}

static void unlink_request(struct tb_session *s, struct tb_request *request)
{
    for (struct tb_request **at = &s->requests; *at != NULL; at = &(*at)->next) {
        if (*at == request) {
            *at = request->next;
            return;
        }
    }
}

static bool gateway_answers_later(uint16_t type)
{
    return type == TB_MSG_WAIT || type == TB_MSG_WAIT_SITE;
}

/* The caller gives up: a late answer finds nothing and is dropped. */
static void give_up(struct tb_session *s, struct tb_request *request)
{
    TB_ASSERT(!request->done && !request->detached);
    unlink_request(s, request);
    if (!request->sent || !gateway_answers_later(request->type)) return;
    struct tb_request *cancel = tb_request_new(s, TB_MSG_CANCEL, 0, 0);
    if (cancel == NULL) return; /* the gateway's own timeout ends it */
    const struct tb_msg_cancel m = {.request = request->id};
    tb_msg_cancel_encode(&m, &cancel->payload);
    tb_request_post(s, cancel);
}

enum tb_status tb_request_wait(struct tb_session *s, struct tb_request *request, const struct tb_call *call)
{
    TB_ASSERT(request->expect != 0); /* a notice has no answer */
    tb_request_post(s, request);
    return tb_request_await(s, request, call);
}

enum tb_status tb_request_await(struct tb_session *s, struct tb_request *request, const struct tb_call *call)
{
    TB_ASSERT_LOCKED(s);
    while (!request->done) {
        const enum tb_status status = tb_session_wait_change(s, call);
        if (status == TB_OK || request->done) continue;
        give_up(s, request);
        return status == TB_TIMEOUT && !s->up ? TB_GATEWAY_AWAY : status;
    }
    return request->status; /* the session thread took it off the list */
}

static int explain(struct tb_session *s, enum tb_status status, const struct tb_request *request,
                   const char *what)
{
    if (status == TB_GATEWAY_AWAY)
        return tb_fail(status, "%s: the gateway at %s has been away for %.1f s: %s", what, s->gateway_text,
                       (double)tb_time_since(s->down_since, tb_clock_now()) / 1e9, s->down_text);
    if (status == TB_TIMEOUT && !request->done)
        return tb_fail(status, "%s: no answer from the gateway at %s in the time given", what,
                       s->gateway_text);
    if (request->why[0] != '\0') return tb_fail(status, "%s: %s", what, request->why);
    return tb_fail(status, "%s", what);
}

int tb_request_call(struct tb_session *s, struct tb_request *request, const struct tb_call *call,
                    const char *what)
{
    if (request == NULL) return tb_fail(TB_SITE_NOMEM, "%s: no memory for the request", what);
    if (request->payload.used > TB_MSG_FRAME_BYTES_MAX)
        return tb_fail(TB_TOO_LARGE, "%s: the message has %zu bytes and may have %u: use more shards", what,
                       request->payload.used, TB_MSG_FRAME_BYTES_MAX);
    tb_session_lock(s);
    const enum tb_status status = tb_request_wait(s, request, call);
    const int result =
        status == TB_OK || status == TB_DONE_BEFORE ? (int)status : explain(s, status, request, what);
    tb_session_unlock(s);
    return result;
}

/* ---- the session thread's side ---- */

/* An answer is believed only once it decodes: later its caller may decode it again without a look
 * at the status. */
static enum tb_status check_answer(uint16_t type, struct tb_reader payload)
{
    union {
        struct tb_msg_run run;
        struct tb_msg_version version;
        struct tb_msg_manifests manifests;
        struct tb_msg_status_text text;
    } m;
    switch (type) {
    case TB_MSG_RUN:
        return tb_msg_run_decode(&payload, &m.run);
    case TB_MSG_VERSION:
        return tb_msg_version_decode(&payload, &m.version);
    case TB_MSG_MANIFESTS:
        return tb_msg_manifests_decode(&payload, &m.manifests);
    case TB_MSG_STATUS_TEXT:
        return tb_msg_status_text_decode(&payload, &m.text);
    default:
        return TB_PEER_GARBLED;
    }
}

static enum tb_status keep_reply(struct tb_request *request, struct tb_reader *payload)
{
    struct tb_msg_reply reply;
    const enum tb_status status = tb_msg_reply_decode(payload, &reply);
    if (status != TB_OK) return status;
    request->status = tb_msg_status_get(reply.status_negated);
    /* "Done" without what was asked for would let the caller use an answer that is not there. */
    if (request->status == TB_OK && request->expect != TB_MSG_REPLY) return TB_PEER_GARBLED;
    snprintf(request->why, sizeof request->why, "%s", reply.why.text);
    return TB_OK;
}

static enum tb_status keep_answer(struct tb_request *request, const struct tb_wire_frame *frame)
{
    const enum tb_status status = check_answer(frame->type, frame->payload);
    if (status != TB_OK) return status;
    request->answer_bytes = frame->payload.left;
    request->answer = tb_malloc(request->answer_bytes + 1);
    if (request->answer == NULL) {
        request->status = TB_SITE_NOMEM;
        return TB_OK;
    }
    memcpy(request->answer, frame->payload.at, request->answer_bytes);
    request->status = TB_OK;
    return TB_OK;
}

enum tb_status tb_request_answer(struct tb_session *s, struct tb_wire_frame *frame)
{
    TB_ASSERT_LOCKED(s);
    struct tb_request *request = s->requests;
    while (request != NULL && request->id != frame->request)
        request = request->next;
    if (request == NULL || !request->sent) return TB_OK; /* its caller gave up */
    if (frame->type != TB_MSG_REPLY && frame->type != request->expect) return TB_PEER_GARBLED;
    const enum tb_status status =
        frame->type == TB_MSG_REPLY ? keep_reply(request, &frame->payload) : keep_answer(request, frame);
    if (status != TB_OK) return status;

    TB_ASSERT(request->id != 0 && !request->done);
    request->done = true;
    unlink_request(s, request);
    tb_session_changed(s, false);
    if (request->fn != NULL) request->fn(s, request, request->user);
    if (request->detached) tb_request_free(request);
    return TB_OK;
}

static void drop_where(struct tb_session *s, bool all)
{
    struct tb_request **at = &s->requests;
    while (*at != NULL) {
        struct tb_request *request = *at;
        const bool ours = request->id == 0 || request->detached;
        const bool drop = ours && (all || request->id == 0 || request->announcement);
        if (drop) {
            *at = request->next;
            tb_request_free(request);
            continue;
        }
        request->sent = false;
        at = &request->next;
    }
}

void tb_requests_withdraw(struct tb_session *s, uint16_t type, const struct tb_id *uid, uint32_t subscription)
{
    TB_ASSERT_LOCKED(s);
    for (struct tb_request **at = &s->requests; *at != NULL;) {
        struct tb_request *request = *at;
        const bool meant = subscription == 0 || request->number == subscription;
        if (!meant || !request->detached || request->type != type || !tb_id_equal(&request->uid, uid)) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        tb_request_free(request);
    }
}

void tb_requests_unsent(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    drop_where(s, false);
}

void tb_requests_drop(struct tb_session *s)
{
    drop_where(s, true);
}

/* ---- invariants ---- */

/* A notice has no answer and goes once it is sent; what nobody waits for is freed by the session
 * thread; what was sent went over the wire that is up. */
void tb_requests_check(const struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_request *request = s->requests; request != NULL; request = request->next) {
        TB_ASSERT(!request->done && request->answer == NULL);
        TB_ASSERT((request->id == 0) == (request->expect == 0));
        TB_ASSERT(request->id <= s->next_request);
        if (request->sent) TB_ASSERT(s->up && request->id != 0);
        if (request->farewell || request->announcement) TB_ASSERT(request->detached || request->id == 0);
        TB_ASSERT(!request->payload.full);
    }
}

/* waits.c - tb_wait and tb_wait_site: questions that the gateway answers when they come true.
 *
 * A caller that asks with timeout 0 polls behind the eventfd: what it asked is then left standing
 * at the gateway as a watch, whose answer only makes the eventfd readable; the caller asks again
 * and gets it. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

#define ASK_ONCE_MS 10000u /* timeout 0 still needs the gateway's answer */

static void fill_info(struct tb_version_info *info, const struct tb_msg_version *m)
{
    memcpy(info->uid.bytes, m->key.uid.bytes, sizeof info->uid.bytes);
    info->shard_count = m->key.shard_count;
    info->run_order = m->key.run_order;
    info->number = m->key.number;
    info->bytes = m->bytes;
    info->whole_here = m->whole_here;
}

static struct tb_request *wait_request(struct tb_session *s, const struct tb_msg_wait *m)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_WAIT, TB_MSG_VERSION, 0);
    if (request != NULL) tb_msg_wait_encode(m, &request->payload);
    return request;
}

/* ---- watches ---- */

static bool same_question(const struct tb_msg_wait *a, const struct tb_msg_wait *b)
{
    return a->kind == b->kind && tb_name_equal(&a->model, &b->model) && a->run_order == b->run_order &&
           a->number == b->number && tb_id_equal(&a->after, &b->after);
}

static void on_watched(struct tb_session *s, struct tb_request *request, void *user)
{
    (void)user;
    TB_ASSERT(request->number < TB_WATCHES_MAX);
    s->watches[request->number].used = false;
    tb_session_changed(s, true);
}

/* Best effort: with all watches in use the caller still polls. */
static void watch(struct tb_session *s, const struct tb_msg_wait *asked)
{
    uint32_t free_slot = TB_WATCHES_MAX;
    for (uint32_t i = 0; i < TB_WATCHES_MAX; i++) {
        if (s->watches[i].used && same_question(&s->watches[i].asked, asked)) return;
        if (!s->watches[i].used) free_slot = i;
    }
    if (free_slot == TB_WATCHES_MAX) return;
    struct tb_msg_wait m = *asked;
    m.timeout_ms = TB_WAIT_FOREVER;
    struct tb_request *request = wait_request(s, &m);
    if (request == NULL) return;
    s->watches[free_slot].used = true;
    s->watches[free_slot].asked = m;
    request->detached = true;
    request->fn = on_watched;
    request->number = free_slot;
    tb_request_post(s, request);
}

/* ---- tb_wait ---- */

static int check_wait(const struct tb_wait_options *o, const struct tb_version_info *info,
                      struct tb_msg_wait *m_out)
{
    if (o == NULL || o->struct_bytes < sizeof *o)
        return tb_fail(TB_BAD_ARGUMENT, "options.struct_bytes must be sizeof(struct tb_wait_options), %zu",
                       sizeof *o);
    if (info == NULL || info->struct_bytes < sizeof *info)
        return tb_fail(TB_BAD_ARGUMENT, "info.struct_bytes must be sizeof(struct tb_version_info), %zu",
                       sizeof *info);
    if (o->kind > TB_WAIT_NEXT) return tb_fail(TB_BAD_ARGUMENT, "wait kind %u is unknown", o->kind);
    memset(m_out, 0, sizeof *m_out);
    if (o->model == NULL || tb_name_set(&m_out->model, o->model) != TB_OK)
        return tb_fail(TB_BAD_ARGUMENT, "model \"%.80s\": 1 to 64 of A-Z a-z 0-9 . _ -",
                       o->model == NULL ? "" : o->model);
    m_out->kind = (uint8_t)o->kind;
    m_out->run_order = o->run_order;
    m_out->number = o->number;
    m_out->timeout_ms = o->timeout_ms;
    if (o->after != NULL) memcpy(m_out->after.bytes, o->after->bytes, sizeof m_out->after.bytes);
    return TB_OK;
}

/* The gateway is there, and the time is over. A call that asks once has its answer, or the gateway
 * gave none. */
static int timed_out(struct tb_session *s, const char *what, uint32_t timeout_ms, bool answered,
                     const char *lacks)
{
    if (timeout_ms != 0)
        return tb_fail(TB_TIMEOUT, "%s: %s within %.1f s", what, lacks, (double)timeout_ms / 1e3);
    if (answered) return tb_fail(TB_AGAIN, "%s: %s yet", what, lacks);
    return tb_fail(TB_AGAIN, "%s: the gateway at %s has not answered for %.1f s", what, s->gateway_text,
                   ASK_ONCE_MS / 1e3);
}

/* A gateway that is asked once answers TB_AGAIN. */
static bool is_over(int status, uint32_t timeout_ms)
{
    return status == TB_TIMEOUT || (status == TB_AGAIN && timeout_ms == 0);
}

static int ask(struct tb_session *s, const struct tb_msg_wait *m, struct tb_version_info *info_out)
{
    struct tb_request *request = wait_request(s, m);
    const struct tb_call call = tb_call_begin(s, m->timeout_ms == 0 ? ASK_ONCE_MS : m->timeout_ms);
    int status = tb_request_call(s, request, &call, "tb_wait");
    if (status == TB_OK) {
        struct tb_msg_version answer;
        TB_ANSWER_DECODE(request, tb_msg_version, &answer);
        fill_info(info_out, &answer);
    }
    if (is_over(status, m->timeout_ms)) {
        char lacks[TB_NAME_BYTES_MAX + 40];
        snprintf(lacks, sizeof lacks, "no such version of %s came", m->model.text);
        status = timed_out(s, "tb_wait", m->timeout_ms, request->done, lacks);
    }
    tb_request_free(request);
    return status;
}

/* Asking once does not wait for a gateway that is away. */
static int away_at_once(struct tb_session *s)
{
    tb_session_lock(s);
    const bool up = s->up;
    tb_session_unlock(s);
    return up ? TB_OK : tb_fail(TB_GATEWAY_AWAY, "the gateway at %s is away", s->gateway_text);
}

int tb_wait(struct tb_session *session, const struct tb_wait_options *options,
            struct tb_version_info *info_out)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct tb_msg_wait m = {0};
    status = check_wait(options, info_out, &m);
    if (status == TB_OK && m.timeout_ms == 0) status = away_at_once(session);
    if (status == TB_OK) status = ask(session, &m, info_out);
    if (m.timeout_ms == 0 && status == TB_AGAIN) {
        tb_session_lock(session);
        watch(session, &m);
        tb_session_unlock(session);
    }
    tb_session_leave(session);
    return status;
}

/* ---- tb_wait_site ---- */

static int wait_site(struct tb_session *s, const struct tb_msg_wait_site *m)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_WAIT_SITE, TB_MSG_REPLY, 0);
    if (request != NULL) tb_msg_wait_site_encode(m, &request->payload);
    const struct tb_call call = tb_call_begin(s, m->timeout_ms == 0 ? ASK_ONCE_MS : m->timeout_ms);
    int status = m->timeout_ms == 0 ? away_at_once(s) : TB_OK;
    if (status == TB_OK) status = tb_request_call(s, request, &call, "tb_wait_site");
    const char *site = m->site.text[0] != '\0' ? m->site.text : "this site";
    char lacks[TB_NAME_BYTES_MAX + 40];
    snprintf(lacks, sizeof lacks, "%s did not get there", site);
    if (is_over(status, m->timeout_ms))
        status = timed_out(s, "tb_wait_site", m->timeout_ms, request->done, lacks);
    tb_request_free(request);
    return status;
}

int tb_wait_site(struct tb_session *session, const struct tb_uid *uid, const char *site, uint32_t state,
                 uint32_t timeout_ms)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct tb_msg_wait_site m = {.state = (uint8_t)state, .timeout_ms = timeout_ms};
    if (uid == NULL || state > TB_SITE_ACTIVATED)
        status = tb_fail(TB_BAD_ARGUMENT, "a uid and a state of enum tb_site_state are needed");
    else if (site != NULL && tb_name_set(&m.site, site) != TB_OK)
        status = tb_fail(TB_BAD_ARGUMENT, "site \"%.80s\": 1 to 64 of A-Z a-z 0-9 . _ -", site);
    if (status == TB_OK) {
        memcpy(m.uid.bytes, uid->bytes, sizeof m.uid.bytes);
        status = wait_site(session, &m);
    }
    tb_session_leave(session);
    return status;
}

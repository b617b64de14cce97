/* live_asks.c - see live_asks.h.
 *
 * P8: the answer goes to operators alone, by the control socket. A row has the words of one session
 * about its own subscription; nobody speaks for another. */
#include "gateway/daemon/live/live_asks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/live/live_status.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

#define ERROR_BYTES    256 /* as control.h has it */
#define TIMEOUT_MS     60000
#define TIMEOUT_MS_MAX 600000
#define AGE_MS_MAX     UINT64_C(86400000) /* of what a worker says: a day */

enum row_state { ROW_ASKED, ROW_ANSWERED, ROW_AWAY, ROW_LEFT };

struct row {
    struct tb_id session;
    uint32_t subscription, index;
    struct tb_name worker, group;
    enum row_state state;
    uint64_t run_order, number; /* of what it spoke of; 0: not known here */
    struct tb_catalog_proof proof;
};

struct tb_live_ask {
    struct tb_live_ask *next;
    uint64_t number;
    struct tb_name model;
    tb_time_ns deadline;
    uint64_t ticket;
    json_t *reply; /* a reference of ours: the control socket has another */
    uint32_t count, left_out;
    struct row rows[];
};

/* ---- the answer ---- */

static const char *row_name(const struct row *r)
{
    static const char *const names[] = {[ROW_ASKED] = "no answer", [ROW_AWAY] = "away", [ROW_LEFT] = "left"};
    return r->state == ROW_ANSWERED ? tb_msg_verdict_name(r->proof.verdict) : names[r->state];
}

static json_t *row_json(const struct row *r)
{
    const bool said = r->state == ROW_ANSWERED;
    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:o}", "worker", r->worker.text, "group", r->group.text,
                     "rank", (json_int_t)r->index, "state", row_name(r), "run",
                     r->run_order != 0 ? json_integer((json_int_t)r->run_order) : json_null(), "number",
                     r->run_order != 0 ? json_integer((json_int_t)r->number) : json_null(), "proof",
                     said ? tb_live_status_proof(&r->proof) : json_null());
}

static bool reply_fill(const struct tb_live_ask *a, json_t *reply)
{
    json_t *workers = json_array();
    json_int_t counts[TB_MSG_PROVEN_END] = {0}, silent = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->rows[i].state == ROW_ANSWERED)
            counts[a->rows[i].proof.verdict]++;
        else
            silent += a->rows[i].state != ROW_LEFT;
        if (json_array_append_new(workers, row_json(&a->rows[i])) == 0) continue;
        json_decref(workers);
        return false;
    }
    const json_int_t proven = counts[TB_MSG_PROVEN_WHOLE] + counts[TB_MSG_PROVEN_BY_BOX];
    return json_object_set_new(reply, "workers", workers) == 0 &&
           json_object_set_new(reply, "proven", json_integer(proven)) == 0 &&
           json_object_set_new(reply, "differs", json_integer(counts[TB_MSG_PROVEN_DIFFERS])) == 0 &&
           json_object_set_new(reply, "not_provable", json_integer(counts[TB_MSG_PROVEN_NOT])) == 0 &&
           json_object_set_new(reply, "silent", json_integer(silent)) == 0 &&
           json_object_set_new(reply, "left_out", json_integer((json_int_t)a->left_out)) == 0;
}

/* ---- a question ---- */

static enum tb_status request_read(struct tb_daemon *d, const json_t *request, struct tb_name *model_out,
                                   uint32_t *timeout_ms_out, char *error)
{
    const char *model = json_string_value(json_object_get(request, "model"));
    const json_t *timeout = json_object_get(request, "timeout_ms");
    const json_int_t ms = timeout != NULL ? json_integer_value(timeout) : TIMEOUT_MS;
    struct tb_catalog_model m;
    if (model == NULL || ms < 1 || ms > TIMEOUT_MS_MAX) {
        snprintf(error, ERROR_BYTES, "the request needs \"model\"; \"timeout_ms\" is 1 to %d",
                 TIMEOUT_MS_MAX);
        return TB_BAD_ARGUMENT;
    }
    *timeout_ms_out = (uint32_t)ms;
    for (uint32_t cursor = 0; tb_catalog_model_at(d->catalog, &cursor, &m);) {
        if (strcmp(m.name.text, model) != 0) continue;
        *model_out = m.name;
        return TB_OK;
    }
    snprintf(error, ERROR_BYTES, "no model \"%.64s\" is configured here", model);
    return TB_NOT_FOUND;
}

static enum tb_status has_room(struct tb_daemon *d, const struct tb_name *model, char *error)
{
    for (const struct tb_live_ask *a = d->live.first; a != NULL; a = a->next) {
        if (!tb_name_equal(&a->model, model)) continue;
        snprintf(error, ERROR_BYTES, "the workers of %.64s are being asked already", model->text);
        return TB_CONFLICT;
    }
    if (d->live.gauge.used < TB_LIVE_ASKS_MAX) return TB_OK;
    d->live.gauge.refused++;
    snprintf(error, ERROR_BYTES, "the workers of %u models are being asked already", TB_LIVE_ASKS_MAX);
    return TB_SITE_NOMEM;
}

static uint32_t members_of(struct tb_daemon *d, const struct tb_name *model)
{
    uint32_t count = 0, cursor = 0;
    struct tb_catalog_member_view m;
    while (tb_catalog_member_at(d->catalog, &cursor, &m))
        count += tb_name_equal(&m.model, model);
    return count;
}

static void ask_worker(struct tb_daemon *d, const struct tb_live_ask *a, struct row *r)
{
    struct tb_worker_session *s = tb_worker_find(d, &r->session);
    const struct tb_msg_prove m = {.ask = a->number, .subscription = r->subscription};
    if (s == NULL || s->wire == NULL)
        r->state = ROW_AWAY;
    else
        TB_WORKER_SEND(s, TB_MSG_PROVE, 0, &m, TB_WORKER_SMALL, tb_msg_prove_encode);
}

static struct tb_live_ask *ask_new(struct tb_daemon *d, const struct tb_name *model)
{
    const uint32_t members = members_of(d, model);
    const uint32_t rows = members < TB_LIVE_ROWS_MAX ? members : TB_LIVE_ROWS_MAX;
    struct tb_live_ask *a = tb_calloc(1, sizeof *a + (size_t)rows * sizeof a->rows[0]);
    if (a == NULL) return NULL;
    /* An answer to a question of this gateway's process before is none to this one. */
    if (d->live.last == 0) d->live.last = tb_clock_wall_ms();
    a->number = ++d->live.last;
    a->model = *model;
    a->left_out = members - rows;
    uint32_t cursor = 0;
    struct tb_catalog_member_view m;
    while (a->count < rows && tb_catalog_member_at(d->catalog, &cursor, &m)) {
        if (!tb_name_equal(&m.model, model)) continue;
        a->rows[a->count++] = (struct row){.session = m.session,
                                           .subscription = m.subscription,
                                           .index = m.index,
                                           .worker = m.worker,
                                           .group = m.group};
        ask_worker(d, a, &a->rows[a->count - 1]);
    }
    TB_ASSERT(a->count == rows);
    return a;
}

static bool is_answered(const struct tb_live_ask *a)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->rows[i].state == ROW_ASKED) return false;
    return true;
}

enum tb_status tb_verify_command(void *user, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = user;
    struct tb_name model;
    uint32_t timeout_ms;
    enum tb_status status = request_read(d, request, &model, &timeout_ms, error);
    if (status == TB_OK) status = has_room(d, &model, error);
    if (status != TB_OK) return status;
    struct tb_live_ask *a = ask_new(d, &model);
    if (a == NULL) return TB_SITE_NOMEM;
    if (is_answered(a)) { /* by nobody: all are away, or there is none */
        const bool filled = reply_fill(a, reply);
        tb_free(a);
        return filled ? TB_OK : TB_SITE_NOMEM;
    }
    a->deadline = tb_time_add(tb_clock_now(), TB_MS(timeout_ms));
    a->ticket = tb_control_ticket(d->control);
    a->reply = json_incref(reply);
    a->next = d->live.first;
    d->live.first = a;
    tb_gauge_add(&d->live.gauge, 1);
    return TB_AGAIN;
}

static void ask_end(struct tb_daemon *d, struct tb_live_ask **at, enum tb_status status)
{
    struct tb_live_ask *a = *at;
    *at = a->next;
    TB_ASSERT(d->live.gauge.used > 0);
    d->live.gauge.used--;
    if (status == TB_OK && !reply_fill(a, a->reply)) status = TB_SITE_NOMEM;
    tb_control_release(d->control, a->ticket, status);
    json_decref(a->reply);
    tb_free(a);
}

/* A worker that left does not answer. */
static void look_for_left(struct tb_daemon *d, struct tb_live_ask *a)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->rows[i].state == ROW_ASKED && tb_worker_find(d, &a->rows[i].session) == NULL)
            a->rows[i].state = ROW_LEFT;
}

void tb_live_asks_tick(struct tb_daemon *d, tb_time_ns now)
{
    for (struct tb_live_ask **at = &d->live.first; *at != NULL;) {
        look_for_left(d, *at);
        if (is_answered(*at) || now >= (*at)->deadline)
            ask_end(d, at, TB_OK);
        else
            at = &(*at)->next;
    }
}

void tb_live_asks_check(const struct tb_live_asks *live)
{
    uint64_t count = 0;
    for (const struct tb_live_ask *a = live->first; a != NULL; a = a->next, count++) {
        TB_ASSERT(a->count > 0 && a->reply != NULL);
        TB_ASSERT(a->number <= live->last && (a->next == NULL || a->next->number < a->number));
    }
    TB_ASSERT(count == live->gauge.used && count <= TB_LIVE_ASKS_MAX);
}

void tb_live_asks_close(struct tb_daemon *d)
{
    while (d->live.first != NULL)
        ask_end(d, &d->live.first, TB_SITE_DRAINING);
}

const struct tb_name *tb_live_ask_at(const struct tb_daemon *d, uint32_t *cursor)
{
    const struct tb_live_ask *a = d->live.first;
    for (uint32_t i = 0; a != NULL && i < *cursor; i++)
        a = a->next;
    ++*cursor;
    return a != NULL ? &a->model : NULL;
}

/* ---- what a worker says ---- */

/* By its own session and subscription alone. */
static void answered(struct tb_daemon *d, const struct tb_worker_session *s, const struct tb_msg_proven *m,
                     const struct tb_catalog_proof *proof)
{
    struct tb_catalog_version_view v;
    const bool known = tb_catalog_version_get(d->catalog, &m->uid, &v);
    struct tb_live_ask *a = d->live.first;
    while (a != NULL && a->number != m->ask)
        a = a->next;
    for (uint32_t i = 0; a != NULL && i < a->count; i++) {
        struct row *r = &a->rows[i];
        if (r->subscription != m->subscription || !tb_id_equal(&r->session, &s->id)) continue;
        r->state = ROW_ANSWERED;
        r->proof = *proof;
        r->run_order = known ? v.key.run_order : 0;
        r->number = known ? v.key.number : 0;
    }
}

/* P10: names tensor and rank. */
static void alarm_raise(struct tb_daemon *d, const struct tb_worker_session *s, const struct tb_msg_proven *m)
{
    uint32_t cursor = 0;
    struct tb_catalog_member_view member;
    struct tb_catalog_version_view v;
    struct tb_log_line l;
    d->counters.live_bad++;
    tb_log_begin(&l, TB_LOG_ERROR, "live.differs");
    tb_log_str(&l, "worker", s->name.text);
    while (tb_catalog_member_at(d->catalog, &cursor, &member)) {
        if (member.subscription != m->subscription || !tb_id_equal(&member.session, &s->id)) continue;
        tb_log_str(&l, "model", member.model.text);
        tb_log_str(&l, "group", member.group.text);
        tb_log_u64(&l, "rank", member.index);
    }
    if (tb_catalog_version_get(d->catalog, &m->uid, &v)) {
        tb_log_u64(&l, "run", v.key.run_order);
        tb_log_u64(&l, "number", v.key.number);
    }
    tb_log_str(&l, "tensor", m->tensor.text);
    tb_log_u64(&l, "shard", m->shard);
    tb_log_u64(&l, "chunk", m->chunk);
    tb_log_end(&l);
}

enum tb_status tb_live_asks_proven_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_msg_proven m;
    bool alarms;
    if (tb_msg_proven_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    if (m.verdict == 0 || m.verdict >= TB_MSG_PROVEN_END || m.why >= TB_MSG_UNPROVABLE_END ||
        (m.verdict == TB_MSG_PROVEN_DIFFERS) != (m.bad > 0))
        return TB_PEER_GARBLED;
    const uint64_t age_ms = m.age_ms < AGE_MS_MAX ? m.age_ms : AGE_MS_MAX;
    const tb_time_ns now = tb_clock_now();
    struct tb_catalog_proof proof = {.uid = m.uid,
                                     .at = now > TB_MS(age_ms) ? now - TB_MS(age_ms) : 1,
                                     .verdict = m.verdict,
                                     .why = m.why,
                                     .bytes = m.bytes,
                                     .box_bytes = m.box_bytes,
                                     .blake3_bytes = m.blake3_bytes,
                                     .left_bytes = m.left_bytes,
                                     .took_ms = m.took_ms,
                                     .bad = m.bad,
                                     .shard = m.shard,
                                     .chunk = m.chunk};
    (void)snprintf(proof.tensor, sizeof proof.tensor, "%s", m.tensor.text);
    /* of what is not active any more: the answer counts, and the status has the newer version */
    TB_MOOT(tb_catalog_proven(d->catalog, &s->id, m.subscription, &proof, &alarms));
    if (alarms) alarm_raise(d, s, &m);
    if (m.done && m.ask != 0) answered(d, s, &m, &proof);
    return TB_OK;
}

/* session_publish.c - runs and versions that publishers open. */
#include "gateway/daemon/daemon.h"

#include "base/net/wire.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/models/quota.h"
#include "gateway/daemon/rights.h"
#include "gateway/daemon/sessions/held_reply.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/session_publish.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

/* Nothing new begins while durable rows cannot be written. */
static bool store_refuses(struct tb_worker_session *s, uint64_t request)
{
    if (!s->d->store_down) return false;
    tb_worker_reply(s, request, TB_SITE_STORE, "the gateway's store cannot be written; see its log");
    return true;
}

/* P10: the number of a new version has to be above this one. */
static void say_newest(const struct tb_daemon *d, const struct tb_name *model,
                       char why[TB_TEXT_BYTES_MAX + 1])
{
    struct tb_catalog_run run;
    if (!tb_catalog_run_newest(d->catalog, model, &run)) return;
    const unsigned long long order = run.order, last = run.last_number;
    if (run.has_last)
        snprintf(why, TB_TEXT_BYTES_MAX + 1, "the newest run of %s is %llu, and its newest version is %llu",
                 model->text, order, last);
    else
        snprintf(why, TB_TEXT_BYTES_MAX + 1, "the newest run of %s is %llu, which has no version yet",
                 model->text, order);
}

/* P10: which run was shut out, and by which. */
static void say_fenced(const struct tb_daemon *d, const struct tb_msg_run_open *m,
                       char why[TB_TEXT_BYTES_MAX + 1])
{
    struct tb_catalog_known_run known = {.order = 0};
    char run[64] = "the run with that key";
    (void)tb_catalog_known_run(d->catalog, &m->model, &known);
    if (m->was_order != 0) snprintf(run, sizeof run, "that key's run %llu", (unsigned long long)m->was_order);
    snprintf(why, TB_TEXT_BYTES_MAX + 1, "%s of %s was shut out: run %llu is newer", run, m->model.text,
             (unsigned long long)known.order);
}

/* P8 P10: a counter, a line, and what to do. */
static void say_may_not_fence(struct tb_worker_session *s, const struct tb_name *model,
                              char why[TB_TEXT_BYTES_MAX + 1])
{
    struct tb_catalog_run run = {0};
    (void)tb_catalog_run_newest(s->d->catalog, model, &run);
    snprintf(why, TB_TEXT_BYTES_MAX + 1,
             "models.%.64s.may_fence does not list it, and run %llu is of %.96s: join that run by its key, "
             "or list it",
             model->text, (unsigned long long)run.order, run.opened_by);
    tb_worker_denied(s, model->text, why);
}

/* The text of a refusal beside its status; "" where the status says all. */
static const char *publish_why(struct tb_daemon *d, const struct tb_name *model, enum tb_status status,
                               char out[TB_TEXT_BYTES_MAX + 1])
{
    struct tb_name home;
    out[0] = 0;
    if (status == TB_BAD_STATE) say_newest(d, model, out);
    if (status != TB_NOT_HOME || !tb_home_of(d, model, &home)) return out;
    snprintf(out, TB_TEXT_BYTES_MAX + 1, "the home of %s is %s, and this gateway is of %s: publish there",
             model->text, home.text, d->site.text);
    return out;
}

static void run_send(struct tb_worker_session *s, const struct tb_held_reply *h)
{
    TB_WORKER_SEND(s, TB_MSG_RUN, h->request, &h->run, TB_WORKER_SMALL, tb_msg_run_encode);
}

static void run_saved(struct tb_daemon *d, const struct tb_held_reply *h)
{
    tb_home_runs_opened(d, &h->model);
}

static void version_send(struct tb_worker_session *s, const struct tb_held_reply *h)
{
    TB_WORKER_SEND(s, TB_MSG_VERSION, h->request, &h->version, TB_WORKER_SMALL, tb_msg_version_encode);
}

/* ---- runs and versions ---- */

enum tb_status tb_worker_run_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_msg_run_open m;
    const struct tb_wire_frame whole = *frame;
    if (tb_msg_run_open_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    if (store_refuses(s, frame->request)) return TB_OK;
    enum tb_status status = tb_worker_may(s, &m.model, true);
    if (status == TB_OK && tb_home_runs_holds(s, &m.model, &whole)) return TB_OK;
    struct tb_catalog_run_request q = {
        .session = s->id, .model = m.model, .key = m.key.text, .joins = m.joins, .was_order = m.was_order};
    q.may_fence = tb_rights_fence(d->config, &m.model, &s->identity);
    tb_random_bytes(&q.fresh_id, sizeof q.fresh_id);
    struct tb_catalog_run run = {0};
    bool joined = false;
    if (status == TB_OK) status = tb_catalog_run_open(d->catalog, tb_clock_now(), &q, &run, &joined);
    if (status != TB_OK) {
        char why[TB_TEXT_BYTES_MAX + 1];
        const bool listed = tb_rights_may(d->config, &m.model, &s->identity, true);
        publish_why(d, &m.model, status, why);
        if (status == TB_FENCED) say_fenced(d, &m, why);
        if (status == TB_PEER_DENIED && listed) say_may_not_fence(s, &m.model, why);
        tb_worker_reply(s, frame->request, status, why);
        return TB_OK;
    }
    const struct tb_held_reply reply = {.request = frame->request,
                                        .send = run_send,
                                        .saved = run_saved,
                                        .model = m.model,
                                        .run = {.run = run.id,
                                                .run_order = run.order,
                                                .joined = joined,
                                                .has_last = run.has_last,
                                                .last_number = run.last_number,
                                                .resumed_run_order = run.resumed_run_order,
                                                .resumed_number = run.resumed_number,
                                                .shut_out_order = run.shut_out_order,
                                                .shut_out_has_last = run.shut_out_has_last,
                                                .shut_out_number = run.shut_out_number}};
    tb_reply_when_saved(s, &reply);
    return TB_OK;
}

enum tb_status tb_worker_version_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_msg_version_open m;
    const struct tb_wire_frame whole = *frame;
    if (tb_msg_version_open_decode(&frame->payload, &m) != TB_OK || frame->request == 0)
        return TB_PEER_GARBLED;
    if (store_refuses(s, frame->request)) return TB_OK;
    enum tb_status status = tb_worker_may(s, &m.model, true);
    if (status == TB_OK && tb_home_runs_holds(s, &m.model, &whole)) return TB_OK;
    struct tb_catalog_version_request q = {
        .session = s->id, .model = m.model, .run = m.run, .number = m.number, .shard_count = m.shard_count};
    tb_random_bytes(&q.fresh_uid, sizeof q.fresh_uid);
    struct tb_version_key key;
    char quota[TB_TEXT_BYTES_MAX + 1] = "";
    if (status == TB_OK) status = tb_quota_open(d, &m.model, &m.run, m.number, quota);
    if (status == TB_OK) status = tb_catalog_version_open(d->catalog, tb_clock_now(), &q, &key);
    if (status != TB_OK) {
        char why[TB_TEXT_BYTES_MAX + 1];
        const bool full = status == TB_SITE_NOMEM;
        publish_why(d, &m.model, status, why);
        if (status == TB_NOT_FOUND)
            snprintf(why, sizeof why, "this gateway does not know that run of %s: open the run again",
                     m.model.text);
        const char *table = quota[0] != '\0' ? quota : tb_catalog_full(d->catalog);
        tb_worker_reply(s, frame->request, status, full ? table : why);
        return TB_OK;
    }
    const struct tb_held_reply reply = {
        .request = frame->request,
        .send = version_send,
        .version = {.key = key, .classes = tb_home_landing_classes(d, &m.model)}};
    tb_reply_when_saved(s, &reply);
    return TB_OK;
}

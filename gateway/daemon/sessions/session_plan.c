/* session_plan.c - the catalog's plans told to both ends of a hop: the source's owner is granted a
 * token, and once it said that its door knows it, the reader is told whom to read from.
 *
 * Promise P6: an owner that does not answer (stopped, or behind a dead network) holds its
 * reader up for TB_GRANT_WAIT_NS; then another plan is made, and nobody else is sent
 * there until it speaks. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/fault.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/sessions/session_plan.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

/* A plan whose source's owner has not answered GRANT. */
struct tb_plan_wait {
    struct tb_plan_wait *next;
    struct tb_id token, owner, reader, uid;
    uint64_t export_id, plan;
    tb_time_ns until;
};

struct plan_source {
    struct tb_name name;
    const struct tb_fabric_endpoint *endpoint;
    uint64_t export_id;
    struct tb_span source;
};

static bool source_at_gateway(struct tb_daemon *d, const struct tb_id *uid, struct plan_source *out)
{
    const struct tb_copy *copy = tb_copy_find(d, uid);
    if (copy == NULL || copy->export_id == 0) return false;
    *out =
        (struct plan_source){d->gateway, &d->endpoint, copy->export_id, {copy->source, copy->source_bytes}};
    return true;
}

/* What it stages or, of a version of one shard, what it published: of a session that does both
 * the catalog said which. */
static const struct tb_worker_export *export_of(struct tb_worker_session *s, const struct tb_id *uid,
                                                uint64_t export_id)
{
    const struct tb_worker_export *e = tb_session_export_find(s, uid, TB_CATALOG_ALL_SHARDS);
    if (e == NULL || e->export_id != export_id) e = tb_session_export_find(s, uid, 0);
    return e != NULL && e->export_id == export_id ? e : NULL;
}

static bool source_at_worker(struct tb_daemon *d, const struct tb_id *owner, const struct tb_id *uid,
                             uint64_t export_id, struct plan_source *out)
{
    struct tb_worker_session *s = tb_session_find(d, owner);
    const struct tb_worker_export *e = s != NULL ? export_of(s, uid, export_id) : NULL;
    if (e == NULL || s->wire == NULL) return false;
    *out = (struct plan_source){s->name, &s->endpoint, e->export_id, {e->source, e->source_bytes}};
    return true;
}

static void plan_tell(struct tb_worker_session *reader, const struct tb_id *uid, uint64_t plan,
                      const struct plan_source *source, const struct tb_id *token)
{
    struct tb_session_plan m = {.uid = *uid, .plan = plan, .token = *token};
    m.source_name = source->name;
    m.export_id = source->export_id;
    m.host = source->endpoint->host;
    /* Equal host names mean `shm`, which a reader in another network namespace cannot dial. */
    if (reader->apart) TB_MOOT(tb_name_set(&m.host, "apart"));
    snprintf(m.shm_door.text, sizeof m.shm_door.text, "%s", source->endpoint->shm_door);
    snprintf(m.tcp.text, sizeof m.tcp.text, "%s", source->endpoint->tcp);
    m.tls = source->endpoint->tls;
    m.print = source->endpoint->fingerprint;
    m.source = source->source;
    reader->d->counters.plans++;
    tb_log(TB_LOG_INFO, "plan", "worker=%s source=%s plan=%llu", reader->name.text, source->name.text,
           (unsigned long long)plan);
    TB_SESSION_SEND(reader, TB_SESSION_PLAN, 0, &m, source->source.count + TB_SESSION_SMALL,
                    tb_session_plan_encode);
    TB_MOOT(tb_catalog_plan_told(reader->d->catalog, tb_clock_now(), &reader->id, uid, plan));
}

/* ---- a source that is a worker's ---- */

static enum tb_status grant_ask(struct tb_daemon *d, const struct tb_catalog_todo *todo,
                                const struct tb_worker_session *reader, const struct plan_source *source,
                                const struct tb_id *token)
{
    struct tb_worker_session *owner = tb_session_find(d, &todo->source_session);
    const bool full = d->plan_waits_used.used >= d->bounds.references; /* of which each has one plan */
    struct tb_plan_wait *wait = full ? NULL : tb_malloc(sizeof *wait);
    d->plan_waits_used.refused += full;
    if (wait == NULL) return TB_SITE_NOMEM;
    *wait = (struct tb_plan_wait){.next = d->plan_waits,
                                  .token = *token,
                                  .owner = todo->source_session,
                                  .reader = todo->session,
                                  .uid = todo->uid,
                                  .export_id = source->export_id,
                                  .plan = todo->plan,
                                  .until = tb_time_add(tb_clock_now(), TB_GRANT_WAIT_NS)};
    d->plan_waits = wait;
    tb_gauge_add(&d->plan_waits_used, 1);
    const struct tb_session_grant grant = {source->export_id, *token, reader->endpoint.fingerprint};
    TB_SESSION_SEND(owner, TB_SESSION_GRANT, 0, &grant, TB_SESSION_SMALL, tb_session_grant_encode);
    return TB_OK;
}

static void wait_free(struct tb_daemon *d, struct tb_plan_wait *wait)
{
    d->plan_waits_used.used--;
    tb_free(wait);
}

static void plan_fail(struct tb_daemon *d, const struct tb_id *reader, const struct tb_id *uid, uint64_t plan)
{
    TB_MOOT(tb_catalog_hop_lost(d->catalog, tb_clock_now(), reader, uid, plan));
}

/* What was planned may be over by now: its reader whole or gone, its source lost, a newer plan
 * made. */
static void plan_granted(struct tb_daemon *d, const struct tb_plan_wait *wait, enum tb_status status)
{
    struct tb_worker_session *reader = tb_session_find(d, &wait->reader);
    struct tb_catalog_reference_view view;
    struct plan_source source;
    if (reader == NULL || !tb_catalog_plan_get(d->catalog, &wait->reader, &wait->uid, wait->plan, &view))
        return;
    if (status == TB_OK && source_at_worker(d, &wait->owner, &wait->uid, wait->export_id, &source)) {
        plan_tell(reader, &wait->uid, wait->plan, &source, &wait->token);
        return;
    }
    tb_log(TB_LOG_WARN, "plan.not_granted", "worker=%s plan=%llu status=%s action=replan", reader->name.text,
           (unsigned long long)wait->plan, tb_status_name(status != TB_OK ? status : TB_NOT_FOUND));
    plan_fail(d, &wait->reader, &wait->uid, wait->plan);
}

enum tb_status tb_session_granted_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_session_granted m;
    if (tb_session_granted_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const enum tb_status status = tb_session_status_get(m.status_negated);
    if (status > TB_OK || status == TB_PEER_GARBLED) return TB_PEER_GARBLED;
    for (struct tb_plan_wait **at = &d->plan_waits; *at != NULL; at = &(*at)->next) {
        struct tb_plan_wait *wait = *at;
        if (!tb_id_equal(&wait->token, &m.token) || !tb_id_equal(&wait->owner, &s->id)) continue;
        *at = wait->next;
        plan_granted(d, wait, status);
        wait_free(d, wait);
        return TB_OK;
    }
    tb_home_landing_granted(s, &m.token, status); /* or of a plan that was given up */
    return TB_OK;
}

void tb_plan_waits_tick(struct tb_daemon *d, tb_time_ns now)
{
    for (struct tb_plan_wait **at = &d->plan_waits; *at != NULL;) {
        struct tb_plan_wait *wait = *at;
        if (now < wait->until) {
            at = &wait->next;
            continue;
        }
        *at = wait->next;
        tb_catalog_session_silent(d->catalog, now, &wait->owner);
        plan_granted(d, wait, TB_STREAM_IDLE);
        wait_free(d, wait);
    }
}

void tb_plan_waits_each(const struct tb_daemon *d, void (*each)(void *user, const struct tb_id *reader),
                        void *user)
{
    for (const struct tb_plan_wait *wait = d->plan_waits; wait != NULL; wait = wait->next)
        each(user, &wait->reader);
}

void tb_plan_waits_free(struct tb_daemon *d)
{
    while (d->plan_waits != NULL) {
        struct tb_plan_wait *wait = d->plan_waits;
        d->plan_waits = wait->next;
        wait_free(d, wait);
    }
}

/* ---- the catalog's todo ---- */

void tb_session_plan(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_worker_session *reader = tb_session_find(d, &todo->session);
    struct plan_source source;
    struct tb_id token;
    if (reader == NULL) return;
    tb_random_bytes(&token, sizeof token);
    const bool found = todo->from_gateway
                           ? source_at_gateway(d, &todo->uid, &source)
                           : source_at_worker(d, &todo->source_session, &todo->uid, todo->export_id, &source);
    enum tb_status status = found ? TB_OK : TB_NOT_FOUND; /* what the catalog planned is gone already */
    if (found && todo->from_gateway)
        status = tb_export_grant(d->fabric, source.export_id, &token, &reader->endpoint.fingerprint);
    else if (found)
        status = grant_ask(d, todo, reader, &source, &token);
    if (status != TB_OK)
        plan_fail(d, &todo->session, &todo->uid, todo->plan);
    else if (todo->from_gateway)
        plan_tell(reader, &todo->uid, todo->plan, &source, &token);
}

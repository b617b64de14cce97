/* session_plan.c - the catalog's plans told to both ends of a hop: the source's owner is granted a
 * token, and once it said that its door knows it, the reader is told whom to read from.
 *
 * Promise P6: where an owner does not answer in time (session_grant.c), another plan is made. The
 * catalog sends no other reader to that owner until it speaks. */
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/links/proofs.h"
#include "gateway/daemon/sessions/session_grant.h"
#include "gateway/daemon/sessions/session_plan.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/session_msg.h"

struct plan_source {
    struct tb_name name;
    const struct tb_fabric_endpoint *endpoint;
    uint64_t export_id;
    struct tb_span source;
    bool foreign; /* another worker's copy: its reader compares proofs (P1) */
};

static bool source_at_gateway(struct tb_daemon *d, const struct tb_id *uid, struct plan_source *out)
{
    const struct tb_copy *copy = tb_copy_find(d, uid);
    if (copy == NULL || copy->export_id == 0) return false;
    *out = (struct plan_source){.name = d->gateway,
                                .endpoint = &d->endpoint,
                                .export_id = copy->export_id,
                                .source = {copy->source, copy->source_bytes}};
    return true;
}

/* Its staging or, of a version of one shard, its published shard: of a session that has both, the
 * catalog said which. */
static const struct tb_worker_export *export_of(struct tb_worker_session *s, const struct tb_id *uid,
                                                uint64_t export_id)
{
    const struct tb_worker_export *e = tb_worker_export_find(s, uid, TB_CATALOG_ALL_SHARDS);
    if (e == NULL || e->export_id != export_id) e = tb_worker_export_find(s, uid, 0);
    return e != NULL && e->export_id == export_id ? e : NULL;
}

/* Of a version that is not here no more proofs come, and its workers have those that did. */
static bool may_be_judged(struct tb_daemon *d, const struct tb_id *uid)
{
    const struct tb_copy *copy = tb_copy_find(d, uid);
    return copy == NULL || tb_proofs_come(copy);
}

static bool source_at_worker(struct tb_daemon *d, const struct tb_id *owner, const struct tb_id *uid,
                             uint64_t export_id, struct plan_source *out)
{
    struct tb_worker_session *s = tb_worker_find(d, owner);
    const struct tb_worker_export *e = s != NULL ? export_of(s, uid, export_id) : NULL;
    if (e == NULL || s->wire == NULL) return false;
    *out = (struct plan_source){.name = s->name,
                                .endpoint = &s->endpoint,
                                .export_id = e->export_id,
                                .source = {e->source, e->source_bytes},
                                .foreign = e->shard == TB_CATALOG_ALL_SHARDS && may_be_judged(d, uid)};
    return true;
}

static void plan_tell(struct tb_worker_session *reader, const struct tb_id *uid, uint64_t plan,
                      const struct plan_source *source, const struct tb_id *token)
{
    TB_ASSERT(plan != 0 && !tb_id_is_zero(token));
    struct tb_msg_plan m = {.uid = *uid, .plan = plan, .token = *token};
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
    m.foreign = source->foreign;
    reader->d->counters.plans++;
    tb_log(TB_LOG_INFO, "plan", "worker=%s source=%s plan=%llu", reader->name.text, source->name.text,
           (unsigned long long)plan);
    TB_WORKER_SEND(reader, TB_MSG_PLAN, 0, &m, source->source.count + TB_WORKER_SMALL, tb_msg_plan_encode);
    TB_MOOT(tb_catalog_plan_told(reader->d->catalog, tb_clock_now(), &reader->id, uid, plan));
}

/* ---- a source that is a worker's ---- */

static void plan_fail(struct tb_daemon *d, const struct tb_id *reader, const struct tb_id *uid, uint64_t plan)
{
    TB_MOOT(tb_catalog_hop_lost(d->catalog, tb_clock_now(), reader, uid, plan));
}

/* The plan may be over by now: its reader is whole or gone, its source is lost, or there is a newer
 * plan. */
static void plan_granted(struct tb_daemon *d, const struct tb_grant_wait *grant, enum tb_status status)
{
    struct tb_worker_session *reader = tb_worker_find(d, &grant->reader);
    struct tb_catalog_reference_view view;
    struct plan_source source;
    if (status == TB_STREAM_IDLE) tb_catalog_session_silent(d->catalog, tb_clock_now(), &grant->owner);
    if (reader == NULL || !tb_catalog_plan_get(d->catalog, &grant->reader, &grant->uid, grant->plan, &view))
        return;
    if (status == TB_OK && source_at_worker(d, &grant->owner, &grant->uid, grant->export_id, &source)) {
        plan_tell(reader, &grant->uid, grant->plan, &source, &grant->token);
        return;
    }
    tb_log(TB_LOG_WARN, "plan.not_granted", "worker=%s plan=%llu status=%s action=replan", reader->name.text,
           (unsigned long long)grant->plan, tb_status_name(status != TB_OK ? status : TB_NOT_FOUND));
    plan_fail(d, &grant->reader, &grant->uid, grant->plan);
}

static enum tb_status grant_ask(struct tb_daemon *d, const struct tb_catalog_todo *todo,
                                const struct tb_worker_session *reader, const struct plan_source *source)
{
    struct tb_worker_session *owner = tb_worker_find(d, &todo->source_session);
    struct tb_grant_wait grant = {.answer = plan_granted,
                                  .reader = todo->session,
                                  .uid = todo->uid,
                                  .export_id = source->export_id,
                                  .plan = todo->plan};
    TB_ASSERT(owner != NULL);
    tb_random_bytes(&grant.token, sizeof grant.token);
    return tb_grant_ask(owner, &grant, &reader->endpoint.fingerprint);
}

/* ---- the catalog's todo ---- */

static enum tb_status from_gateway(struct tb_daemon *d, const struct tb_catalog_todo *todo,
                                   struct tb_worker_session *reader)
{
    struct plan_source source;
    struct tb_id token;
    if (!source_at_gateway(d, &todo->uid, &source)) return TB_NOT_FOUND;
    tb_random_bytes(&token, sizeof token);
    const enum tb_status status =
        tb_export_grant_of(d->fabric, source.export_id, &token, &reader->endpoint.fingerprint,
                           tb_worker_session_owner(&reader->identity));
    if (status != TB_OK) return status;
    plan_tell(reader, &todo->uid, todo->plan, &source, &token);
    return TB_OK;
}

static enum tb_status from_worker(struct tb_daemon *d, const struct tb_catalog_todo *todo,
                                  const struct tb_worker_session *reader)
{
    struct plan_source source;
    if (!source_at_worker(d, &todo->source_session, &todo->uid, todo->export_id, &source))
        return TB_NOT_FOUND;
    return grant_ask(d, todo, reader, &source);
}

/* TB_NOT_FOUND: the source that the catalog planned is gone already. */
void tb_worker_plan(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_worker_session *reader = tb_worker_find(d, &todo->session);
    if (reader == NULL) return;
    TB_ASSERT(todo->plan != 0);
    const enum tb_status status =
        todo->from_gateway ? from_gateway(d, todo, reader) : from_worker(d, todo, reader);
    if (status != TB_OK) plan_fail(d, &todo->session, &todo->uid, todo->plan);
}

/* reannouncement.c - after a cut the gateway may know nothing of us: what this session holds is
 * said again, in the order in which it came to be.
 *
 * A gateway that knows the session still has its runs and seals; subscriptions and stagings are
 * said again all the same, because notices that were on their way when the wire broke are lost. */
#include "intra/client/session/reannouncement.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/log.h"
#include "intra/client/follow/stage_request.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_notices.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/live/live_proof.h"
#include "intra/client/publish/publication.h"
#include "intra/client/publish/publication_messages.h"
#include "intra/client/session/request.h"
#include "intra/client/session/runs.h"
#include "intra/client/session/session.h"

static void log_refusal(struct tb_session *s, struct tb_request *request, void *user)
{
    (void)s;
    (void)user;
    if (request->status == TB_OK || request->status == TB_DONE_BEFORE) return;
    if (request->status == TB_CANCELLED) return; /* taken back by ourselves meanwhile */
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "session.announce_refused");
    tb_log_u64(&l, "type", request->type);
    tb_log_str(&l, "status", tb_status_name(request->status));
    tb_log_str(&l, "why", request->why);
    tb_log_end(&l);
}

/* A seal that is refused now, or a version that is gone, cannot be served from here any more. A
 * store that cannot be written for now is no such refusal: the gateway reads from here all the
 * same, and may have to be told again. */
static void after_seal(struct tb_session *s, struct tb_request *request, void *user)
{
    log_refusal(s, request, user);
    if (request->status >= TB_OK || request->status == TB_SITE_STORE) return;
    struct tb_publication *p = tb_publication_find(s, &request->uid, request->number);
    if (p == NULL) return;
    tb_publication_step(&p->life, TB_PUBLICATION_LOST);
    p->state = request->status;
    tb_session_changed(s, true);
}

static void post(struct tb_session *s, struct tb_request *request, tb_request_fn fn)
{
    TB_ASSERT_LOCKED(s);
    if (request == NULL) {
        tb_log(TB_LOG_ERROR, "session.announce_failed", "status=site_nomem");
        return;
    }
    request->detached = request->expect != 0;
    request->announcement = true;
    request->fn = fn;
    tb_request_post(s, request);
}

static struct tb_request *run_request(struct tb_session *s, const struct tb_run_opened *run)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_RUN_OPEN, TB_MSG_RUN, 0);
    if (request == NULL) return NULL;
    const struct tb_msg_run_open m = {.model = run->model, .key = run->key, .was_order = run->order};
    tb_msg_run_open_encode(&m, &request->payload);
    return request;
}

static void announce_publications(struct tb_session *s)
{
    for (const struct tb_run_opened *run = s->runs; run != NULL; run = run->next)
        post(s, run_request(s, run), log_refusal);
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next) {
        if (!tb_publication_is_announced(p->life) || p->state != TB_OK) continue;
        if (p->export_id == 0) continue; /* its readers drain: it is not there any more */
        struct tb_request *request = tb_publication_seal(s, p);
        if (request != NULL) {
            request->uid = p->uid;
            request->number = p->shard;
        }
        post(s, request, after_seal);
    }
}

/* Plans that were on their way are lost: a staging is asked for again, and the answer brings a
 * plan. A hop that still runs goes on until then. One that is whole is asked for too until it is
 * active: a restarted gateway knows no attempt of the group, and would give no go. */
static void announce_stagings(struct tb_session *s)
{
    for (struct tb_staging *st = s->stagings; st != NULL; st = st->next) {
        if (st->export_id == 0 && !(tb_staging_is_open(st->life) && tb_staging_reads_only(st))) continue;
        tb_staging_export_notice(s, st);
        if (st->life == TB_STAGING_WHOLE) tb_staging_progress_notice(s, st);
    }
    for (struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        for (struct tb_staged_use *use = sub->uses; use != NULL; use = use->next) {
            const struct tb_id *uid = &use->staging->uid;
            const bool active = tb_id_equal(uid, &sub->active) && !tb_id_equal(uid, &sub->torn);
            if (use->ended != TB_OK || active || tb_staging_has_failed(use->staging->life)) continue;
            if (!use->asked) continue; /* the gateway counts this member for another version */
            struct tb_request *request = tb_stage_request(s, sub, uid);
            if (request == NULL) continue; /* it stays as it is until the caller stages again */
            request->announcement = true;
            tb_request_post(s, request);
        }
    }
}

/* Farewells of what ended while the gateway was away come first: the same thing may have begun anew
 * since. A gateway that does not know it has nothing to end, and says so to nobody. */
static struct tb_request *take_farewells(struct tb_session *s)
{
    struct tb_request *first = NULL, **last = &first;
    for (struct tb_request **at = &s->requests; *at != NULL;) {
        struct tb_request *request = *at;
        if (!request->farewell) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        request->next = NULL;
        *last = request;
        last = &request->next;
    }
    return first;
}

void tb_announce(struct tb_session *s, bool same)
{
    TB_ASSERT_LOCKED(s);
    struct tb_request *farewells = take_farewells(s);
    struct tb_request *waiting = s->requests;
    s->requests = farewells;
    if (!same) announce_publications(s);
    for (struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        post(s, tb_subscribe_request(s, sub), log_refusal);
        tb_live_tell_again(sub);
    }
    announce_stagings(s);
    struct tb_request **at = &s->requests;
    while (*at != NULL)
        at = &(*at)->next;
    *at = waiting;
}

/* notices.c - what the gateway tells without being asked. A frame that does not decode, or says
 * what cannot be, closes the wire. */
#include "intra/client/session/notices.h"

#include <stdio.h>

#include "base/log.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_fill.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/live/live_proof.h"
#include "intra/client/live/prover.h"
#include "intra/client/publish/chunk_recheck.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"
#include "intra/fabric/fabric_exports.h"

static enum tb_status on_manifest(struct tb_session *s, struct tb_reader *payload)
{
    struct tb_msg_manifest m;
    const enum tb_status status = tb_msg_manifest_decode(payload, &m);
    return status == TB_OK ? tb_staging_manifest(s, &m) : status;
}

static enum tb_status on_proofs(struct tb_session *s, struct tb_reader *payload)
{
    struct tb_msg_proofs m;
    const enum tb_status status = tb_msg_proofs_decode(payload, &m);
    return status == TB_OK ? tb_staging_proofs(s, &m) : status;
}

static enum tb_status on_plan(struct tb_session *s, struct tb_reader *payload)
{
    struct tb_msg_plan m;
    const enum tb_status status = tb_msg_plan_decode(payload, &m);
    return status == TB_OK ? tb_staging_plan(s, &m) : status;
}

static void granted_notice(struct tb_session *s, const struct tb_id *token, enum tb_status status)
{
    struct tb_request *notice = tb_request_new(s, TB_MSG_GRANTED, 0, 0);
    if (notice == NULL) return; /* the gateway gives the plan up after a while */
    const struct tb_msg_granted m = {*token, tb_msg_status_put(status)};
    tb_msg_granted_encode(&m, &notice->payload);
    tb_request_post(s, notice);
}

static bool is_spoiled(const struct tb_session *s, uint64_t export_id)
{
    for (const struct tb_publication *p = s->publications; p != NULL; p = p->next)
        if (p->spoiled && p->export_id == export_id) return true;
    return false;
}

/* An export that has just been closed is no mistake: the token then opens nothing, and its reader
 * is given another source. */
static enum tb_status on_grant(struct tb_session *s, struct tb_reader *payload)
{
    struct tb_msg_grant m;
    enum tb_status status = tb_msg_grant_decode(payload, &m);
    if (status != TB_OK) return status;
    status = is_spoiled(s, m.export_id) ? TB_CHUNK_DIGEST
                                        : tb_export_grant(s->fabric, m.export_id, &m.token, &m.reader);
    if (status != TB_OK)
        tb_log(TB_LOG_DEBUG, "session.grant_refused", "export=%llu status=%s",
               (unsigned long long)m.export_id, tb_status_name(status));
    granted_notice(s, &m.token, status);
    return TB_OK;
}

static enum tb_status on_go(struct tb_session *s, struct tb_reader *payload)
{
    struct tb_msg_go m;
    const enum tb_status status = tb_msg_go_decode(payload, &m);
    if (status != TB_OK) return status;
    for (struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        if (sub->number != m.subscription) continue;
        struct tb_staged_use *use = tb_use_find(sub, &m.uid);
        if (use == NULL) continue; /* released meanwhile */
        use->go = true;
        tb_session_changed(s, true);
    }
    return TB_OK;
}

static void version_ended(struct tb_session *s, const struct tb_id *uid, enum tb_status why)
{
    for (struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        if (why == TB_VERSION_WITHDRAWN && tb_id_equal(&sub->active, uid)) sub->active_withdrawn = true;
        struct tb_staged_use *use = tb_use_find(sub, uid);
        if (use != NULL) use->ended = why;
    }
    struct tb_staging *st = tb_staging_find(s, uid);
    /* A broken group is not a broken version: what is held stays, and the next attempt goes on with
     * it. */
    if (st != NULL && st->life != TB_STAGING_WHOLE && why != TB_GROUP_BROKEN)
        tb_staging_fail(st, why, "the gateway ended the version");
}

static enum tb_status on_version_state(struct tb_session *s, struct tb_reader *payload)
{
    struct tb_msg_version_state m;
    const enum tb_status status = tb_msg_version_state_decode(payload, &m);
    if (status != TB_OK) return status;
    const enum tb_status why = tb_msg_status_get(m.status_negated);
    if (why > TB_OK || why == TB_PEER_GARBLED) return TB_PEER_GARBLED; /* no state of a version */
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next) {
        if (!tb_id_equal(&p->uid, &m.uid)) continue;
        if (why == TB_OK)
            p->kept = true;
        else if (why != TB_GROUP_BROKEN)
            p->state = why;
    }
    if (why != TB_OK) version_ended(s, &m.uid, why);
    tb_session_changed(s, true);
    return TB_OK;
}

static enum tb_status on_doubt(struct tb_session *s, struct tb_reader *payload)
{
    struct tb_msg_doubt m;
    const enum tb_status status = tb_msg_doubt_decode(payload, &m);
    if (status == TB_OK) tb_recheck(s, &m);
    return status;
}

/* One that has just left does not answer. */
static enum tb_status on_prove(struct tb_session *s, struct tb_reader *payload)
{
    struct tb_msg_prove m;
    const enum tb_status status = tb_msg_prove_decode(payload, &m);
    if (status != TB_OK) return status;
    if (m.ask == 0) return TB_PEER_GARBLED;
    for (struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next)
        if (sub->number == m.subscription) tb_live_begin(sub, m.ask);
    tb_prover_wake(s);
    return TB_OK;
}

enum tb_status tb_notice(struct tb_session *s, struct tb_wire_frame *frame)
{
    TB_ASSERT_LOCKED(s);
    switch (frame->type) {
    case TB_MSG_MANIFEST:
        return on_manifest(s, &frame->payload);
    case TB_MSG_PROOFS:
        return on_proofs(s, &frame->payload);
    case TB_MSG_PLAN:
        return on_plan(s, &frame->payload);
    case TB_MSG_GRANT:
        return on_grant(s, &frame->payload);
    case TB_MSG_GO:
        return on_go(s, &frame->payload);
    case TB_MSG_VERSION_STATE:
        return on_version_state(s, &frame->payload);
    case TB_MSG_DOUBT:
        return on_doubt(s, &frame->payload);
    case TB_MSG_PROVE:
        return on_prove(s, &frame->payload);
    default:
        return TB_PEER_GARBLED;
    }
}

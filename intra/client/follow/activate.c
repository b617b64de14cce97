/* activate.c - the short switch: after `go`, the version gets into the buffers that the rollout
 * computes from: copied from staging, or it is there already in others, or as a patch.
 *
 * Promise P2: nothing is copied before the gateway said `go` for the whole group, and after it this
 * member waits for no other. A `go` that was heard stays good while the gateway is away. */
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/client/follow/buffer_switch.h"
#include "intra/client/follow/stage.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_places.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/live/live_proof.h"
#include "intra/client/live/prover.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/tied_tensors_bytes.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

#define ASK_MS   10000u
#define FETCH_MS 30000u
/* Of a program built before there were ways to update. */
#define FIRST_INFO_BYTES offsetof(struct tb_activate_info, patched_bytes)

/* with `go` heard before, a gateway that hangs costs no more stall than this */
#define CONFIRM_MS 1000u

static struct tb_request *activate_request(struct tb_session *s, const struct tb_subscription *sub,
                                           const struct tb_id *uid)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_ACTIVATE, TB_MSG_REPLY, 0);
    if (request == NULL) return NULL;
    const struct tb_msg_activate m = {.subscription = sub->number, .uid = *uid};
    tb_msg_activate_encode(&m, &request->payload);
    return request;
}

static void activated_notice(struct tb_session *s, const struct tb_subscription *sub, const struct tb_id *uid,
                             const struct tb_activate_info *info)
{
    struct tb_request *notice = tb_request_new(s, TB_MSG_ACTIVATED, 0, 0);
    if (notice == NULL) return; /* the next SUBSCRIBE says it */
    const struct tb_msg_activated m = {.subscription = sub->number,
                                       .uid = *uid,
                                       .run_order = sub->active_run_order,
                                       .number = sub->active_number,
                                       .stall_ns = info->stall_ns,
                                       .copied_bytes = info->copied_bytes};
    tb_msg_activated_encode(&m, &notice->payload);
    tb_request_post(s, notice);
}

static enum tb_msg_way way_of(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    if (sub->registration == NULL) return TB_MSG_WAY_STAGED;
    if (use->staging->patch != NULL) return TB_MSG_WAY_PATCH;
    return sub->update == TB_UPDATE_SWITCH ? TB_MSG_WAY_SWITCH : TB_MSG_WAY_COPY;
}

/* Behind ACTIVATED, which a gateway of the release before takes as well (P9). */
static void updated_notice(struct tb_session *s, struct tb_subscription *sub, const struct tb_staged_use *use,
                           const struct tb_activate_info *info)
{
    sub->updated = (struct tb_msg_updated){.subscription = sub->number,
                                           .uid = use->staging->uid,
                                           .way = (uint8_t)way_of(sub, use),
                                           .stall_ns = info->stall_ns,
                                           .staged_bytes = info->staged_bytes,
                                           .copied_bytes = info->copied_bytes,
                                           .patched_bytes = info->patched_bytes,
                                           .fetched_chunks = info->fetched_chunks};
    const bool taken = (s->welcome.incarnation & TB_MSG_TAKES_UPDATED) != 0;
    struct tb_request *notice = taken ? tb_request_new(s, TB_MSG_UPDATED, 0, 0) : NULL;
    if (notice == NULL) return; /* the next one says its own */
    tb_msg_updated_encode(&sub->updated, &notice->payload);
    tb_request_post(s, notice);
}

/* P2: where the gateway cannot know what was active here: only forward, unless that was
 * withdrawn. */
static int may_follow(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    const struct tb_version_key *key = &use->staging->key;
    const bool older = key->run_order < sub->active_run_order ||
                       (key->run_order == sub->active_run_order && key->number < sub->active_number);
    if (older && !sub->active_withdrawn)
        return tb_fail(
            TB_BAD_STATE,
            "version %llu is older than the active %llu, of which no withdrawal was heard: ask tb_wait "
            "for a newer one",
            (unsigned long long)key->number, (unsigned long long)sub->active_number);
    return TB_OK;
}

static int may_go_alone(const struct tb_session *s, const struct tb_subscription *sub,
                        const struct tb_staged_use *use)
{
    if (!use->go)
        return tb_fail(TB_GATEWAY_AWAY, "the gateway at %s is away and has not said go for version %llu",
                       s->gateway_text, (unsigned long long)use->staging->key.number);
    return may_follow(sub, use);
}

/* The gateway's own words come first. A version that it does not count for this member has to be
 * staged again: tb_stage asks anew. */
static int refused(struct tb_staged_use *use, const struct tb_request *request, int status)
{
    if (request->done) use->asked = false;
    if (request->done && status == TB_BAD_STATE) use->go = false;
    return tb_fail(status, "version %llu cannot be activated: %s%s%s",
                   (unsigned long long)use->staging->key.number, request->why,
                   request->why[0] == '\0' ? "" : "; ", tb_staging_remedy(status));
}

/* Under the lock. */
static int ask_go(struct tb_session *s, struct tb_subscription *sub, struct tb_staged_use *use)
{
    if (!s->up) return may_go_alone(s, sub, use);
    struct tb_request *request = activate_request(s, sub, &use->staging->uid);
    if (request == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the request");
    const struct tb_call call = {
        .deadline = tb_time_add(tb_clock_now(), TB_MS(use->go ? CONFIRM_MS : ASK_MS)), .cancels = s->cancels};
    int status = tb_request_wait(s, request, &call);
    if (status == TB_DONE_BEFORE) status = TB_OK;
    if (status == TB_GATEWAY_AWAY || (status == TB_TIMEOUT && !request->done))
        status = may_go_alone(s, sub, use);
    else if (status == TB_AGAIN)
        tb_fail(TB_AGAIN, "not every member of group %s has version %llu whole", sub->group.text,
                (unsigned long long)use->staging->key.number);
    else if (status != TB_OK)
        (void)refused(use, request, status);
    tb_request_free(request);
    /* It was told of no active version. */
    return status == TB_OK && !tb_id_is_zero(&sub->torn) ? may_follow(sub, use) : status;
}

static bool is_suspended(const struct tb_subscription *sub)
{
    return (sub->registration != NULL && sub->registration->suspended) ||
           (sub->second != NULL && sub->second->suspended);
}

static int may_activate(struct tb_subscription *sub, struct tb_staged_use *use)
{
    if (use == NULL)
        return tb_fail(TB_BAD_STATE,
                       "this subscription has not staged the version, or has released it: tb_stage it");
    const struct tb_staging *st = use->staging;
    /* First, because the lock is let go meanwhile. As a rule tb_stage has done it. */
    const int matched = use->ended == TB_OK && st->life == TB_STAGING_WHOLE ? tb_use_match(sub, use) : TB_OK;
    if (use->ended != TB_OK)
        return tb_fail(use->ended, "version %llu cannot be activated: %s", (unsigned long long)st->key.number,
                       tb_staging_remedy(use->ended));
    if (tb_staging_has_failed(st->life))
        return tb_fail(st->status, "version %llu: %s", (unsigned long long)st->key.number, st->why);
    if (st->life != TB_STAGING_WHOLE)
        return tb_fail(TB_AGAIN, "version %llu is not whole here: %u of %u chunks",
                       (unsigned long long)st->key.number, tb_staging_held_chunks(st), st->total_chunks);
    const int word = tb_home_word_verdict(sub, use, true);
    if (word != TB_OK) return word;
    if (is_suspended(sub)) return tb_fail(TB_BAD_STATE, "the registration is suspended: tb_resume first");
    if (matched == TB_OK) tb_live_prepare(sub, use); /* as a rule tb_stage has done it */
    return matched == TB_OK ? tb_tied_check_use(sub, use) : matched;
}

/* ---- a patch ---- */

/* The chunks that failed, whole, from any holder of the version. */
static int fetch_again(struct tb_session *s, struct tb_subscription *sub, struct tb_staged_use *use,
                       const struct tb_call *call)
{
    const struct tb_staging *st = use->staging;
    int status = tb_use_ask_anew(sub, use, call);
    while (status == TB_OK && st->life != TB_STAGING_WHOLE) {
        const enum tb_status waited = tb_session_wait_change(s, call);
        if (waited != TB_OK)
            status =
                tb_fail(waited, "version %llu: %u of %u chunks are here again",
                        (unsigned long long)st->key.number, tb_staging_held_chunks(st), st->total_chunks);
        else if (use->ended != TB_OK || tb_staging_has_failed(st->life))
            status = tb_fail(use->ended != TB_OK ? use->ended : st->status, "version %llu ended: %s",
                             (unsigned long long)st->key.number, st->why);
    }
    if (status == TB_OK && sub->registration->suspended)
        status = tb_fail(TB_BAD_STATE, "the registration was suspended meanwhile");
    return status;
}

static enum tb_status apply_patch(struct tb_session *s, struct tb_registration *r, struct tb_patch *patch,
                                  struct tb_patch_result *result_out)
{
    TB_ASSERT_LOCKED(s);
    tb_registration_begin_pass(r);
    tb_session_unlock(s);
    const enum tb_status status = tb_patch_apply(patch, s->crew, result_out);
    tb_session_lock(s);
    tb_registration_end_pass(r);
    return status;
}

/* The buffers hold neither version until all of it is there. */
static int patch(struct tb_session *s, struct tb_subscription *sub, struct tb_staged_use *use,
                 struct tb_activate_info *info)
{
    struct tb_staging *st = use->staging;
    const struct tb_call call = {.deadline = tb_time_add(tb_clock_now(), TB_MS(FETCH_MS)),
                                 .cancels = s->cancels};
    for (;;) {
        struct tb_patch_result result;
        enum tb_status applied = tb_staging_patch_tables(st);
        if (applied != TB_OK)
            return tb_fail(applied, "version %llu has not every tensor of the buffers whole",
                           (unsigned long long)st->key.number);
        sub->torn = st->uid;
        applied = apply_patch(s, sub->registration, st->patch, &result);
        info->copied_bytes += result.copied_bytes;
        info->patched_bytes += result.patched_bytes;
        info->fetched_chunks += result.failed;
        if (applied == TB_LAYOUT_MISMATCH)
            return tb_fail(applied,
                           "version %llu has different bytes for tensors that are registered in one memory: "
                           "the buffers are of no one version",
                           (unsigned long long)st->key.number);
        if (applied != TB_OK)
            return tb_fail(applied, "version %llu: the buffers do not hold what was written to them",
                           (unsigned long long)st->key.number);
        if (result.failed == 0) return TB_OK;
        tb_log(TB_LOG_WARN, "activate.fetched", "number=%llu chunks=%u of=%u action=fetched_whole",
               (unsigned long long)st->key.number, result.failed, st->total_chunks);
        const int fetched = fetch_again(s, sub, use, &call);
        if (fetched != TB_OK) return fetched;
    }
}

/* Under the lock. */
static int update(struct tb_session *s, struct tb_subscription *sub, struct tb_staged_use *use,
                  struct tb_activate_info *info)
{
    info->staged_bytes = tb_staging_bytes(use->staging);
    if (sub->registration == NULL) return TB_OK;
    if (use->staging->patch != NULL) return patch(s, sub, use, info);
    if (sub->update == TB_UPDATE_SWITCH) return tb_use_flip(sub, use, info);
    return tb_use_overwrite(sub, use, info);
}

static void became_active(struct tb_subscription *sub, const struct tb_staging *st)
{
    sub->torn = (struct tb_id){{0}};
    sub->active = st->uid;
    sub->active_run_order = st->key.run_order;
    sub->active_number = st->key.number;
    sub->active_withdrawn = false;
    tb_home_word_drop(&sub->active_word);
    const struct tb_span said = {.bytes = st->word.bytes, .count = st->word.count};
    /* For want of memory it is not shown. */
    if (tb_home_word_keep(&sub->active_word, &said) != TB_OK) TB_ASSERT(sub->active_word.bytes == NULL);
}

/* The gateway came back without the version, so that it refused to hear that it is staged here: it
 * is told again, until it knows it. */
static int stage_again(struct tb_subscription *sub, struct tb_staged_use *use)
{
    const int status = tb_use_ask(sub, use);
    if (status != TB_OK) return status;
    return tb_fail(TB_AGAIN, "the gateway at %s came back and did not know version %llu: it is asked again",
                   sub->session->gateway_text, (unsigned long long)use->staging->key.number);
}

/* Under the lock. */
static int activate(struct tb_session *s, struct tb_subscription *sub, const struct tb_id *uid,
                    tb_time_ns began, struct tb_activate_info *info)
{
    struct tb_staged_use *use = tb_use_find(sub, uid);
    int status = may_activate(sub, use);
    if (status == TB_OK) status = ask_go(s, sub, use);
    if (status == TB_GROUP_BROKEN) { /* told once: the next tb_stage begins another attempt */
        use->ended = TB_OK;
        use->asked = use->go = false;
    }
    if (use != NULL && use->unheard && (status == TB_NOT_FOUND || status == TB_BAD_STATE))
        return stage_again(sub, use);
    if (status != TB_OK) return status;
    /* While the answer was waited for the registration may have been suspended by another
     * thread. */
    if (is_suspended(sub) || use->staging->life == TB_STAGING_LEFT)
        return tb_fail(TB_BAD_STATE, "the registration was suspended meanwhile");
    status = update(s, sub, use, info);
    if (status == TB_OK) status = tb_registration_missing(sub->registration);
    if (status == TB_OK) status = tb_registration_missing(sub->second);
    if (status != TB_OK) return status;
    became_active(sub, use->staging);
    tb_live_activated(sub, use);
    if (sub->live.running) tb_prover_wake(s);
    info->buffer = sub->second == NULL ? 0 : sub->buffer;
    info->stall_ns = tb_time_since(began, tb_clock_now());
    activated_notice(s, sub, uid, info);
    updated_notice(s, sub, use, info);
    return TB_OK;
}

int tb_activate(struct tb_subscription *subscription, const struct tb_uid *uid,
                struct tb_activate_info *info_out)
{
    const tb_time_ns began = tb_clock_now();
    if (subscription == NULL) return tb_fail(TB_BAD_ARGUMENT, "no subscription given");
    struct tb_session *s = subscription->session;
    int status = tb_session_enter(s);
    if (status != TB_OK) return status;
    struct tb_activate_info info = {0};
    if (uid == NULL || (info_out != NULL && info_out->struct_bytes < FIRST_INFO_BYTES)) {
        status =
            tb_fail(TB_BAD_ARGUMENT,
                    "a uid is needed, and info.struct_bytes must be sizeof(struct tb_activate_info), %zu",
                    sizeof info);
    } else {
        struct tb_id id;
        memcpy(id.bytes, uid->bytes, sizeof id.bytes);
        tb_session_lock(s);
        status = activate(s, subscription, &id, began, &info);
        tb_session_unlock(s);
    }
    if (status == TB_OK && info_out != NULL) {
        const uint32_t bytes = info_out->struct_bytes;
        info.struct_bytes = bytes;
        memcpy(info_out, &info, bytes < sizeof info ? bytes : sizeof info);
    }
    tb_session_leave(s);
    return status;
}

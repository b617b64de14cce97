/* stage.c - tb_stage and tb_release: a version is asked for, waited for and let go by one
 * subscription. */
#include "intra/client/follow/stage.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/client/follow/buffer_switch.h"
#include "intra/client/follow/stage_request.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_notices.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/live/live_proof.h"
#include "intra/client/memory/tied_tensors_bytes.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

#define ASK_AGAIN  TB_SECONDS(1)
#define RELEASE_MS 5000u /* a gateway that does not answer does not keep a worker from its memory */

int tb_use_ask(struct tb_subscription *sub, struct tb_staged_use *use)
{
    TB_ASSERT_LOCKED(sub->session);
    struct tb_request *request = tb_stage_request(sub->session, sub, &use->staging->uid);
    if (request == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the request");
    const bool again = use->unheard && tb_staging_is_open(use->staging->life);
    use->asked = true;
    use->answer = TB_AGAIN;
    use->asked_at = tb_clock_now();
    use->unheard = false;
    tb_request_post(sub->session, request);
    /* it was refused with the STAGE */
    if (again) tb_staging_export_notice(sub->session, use->staging);
    return TB_OK;
}

/* `why` may be empty. A version that ended before it was described has no number here. */
static int cannot_stage(const struct tb_staging *st, int status, const char *why)
{
    const char *text = why[0] != '\0' ? why : tb_staging_remedy(status);
    if (st->key.number == 0) return tb_fail(status, "the version cannot be staged: %s", text);
    return tb_fail(status, "version %llu cannot be staged: %s", (unsigned long long)st->key.number, text);
}

/* TB_OK: whole; TB_AGAIN: on its way; else why it ended, and the use is as it has to be for another
 * attempt. */
static int look(struct tb_subscription *sub, struct tb_staged_use *use)
{
    struct tb_staging *st = use->staging;
    const bool described = use->ended == TB_OK && tb_staging_has_places(st->life);
    /* First, because the lock is let go meanwhile. */
    const int matched = described ? tb_use_match(sub, use) : TB_OK;
    if (use->ended == TB_GROUP_BROKEN) {
        use->ended = TB_OK;
        use->asked = use->go = false;
        return tb_fail(TB_GROUP_BROKEN,
                       "a member of group %s was lost before version %llu could be activated",
                       sub->group.text, (unsigned long long)st->key.number);
    }
    int status = TB_AGAIN;
    const int word = tb_home_word_verdict(sub, use, false);
    if (word != TB_OK) return word;
    if (tb_staging_has_failed(st->life))
        status = cannot_stage(st, st->status, st->why);
    else if (use->ended != TB_OK)
        status = cannot_stage(st, use->ended, "");
    else if (described)
        status = matched == TB_OK && st->life != TB_STAGING_WHOLE ? TB_AGAIN : matched;
    return status;
}

static int not_yet(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    const struct tb_session *s = sub->session;
    const struct tb_staging *st = use->staging;
    if (!s->up && !tb_staging_has_manifests(st))
        return tb_fail(TB_GATEWAY_AWAY, "the gateway at %s is away and has not described the version",
                       s->gateway_text);
    if (st->life == TB_STAGING_WHOLE && use->answer == TB_OK) return tb_home_word_verdict(sub, use, true);
    if (st->life == TB_STAGING_WHOLE)
        return tb_fail(TB_AGAIN,
                       "version %llu is whole here, and the gateway has not said yet that it counts it",
                       (unsigned long long)st->key.number);
    return tb_fail(TB_AGAIN, "version %llu: %u of %u chunks are here", (unsigned long long)st->key.number,
                   tb_staging_held_chunks(st), st->total_chunks);
}

/* Its source was lost, and the gateway may have another now, though it has said so of none. P7:
 * each answer has all manifests in it, so a caller that asks time and again asks for it now and
 * then; a gateway that is away is asked when it comes back. */
static bool is_stuck(const struct tb_session *s, const struct tb_staged_use *use)
{
    const struct tb_staging *st = use->staging;
    return st->life == TB_STAGING_READING && st->hop == NULL && s->up &&
           tb_time_since(use->asked_at, tb_clock_now()) >= ASK_AGAIN;
}

/* The version is whole here, and whether it may be activated is the gateway's to say. One that is
 * away is told of it when it is back. */
static bool is_unanswered(const struct tb_session *s, const struct tb_staged_use *use)
{
    return s->up && use->asked && use->answer == TB_AGAIN;
}

/* It is whole here already: for another subscription, or before another version was staged, or
 * before its group broke. */
static bool has_to_ask(const struct tb_staged_use *use)
{
    return !use->asked || use->unheard || use->answer < TB_OK;
}

/* A version that the gateway refused cannot be activated. Where the gateway came back and does not
 * know the version yet, tb_activate asks again. */
static int judge_answer(struct tb_staged_use *use)
{
    if (use->answer >= TB_OK || use->answer == TB_NOT_FOUND) return TB_OK;
    use->asked = false;
    return tb_fail(use->answer, "version %llu is whole here, and the gateway refuses it: %s",
                   (unsigned long long)use->staging->key.number,
                   use->answer_why[0] != '\0' ? use->answer_why : tb_staging_remedy(use->answer));
}

/* The bytes stay where the version itself is good: an operator may withdraw the one that stands in
 * its way. */
static bool keeps_bytes(const struct tb_staged_use *use, int status)
{
    return status == TB_GROUP_BROKEN ||
           (use->staging->life == TB_STAGING_WHOLE && status == (int)use->answer &&
            tb_status_scope(status) != TB_SCOPE_VERSION);
}

static bool is_for_one(const struct tb_staging *st)
{
    return st->patch_for != NULL || st->slices_for != NULL || st->gpu_for != NULL ||
           st->life == TB_STAGING_LEFT;
}

/* All of it is here and was counted: it is judged, and what a switch needs is made ready. */
static int take_whole(struct tb_subscription *sub, struct tb_staged_use *use)
{
    int status = judge_answer(use);
    if (status != TB_OK) return status;
    status = tb_home_word_verdict(sub, use, true);
    if (status != TB_OK) return status;
    status = tb_tied_check_use(sub, use);
    if (status != TB_OK) return status;
    if (sub->update == TB_UPDATE_SWITCH) (void)tb_use_fill(sub, use); /* or the switch does it */
    tb_live_prepare(sub, use);
    return TB_OK;
}

static int stage(struct tb_subscription *sub, const struct tb_id *uid, const struct tb_call *call)
{
    struct tb_session *s = sub->session;
    struct tb_staged_use *use = tb_use_find(sub, uid);
    const struct tb_staging *other = use != NULL ? NULL : tb_staging_find(s, uid);
    if (other != NULL && is_for_one(other))
        return tb_fail(TB_BAD_STATE,
                       "another subscription of this session stages the version for itself alone, "
                       "as a patch, in slices or on its GPU: open a session for each");
    if (use != NULL && use->staging->life == TB_STAGING_LEFT) { /* the gateway has heard of it */
        tb_use_drop(sub, use, 0);
        use = NULL;
    }
    if (use == NULL && other != NULL && other->believed && sub->home_trust != NULL)
        return tb_fail(TB_BAD_STATE,
                       "another subscription of this session stages the version without home_ca, "
                       "and its bytes were believed: open a session for each");
    if (use == NULL) use = tb_use_new(sub, uid);
    if (use == NULL) return tb_fail(TB_SITE_NOMEM, "no memory to stage a version");
    int status = look(sub, use);
    if (status == TB_AGAIN && (!use->asked || is_stuck(s, use))) {
        const int asked = tb_use_ask(sub, use);
        if (asked != TB_OK) return asked;
    } else if (status == TB_OK && has_to_ask(use)) {
        status = tb_use_ask(sub, use);
    }
    while (status == TB_AGAIN ||
           (status == TB_OK && (is_unanswered(s, use) || tb_home_word_waits(sub, use)))) {
        const enum tb_status waited = tb_session_wait_change(s, call);
        if (waited == TB_CANCELLED)
            return tb_fail(TB_CANCELLED, "tb_stage was cancelled; the version goes on arriving");
        if (waited == TB_TIMEOUT) return not_yet(sub, use);
        status = look(sub, use);
    }
    if (status == TB_OK) status = take_whole(sub, use);
    if (status == TB_OK || keeps_bytes(use, status)) return status;
    tb_staging_give_back(s, use->staging); /* P6: or its group would wait for this member */
    tb_use_drop(sub, use, 0);
    return status;
}

static int find_session(const struct tb_subscription *sub, struct tb_session **session_out)
{
    if (sub == NULL) return tb_fail(TB_BAD_ARGUMENT, "no subscription given");
    *session_out = sub->session;
    return tb_session_enter(sub->session);
}

int tb_stage(struct tb_subscription *subscription, const struct tb_uid *uid, uint32_t timeout_ms)
{
    struct tb_session *s = NULL;
    int status = find_session(subscription, &s);
    if (status != TB_OK) return status;
    if (uid == NULL) {
        status = tb_fail(TB_BAD_ARGUMENT, "no uid given");
    } else {
        struct tb_id id;
        memcpy(id.bytes, uid->bytes, sizeof id.bytes);
        const struct tb_call call = tb_call_begin(s, timeout_ms);
        tb_session_lock(s);
        status = stage(subscription, &id, &call);
        tb_session_unlock(s);
    }
    tb_session_leave(s);
    return status;
}

/* ---- release ---- */

/* Under the lock. The gateway sends no reader here any more once it has answered; if it is away, no
 * reader can come by a new token either. */
void tb_use_tell_release(struct tb_session *s, const struct tb_staging *st)
{
    TB_ASSERT_LOCKED(s);
    struct tb_request *request = st->uses == 1 && s->up ? tb_release_request(s, &st->uid) : NULL;
    const struct tb_call call = {.deadline = tb_time_add(tb_clock_now(), TB_MS(RELEASE_MS)),
                                 .cancels = s->cancels};
    const enum tb_status status = request != NULL ? tb_request_wait(s, request, &call) : TB_OK;
    const bool heard = request != NULL && request->done;
    if (status != TB_OK && status != TB_NOT_FOUND && status != TB_DONE_BEFORE)
        tb_log(TB_LOG_WARN, "release.untold", "number=%llu status=%s action=readers_cut_off",
               (unsigned long long)st->key.number, tb_status_name(status));
    tb_request_free(request);
    if (!heard) /* P3: a gateway that takes us for a keeper may let its own copy go */
        tb_staging_give_back(s, st);
}

int tb_release(struct tb_subscription *subscription, const struct tb_uid *uid)
{
    struct tb_session *s = NULL;
    int status = find_session(subscription, &s);
    if (status != TB_OK) return status;
    struct tb_id id = {{0}};
    if (uid != NULL) memcpy(id.bytes, uid->bytes, sizeof id.bytes);
    tb_session_lock(s);
    struct tb_staged_use *use = tb_use_find(subscription, &id);
    if (use == NULL) {
        status = tb_fail(TB_NOT_FOUND, "the subscription has not staged that version");
    } else {
        tb_use_tell_release(s, use->staging);
        tb_use_drop(subscription, use, tb_session_drain_ms(s));
    }
    tb_session_unlock(s);
    tb_session_leave(s);
    return status;
}

int tb_use_ask_anew(struct tb_subscription *sub, struct tb_staged_use *use, const struct tb_call *call)
{
    TB_ASSERT(use->staging->patch != NULL);
    TB_ASSERT_LOCKED(sub->session);
    struct tb_session *s = sub->session;
    struct tb_request *request = s->up ? tb_release_request(s, &use->staging->uid) : NULL;
    if (request == NULL)
        return tb_fail(TB_GATEWAY_AWAY, "the gateway at %s is away: nothing can be fetched", s->gateway_text);
    const enum tb_status status = tb_request_wait(s, request, call);
    tb_request_free(request);
    if (status != TB_OK && status != TB_NOT_FOUND && status != TB_DONE_BEFORE)
        return tb_fail(status, "version %llu cannot be asked for again",
                       (unsigned long long)use->staging->key.number);
    /* Meanwhile it may have failed. */
    if (tb_staging_has_failed(use->staging->life))
        return cannot_stage(use->staging, use->staging->status, use->staging->why);
    tb_staging_step(&use->staging->life, TB_STAGING_READ_AGAIN);
    const int asked = tb_use_ask(sub, use);
    if (asked == TB_OK) tb_staging_export_notice(s, use->staging);
    return asked;
}

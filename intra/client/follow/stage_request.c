/* stage_request.c - STAGE, and what its answer says of the version and of the member that asked. */
#include "intra/client/follow/stage_request.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_notices.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

static enum tb_status keep_key(struct tb_staging *st, const struct tb_version_key *key)
{
    /* asked again after a cut; the uid names one content for ever */
    if (st->shards != NULL) return TB_OK;
    if (tb_digest_equal(&key->root, &(struct tb_digest){0})) return TB_PEER_GARBLED;
    st->shards = tb_calloc(key->shard_count, sizeof *st->shards);
    if (st->shards == NULL) return TB_SITE_NOMEM;
    TB_ASSERT(key->shard_count > 0 && st->manifests_here == 0);
    st->key = *key; /* shard_count was bounded by its decoder */
    tb_staging_step(&st->life, TB_STAGING_DESCRIBED);
    return TB_OK;
}

/* A staging that is whole, or still reads, stays. The gateway has to hear of it once it knows the
 * version, or it would give no go. */
static void ask_again_later(struct tb_session *s, const struct tb_staging *st)
{
    for (struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next)
        for (struct tb_staged_use *use = sub->uses; use != NULL; use = use->next)
            if (use->staging == st) use->unheard = true;
}

static struct tb_subscription *asker(const struct tb_session *s, const struct tb_request *request)
{
    struct tb_subscription *sub = s->subscriptions;
    while (sub != NULL && sub->number != request->number)
        sub = sub->next;
    return sub;
}

/* The version for which the gateway counts the worker, and for no other any more. */
static void hear_answer(struct tb_session *s, const struct tb_request *request)
{
    struct tb_subscription *sub = asker(s, request);
    struct tb_staged_use *use = sub == NULL ? NULL : tb_use_find(sub, &request->uid);
    if (use == NULL) return; /* released meanwhile */
    use->answer = request->status;
    snprintf(use->answer_why, sizeof use->answer_why, "%s", request->why);
    for (struct tb_staged_use *other = sub->uses; other != NULL; other = other->next)
        if (request->status == TB_OK && other != use && other->answer != TB_AGAIN) other->asked = false;
    tb_session_changed(s, true);
}

/* The answer brought the home's word, also where another subscription staged the version before. */
static void judge_word(struct tb_session *s, const struct tb_request *request)
{
    struct tb_subscription *sub = asker(s, request);
    struct tb_staged_use *use = sub == NULL ? NULL : tb_use_find(sub, &request->uid);
    if (use != NULL) tb_home_word_judge(sub, use);
}

static void on_manifests(struct tb_session *s, struct tb_request *request, void *user)
{
    (void)user;
    hear_answer(s, request);
    struct tb_staging *st = tb_staging_find(s, &request->uid);
    if (st == NULL || tb_staging_has_failed(st->life)) return;
    if (request->status != TB_OK) {
        /* A gateway that has just come back may not know the version yet: while a source still
         * gives, it is read. */
        if (st->hop == NULL && st->life != TB_STAGING_WHOLE)
            tb_staging_fail(st, request->status, request->why);
        else if (request->status == TB_NOT_FOUND)
            ask_again_later(s, st);
        return;
    }
    struct tb_msg_manifests m;
    TB_ANSWER_DECODE(request, tb_msg_manifests, &m);
    enum tb_status status = TB_PEER_GARBLED;
    if (tb_id_equal(&m.key.uid, &st->uid) && m.key.shard_count == m.shard_count)
        status = keep_key(st, &m.key);
    if (status == TB_OK) status = tb_home_word_keep(&st->word, &m.said);
    if (status == TB_OK) judge_word(s, request);
    if (status != TB_OK)
        tb_staging_fail(st, status, "the gateway described another version than was asked for");
    /* Asked again, after a group broke or by another subscription: the gateway has to hear that it
     * is all here. */
    else if (st->life == TB_STAGING_WHOLE)
        tb_staging_progress_notice(s, st);
}

struct tb_request *tb_stage_request(struct tb_session *s, const struct tb_subscription *sub,
                                    const struct tb_id *uid)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_STAGE, TB_MSG_MANIFESTS, 0);
    if (request == NULL) return NULL;
    const struct tb_msg_stage m = {.subscription = sub->number, .uid = *uid};
    tb_msg_stage_encode(&m, &request->payload);
    request->detached = true;
    request->fn = on_manifests;
    request->uid = *uid;
    request->number = sub->number;
    return request;
}

/* subscription.c - a member of a reader group, and the versions it stages and lets go. */
#include "intra/client/follow/subscription.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/layout/tensor.h"
#include "base/log.h"
#include "intra/client/follow/stage.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/live/live_proof.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/tied_tensors_bytes.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

#define SUBSCRIBE_MS 30000u

/* ---- subscribe ---- */

struct tb_request *tb_subscribe_request(struct tb_session *s, const struct tb_subscription *sub)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_SUBSCRIBE, TB_MSG_REPLY, sub->active_word.count);
    if (request == NULL) return NULL;
    struct tb_msg_subscribe m = {.subscription = sub->number,
                                 .model = sub->model,
                                 .group = sub->group,
                                 .member_index = sub->member_index,
                                 .member_count = sub->member_count};
    if (tb_id_is_zero(&sub->torn)) { /* P2: else the buffers hold none */
        m.active = sub->active;
        m.active_run_order = sub->active_run_order;
        m.active_number = sub->active_number;
        m.said = (struct tb_span){.bytes = sub->active_word.bytes, .count = sub->active_word.count};
    }
    tb_msg_subscribe_encode(&m, &request->payload);
    return request;
}

/* Of a program built before there were ways to update. */
#define FIRST_OPTIONS_BYTES offsetof(struct tb_subscribe_options, update)

static bool same_wants(const struct tb_registration *a, const struct tb_registration *b)
{
    if (a->want_count != b->want_count) return false;
    for (uint32_t i = 0; i < a->want_count; i++) {
        const struct tb_tensor *x = &a->wants[i], *y = &b->wants[i];
        if (strcmp(x->name, y->name) != 0 || !tb_tensor_dtype_equal(x, y) || x->rank != y->rank ||
            memcmp(x->full, y->full, sizeof x->full) != 0 ||
            memcmp(x->box_first, y->box_first, sizeof x->box_first) != 0 ||
            memcmp(x->box_count, y->box_count, sizeof x->box_count) != 0)
            return false;
    }
    return true;
}

static int check_update(const struct tb_session *s, const struct tb_subscribe_options *o)
{
    if (o->update > TB_UPDATE_PATCH)
        return tb_fail(TB_BAD_ARGUMENT, "update %u is none of enum tb_update", o->update);
    if (o->update != TB_UPDATE_COPY && o->registration == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "without a registration there is nothing to update");
    if ((o->update == TB_UPDATE_SWITCH) != (o->second != NULL))
        return tb_fail(TB_BAD_ARGUMENT, "TB_UPDATE_SWITCH, and it alone, takes a second registration");
    if (o->prove > TB_PROVE_NEVER)
        return tb_fail(TB_BAD_ARGUMENT, "prove %u is none of enum tb_prove", o->prove);
    if (o->second == NULL) return TB_OK;
    if (o->second->session != s || o->second == o->registration)
        return tb_fail(TB_BAD_ARGUMENT, "the second registration is of another session, or the first again");
    if (!same_wants(o->registration, o->second))
        return tb_fail(TB_BAD_ARGUMENT, "the two registrations have other tensors");
    return TB_OK;
}

static int check_stage_on_gpu(const struct tb_subscribe_options *o)
{
    if (o->stage_on_gpu == 0) return TB_OK;
    if (o->stage_on_gpu > 1) return tb_fail(TB_BAD_ARGUMENT, "stage_on_gpu is %u: 0 or 1", o->stage_on_gpu);
    if (o->registration == NULL || o->update != TB_UPDATE_COPY)
        return tb_fail(TB_BAD_ARGUMENT, "stage_on_gpu is for TB_UPDATE_COPY into a registration");
    if (o->registration->slices != NULL)
        return tb_fail(TB_BAD_ARGUMENT, "stage_on_gpu is for whole tensors, and the registration has slices");
    return TB_OK;
}

static int check_subscribe(struct tb_session *s, const struct tb_subscribe_options *given,
                           struct tb_subscription *sub)
{
    if (given == NULL || given->struct_bytes < FIRST_OPTIONS_BYTES)
        return tb_fail(TB_BAD_ARGUMENT,
                       "options.struct_bytes must be sizeof(struct tb_subscribe_options), %zu",
                       sizeof *given);
    struct tb_subscribe_options options = {0};
    const struct tb_subscribe_options *o = &options;
    memcpy(&options, given, given->struct_bytes < sizeof options ? given->struct_bytes : sizeof options);
    if (o->model == NULL || tb_name_set(&sub->model, o->model) != TB_OK)
        return tb_fail(TB_BAD_ARGUMENT, "model \"%.80s\": 1 to 64 of A-Z a-z 0-9 . _ -",
                       o->model == NULL ? "" : o->model);
    if (o->member_count == 0 || o->member_index >= o->member_count)
        return tb_fail(TB_BAD_ARGUMENT, "member %u of %u: members are counted from 0", o->member_index,
                       o->member_count);
    if (o->registration != NULL && o->registration->session != s)
        return tb_fail(TB_BAD_ARGUMENT, "the registration belongs to another session");
    char made[TB_NAME_BYTES_MAX + 1], hex[TB_HEX_CHARS];
    struct tb_id random;
    tb_random_bytes(random.bytes, sizeof random.bytes);
    tb_id_format(&random, hex);
    snprintf(made, sizeof made, "solo-%s", hex);
    if (o->group == NULL && o->member_count > 1)
        return tb_fail(TB_BAD_ARGUMENT, "a group of %u members needs a name", o->member_count);
    if (tb_name_set(&sub->group, o->group != NULL ? o->group : made) != TB_OK)
        return tb_fail(TB_BAD_ARGUMENT, "group \"%.80s\": 1 to 64 of A-Z a-z 0-9 . _ -", o->group);
    sub->member_index = o->member_index;
    sub->member_count = o->member_count;
    sub->registration = o->registration;
    sub->second = o->second;
    sub->update = o->update;
    sub->stage_on_gpu = o->stage_on_gpu != 0;
    sub->prove = o->prove;
    sub->live.why = TB_MSG_UNPROVABLE_IDLE;
    sub->buffer = 1; /* the first version goes into the other one */
    int status = check_update(s, o);
    if (status == TB_OK && o->registration != NULL) {
        tb_session_lock(s);
        status = tb_tied_may_subscribe(o->registration, o->second);
        if (status == TB_OK) status = tb_home_word_may_subscribe(s, o);
        tb_session_unlock(s);
    }
    if (status == TB_OK) status = check_stage_on_gpu(o);
    if (status == TB_OK && o->home_ca != NULL) status = tb_home_word_trust_open(o->home_ca, &sub->home_trust);
    return status;
}

static void enter_subscription(struct tb_session *s, struct tb_request *request, void *user)
{
    TB_ASSERT_LOCKED(s);
    struct tb_subscription *sub = user;
    /* its caller frees it */
    if (request->status != TB_OK && request->status != TB_DONE_BEFORE) return;
    TB_ASSERT(sub->next == NULL && sub->uses == NULL);
    sub->next = s->subscriptions;
    s->subscriptions = sub;
    if (sub->registration != NULL) sub->registration->subscriptions++;
    if (sub->second != NULL) sub->second->subscriptions++;
}

static struct tb_request *unsubscribe_request(struct tb_session *s, const struct tb_subscription *sub)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_UNSUBSCRIBE, TB_MSG_REPLY, 0);
    if (request == NULL) return NULL;
    const struct tb_msg_unsubscribe m = {.subscription = sub->number};
    tb_msg_unsubscribe_encode(&m, &request->payload);
    return request;
}

/* Nobody waits for the answer any more, and it may have been yes: a member that nobody is would
 * hold its place, and up its group. */
static void take_back(struct tb_session *s, const struct tb_subscription *sub)
{
    tb_session_lock(s);
    tb_request_farewell(s, unsubscribe_request(s, sub));
    tb_session_unlock(s);
}

static int subscribe(struct tb_session *s, const struct tb_subscribe_options *o, struct tb_subscription *sub)
{
    const int status = check_subscribe(s, o, sub);
    if (status != TB_OK) return status;
    sub->session = s;
    tb_session_lock(s);
    sub->number = ++s->next_subscription;
    tb_session_unlock(s);
    struct tb_request *request = tb_subscribe_request(s, sub);
    if (request != NULL) {
        request->fn = enter_subscription;
        request->user = sub;
    }
    const struct tb_call call = tb_call_begin(s, SUBSCRIBE_MS);
    const int answer = tb_request_call(s, request, &call, "tb_subscribe");
    if (request != NULL && !request->done) take_back(s, sub);
    tb_request_free(request);
    if (answer != TB_OK && answer != TB_DONE_BEFORE) return answer;
    tb_session_lock(s);
    tb_staging_prepare_ahead(s, sub);
    tb_session_unlock(s);
    return TB_OK;
}

static void free_subscription(struct tb_subscription *sub)
{
    if (sub == NULL) return;
    tb_home_word_drop(&sub->active_word);
    tb_tls_free(sub->home_trust);
    tb_free(sub);
}

int tb_subscribe(struct tb_session *session, const struct tb_subscribe_options *options,
                 struct tb_subscription **subscription_out)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct tb_subscription *sub = tb_calloc(1, sizeof *sub);
    if (sub == NULL)
        status = tb_fail(TB_SITE_NOMEM, "no memory for a subscription");
    else if (subscription_out == NULL)
        status = tb_fail(TB_BAD_ARGUMENT, "subscription_out is NULL");
    else
        status = subscribe(session, options, sub);
    if (status == TB_OK)
        *subscription_out = sub;
    else
        free_subscription(sub);
    tb_session_leave(session);
    return status;
}

/* ---- stage ---- */

static int find_session(const struct tb_subscription *sub, struct tb_session **session_out)
{
    if (sub == NULL) return tb_fail(TB_BAD_ARGUMENT, "no subscription given");
    *session_out = sub->session;
    return tb_session_enter(sub->session);
}

/* ---- unsubscribe ---- */

static void end_subscription(struct tb_subscription *sub, bool wait)
{
    TB_ASSERT_LOCKED(sub->session);
    struct tb_session *s = sub->session;
    tb_live_end(sub);
    while (sub->uses != NULL) {
        struct tb_staged_use *use = sub->uses;
        if (wait) tb_use_tell_release(s, use->staging);
        tb_use_drop(sub, use, wait ? tb_session_drain_ms(s) : 0);
    }
    tb_request_farewell(s, unsubscribe_request(s, sub));
    for (struct tb_subscription **at = &s->subscriptions; *at != NULL; at = &(*at)->next) {
        if (*at == sub) {
            *at = sub->next;
            break;
        }
    }
    TB_ASSERT(sub->registration == NULL || sub->registration->subscriptions > 0);
    TB_ASSERT(sub->second == NULL || sub->second->subscriptions > 0);
    if (sub->registration != NULL) sub->registration->subscriptions--;
    if (sub->second != NULL) sub->second->subscriptions--;
    free_subscription(sub);
    tb_staging_drop_spare(s);
}

int tb_unsubscribe(struct tb_subscription *subscription)
{
    struct tb_session *s = NULL;
    const int status = find_session(subscription, &s);
    if (status != TB_OK) return status;
    tb_session_lock(s);
    end_subscription(subscription, true);
    tb_session_unlock(s);
    tb_session_leave(s);
    return TB_OK;
}

void tb_subscriptions_free(struct tb_session *s)
{
    tb_session_lock(s);
    while (s->subscriptions != NULL)
        end_subscription(s->subscriptions, false);
    TB_ASSERT(s->stagings == NULL);
    tb_session_unlock(s);
}

/* ---- invariants ---- */

void tb_subscriptions_check(const struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        TB_ASSERT(sub->session == s);
        TB_ASSERT(sub->number > 0 && sub->number <= s->next_subscription);
        TB_ASSERT(sub->member_index < sub->member_count);
        TB_ASSERT((sub->update == TB_UPDATE_SWITCH) == (sub->second != NULL));
        TB_ASSERT(sub->buffer <= 1);
        TB_ASSERT(sub->prove <= TB_PROVE_NEVER);
        TB_ASSERT(!sub->live.running || sub->live.plan != NULL);
        if (sub->registration == NULL) TB_ASSERT(!sub->stage_on_gpu && tb_id_is_zero(&sub->filled));
        for (const struct tb_staged_use *use = sub->uses; use != NULL; use = use->next)
            if (!use->copies_made) TB_ASSERT(use->copies.list == NULL);
    }
}

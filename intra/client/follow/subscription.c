/* subscription.c - a member of a reader group, and the versions it stages and lets go. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "intra/client/session/client.h"

#define SUBSCRIBE_MS 30000u
#define ASK_AGAIN    TB_SECONDS(1)
#define RELEASE_MS   5000u /* a gateway that does not answer does not keep a worker from its memory */

/* ---- subscribe ---- */

struct tb_request *tb_subscribe_request(struct tb_session *s, const struct tb_subscription *sub)
{
    struct tb_request *request = tb_request_new(s, TB_SESSION_SUBSCRIBE, TB_SESSION_REPLY, 0);
    if (request == NULL) return NULL;
    struct tb_session_subscribe m = {.subscription = sub->number,
                                     .model = sub->model,
                                     .group = sub->group,
                                     .member_index = sub->member_index,
                                     .member_count = sub->member_count};
    if (tb_id_is_zero(&sub->torn)) { /* P2: else the buffers hold none */
        m.active = sub->active;
        m.active_run_order = sub->active_run_order;
        m.active_number = sub->active_number;
    }
    tb_session_subscribe_encode(&m, &request->payload);
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
    sub->buffer = 1; /* the first version goes into the other one */
    int status = check_update(s, o);
    if (status == TB_OK && o->registration != NULL) {
        tb_session_lock(s);
        status = tb_tied_may_subscribe(o->registration, o->second);
        tb_session_unlock(s);
    }
    return status == TB_OK ? check_stage_on_gpu(o) : status;
}

static void enter_subscription(struct tb_session *s, struct tb_request *request, void *user)
{
    struct tb_subscription *sub = user;
    if (request->status != TB_OK && request->status != TB_DONE_BEFORE) return; /* its caller frees it */
    sub->next = s->subscriptions;
    s->subscriptions = sub;
    if (sub->registration != NULL) sub->registration->subscriptions++;
    if (sub->second != NULL) sub->second->subscriptions++;
}

static struct tb_request *unsubscribe_request(struct tb_session *s, const struct tb_subscription *sub)
{
    struct tb_request *request = tb_request_new(s, TB_SESSION_UNSUBSCRIBE, TB_SESSION_REPLY, 0);
    if (request == NULL) return NULL;
    const struct tb_session_unsubscribe m = {.subscription = sub->number};
    tb_session_unsubscribe_encode(&m, &request->payload);
    return request;
}

/* Nobody waits for the answer any more, and it may have been yes: a member that nobody is would hold its place, and up its group. */
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
    return answer == TB_DONE_BEFORE ? TB_OK : answer;
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
        tb_free(sub);
    tb_session_leave(session);
    return status;
}

/* ---- uses ---- */

struct tb_staged_use *tb_use_find(struct tb_subscription *sub, const struct tb_id *uid)
{
    for (struct tb_staged_use *use = sub->uses; use != NULL; use = use->next)
        if (tb_id_equal(&use->staging->uid, uid)) return use;
    return NULL;
}

static bool has_slices(const struct tb_subscription *sub)
{
    return sub->registration != NULL && sub->registration->slices != NULL;
}

/* Its buffers hold a version, in memory of the host or of a device that can patch. */
static bool can_patch(const struct tb_subscription *sub)
{
    if (sub->update != TB_UPDATE_PATCH || has_slices(sub)) return false;
    if (sub->registration->gpu != NULL && !tb_gpu_may_patch(sub->registration->gpu)) return false;
    return !tb_id_is_zero(&sub->active) && tb_id_is_zero(&sub->torn);
}

static struct tb_staged_use *new_use(struct tb_subscription *sub, const struct tb_id *uid)
{
    struct tb_session *s = sub->session;
    struct tb_staged_use *use = tb_calloc(1, sizeof *use);
    if (use == NULL) return NULL;
    use->staging = tb_staging_find(s, uid);
    if (use->staging == NULL) {
        use->staging = tb_staging_new(s, uid);
        if (use->staging != NULL && can_patch(sub)) use->staging->patch_for = sub->registration;
        if (use->staging != NULL && has_slices(sub)) use->staging->slices_for = sub->registration;
        if (use->staging != NULL && sub->stage_on_gpu) use->staging->gpu_for = sub->registration;
    } else if (sub->stage_on_gpu) {
        tb_staging_not_on_gpu(use->staging, "another subscription has it in host memory");
    }
    if (use->staging == NULL) {
        tb_free(use);
        return NULL;
    }
    use->staging->uses++;
    use->next = sub->uses;
    sub->uses = use;
    return use;
}

void tb_use_drop(struct tb_subscription *sub, struct tb_staged_use *use, uint32_t drain_ms)
{
    for (struct tb_staged_use **at = &sub->uses; *at != NULL; at = &(*at)->next) {
        if (*at == use) {
            *at = use->next;
            break;
        }
    }
    struct tb_staging *st = use->staging;
    tb_free(use->copies.list);
    tb_free(use);
    if (--st->uses == 0) tb_staging_drop(sub->session, st, drain_ms);
}

/* ---- what activate will copy ---- */

static bool same_shape(const struct tb_tensor *mine, const struct tb_tensor *theirs)
{
    if (!tb_tensor_dtype_equal(mine, theirs) || mine->rank != theirs->rank) return false;
    for (uint32_t i = 0; i < mine->rank; i++)
        if (mine->full[i] != theirs->full[i] || theirs->box_count[i] != theirs->full[i]) return false;
    return true;
}

static void format_shape(const struct tb_tensor *t, char *out, size_t cap)
{
    size_t used = (size_t)snprintf(out, cap, "%s[", tb_tensor_dtype_name(t));
    for (uint32_t i = 0; i < t->rank && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%llu", i == 0 ? "" : ",",
                                 (unsigned long long)t->full[i]);
    if (used < cap) snprintf(out + used, cap - used, "]");
}

/* theirs: the first box of that name; NULL: there is none. */
static int mismatch(const struct tb_tensor *mine, const struct tb_tensor *theirs)
{
    char want[200], have[200];
    format_shape(mine, want, sizeof want);
    if (theirs == NULL)
        return tb_fail(TB_LAYOUT_MISMATCH,
                       "tensor \"%.200s\" (%s) is registered, and the version has none of that name",
                       mine->name, want);
    format_shape(theirs, have, sizeof have);
    if (strcmp(want, have) == 0)
        return tb_fail(TB_LAYOUT_MISMATCH,
                       "of tensor \"%.200s\" (%s) the version has not all that is registered", mine->name,
                       want);
    return tb_fail(TB_LAYOUT_MISMATCH, "tensor \"%.200s\" is registered as %s, and the version has %s",
                   mine->name, want, have);
}

static const struct tb_tensor *find_tensor(const struct tb_staging *st, const char *name)
{
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        const struct tb_layout *layout = &st->shards[i].manifest.layout;
        for (uint32_t k = 0; k < layout->tensor_count; k++)
            if (strcmp(layout->tensors[k].name, name) == 0) return &layout->tensors[k];
    }
    return NULL;
}

const struct tb_tensor *tb_staging_tensor(const struct tb_staging *st, const struct tb_tensor *mine,
                                          uint32_t *shard_out)
{
    const struct tb_tensor like = {.name = mine->name, .dtype = mine->dtype, .other = mine->other};
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        const struct tb_tensor *t = tb_layout_find_like(&st->shards[i].manifest.layout, &like);
        *shard_out = i;
        if (t != NULL) return same_shape(mine, t) ? t : NULL;
    }
    return NULL;
}

int tb_staging_match(const struct tb_staging *st, const struct tb_registration *r,
                     struct tb_box_copies *copies_out)
{
    const struct tb_layout **layouts = tb_calloc((size_t)st->key.shard_count + 1, sizeof *layouts);
    if (layouts == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the table of copies");
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        layouts[i] = &st->shards[i].manifest.layout;
    const struct tb_box_question q = {layouts, st->key.shard_count, r->wants, r->want_count};
    uint32_t missing;
    const enum tb_status status = tb_boxes_match(&q, copies_out, &missing);
    tb_free(layouts);
    if (status == TB_OK) return TB_OK;
    tb_free(copies_out->list);
    *copies_out = (struct tb_box_copies){0};
    if (status != TB_LAYOUT_MISMATCH) return tb_fail(status, "no table of copies can be made");
    return mismatch(&r->wants[missing], find_tensor(st, r->wants[missing].name));
}

int tb_use_match(struct tb_subscription *sub, struct tb_staged_use *use)
{
    if (use->copies_made || sub->registration == NULL) return TB_OK;
    struct tb_session *s = sub->session;
    struct tb_box_copies copies = {0};
    tb_session_unlock(
        s); /* of a million tensors it takes long; calls on a subscription come one at a time, so the use stays */
    const int status = tb_staging_match(use->staging, sub->registration, &copies);
    tb_session_lock(s);
    if (status != TB_OK) return status;
    use->copies = copies;
    use->copies_made = true;
    return TB_OK;
}

/* ---- stage ---- */

static struct tb_request *release_request(struct tb_session *s, const struct tb_id *uid)
{
    struct tb_request *request = tb_request_new(s, TB_SESSION_RELEASE, TB_SESSION_REPLY, 0);
    if (request == NULL) return NULL;
    const struct tb_session_release m = {.uid = *uid};
    tb_session_release_encode(&m, &request->payload);
    return request;
}

void tb_staging_give_back(struct tb_session *s, const struct tb_staging *st)
{
    if (st->uses > 1) return;
    tb_requests_withdraw(s, TB_SESSION_STAGE, &st->uid);
    tb_request_farewell(s, release_request(s, &st->uid));
}

int tb_use_ask(struct tb_subscription *sub, struct tb_staged_use *use)
{
    struct tb_request *request = tb_stage_request(sub->session, sub, &use->staging->uid);
    if (request == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the request");
    const enum tb_staging_state state = use->staging->state;
    const bool again = use->unheard && (state == TB_STAGING_READING || state == TB_STAGING_WHOLE);
    use->asked = true;
    use->answer = TB_AGAIN;
    use->asked_at = tb_clock_now();
    use->unheard = false;
    tb_request_post(sub->session, request);
    if (again) tb_staging_export_notice(sub->session, use->staging); /* it was refused with the STAGE */
    return TB_OK;
}

const char *tb_staging_remedy(int status)
{
    static const struct {
        int status;
        const char *text;
    } remedies[] = {
        {TB_BAD_STATE,
         "this member does not stage it now: tb_stage it again, which says whether it may be activated"},
        {TB_CONFLICT, "the group stages another version: ask tb_wait for that one"},
        {TB_GROUP_BROKEN,
         "a member of the group was lost before all had it: tb_stage it again, or ask tb_wait"},
        {TB_NOT_FOUND, "the gateway does not know it: tb_stage it again, or ask tb_wait for another"},
        {TB_VERSION_WITHDRAWN, "an operator withdrew it: ask tb_wait for another"},
        {TB_VERSION_LOST, "no holder is left of some of it: ask tb_wait for another"},
        {TB_VERSION_BROKEN, "its bytes were changed after they were sealed: ask tb_wait for another"},
        {TB_SUPERSEDED, "a newer one took its place: ask tb_wait for that one"},
        {TB_PIN_LOST, "the gateway does not hold it any more: ask tb_wait for another"},
        {TB_TIMEOUT, "the gateway has not answered in time: call again"},
        {TB_CANCELLED, "tb_cancel was called: call again"},
    };
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++)
        if (remedies[i].status == status) return remedies[i].text;
    return "call again, or ask tb_wait for another";
}

/* `why` may be empty. What ended before it was described has no number here. */
static int cannot_stage(const struct tb_staging *st, int status, const char *why)
{
    const char *text = why[0] != '\0' ? why : tb_staging_remedy(status);
    if (st->key.number == 0) return tb_fail(status, "the version cannot be staged: %s", text);
    return tb_fail(status, "version %llu cannot be staged: %s", (unsigned long long)st->key.number, text);
}

/* TB_OK: whole; TB_AGAIN: on its way; else why it ended, and the use is as it has to be for another attempt. */
static int look(struct tb_subscription *sub, struct tb_staged_use *use)
{
    struct tb_staging *st = use->staging;
    const bool described =
        use->ended == TB_OK && st->state >= TB_STAGING_PREPARED && st->state != TB_STAGING_FAILED;
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
    if (st->state == TB_STAGING_FAILED)
        status = cannot_stage(st, st->status, st->why);
    else if (use->ended != TB_OK)
        status = cannot_stage(st, use->ended, "");
    else if (described)
        status = matched == TB_OK && st->state != TB_STAGING_WHOLE ? TB_AGAIN : matched;
    return status;
}

static int not_yet(struct tb_session *s, const struct tb_staging *st)
{
    if (!s->up && !tb_staging_has_manifests(st))
        return tb_fail(TB_GATEWAY_AWAY, "the gateway at %s is away and has not described the version",
                       s->gateway_text);
    if (st->state == TB_STAGING_WHOLE)
        return tb_fail(TB_AGAIN,
                       "version %llu is whole here, and the gateway has not said yet that it counts it",
                       (unsigned long long)st->key.number);
    return tb_fail(TB_AGAIN, "version %llu: %u of %u chunks are here", (unsigned long long)st->key.number,
                   tb_staging_held_chunks(st), st->total_chunks);
}

/* Its source was lost, and the gateway may have another now, though it has said so of none. P7: each answer has all manifests in it,
 * so who asks time and again asks for it now and then; a gateway that is away is asked when it comes back. */
static bool is_stuck(const struct tb_session *s, const struct tb_staged_use *use)
{
    const struct tb_staging *st = use->staging;
    return st->state == TB_STAGING_READING && st->hop == NULL && s->up &&
           tb_time_since(use->asked_at, tb_clock_now()) >= ASK_AGAIN;
}

/* The version is whole here, and whether it may be activated is the gateway's to say. One that is away is told of it when it is
 * back. */
static bool is_unanswered(const struct tb_session *s, const struct tb_staged_use *use)
{
    return s->up && use->asked && use->answer == TB_AGAIN;
}

/* It is whole here already: for another subscription, or before another version was staged, or before its group broke. */
static bool has_to_ask(const struct tb_staged_use *use)
{
    return !use->asked || use->unheard || use->answer < TB_OK;
}

/* What the gateway refused is no version to activate. One that came back and does not know it yet is asked again by tb_activate. */
static int judge_answer(struct tb_staged_use *use)
{
    if (use->answer >= TB_OK || use->answer == TB_NOT_FOUND) return TB_OK;
    use->asked = false;
    return tb_fail(use->answer, "version %llu is whole here, and the gateway refuses it: %s",
                   (unsigned long long)use->staging->key.number,
                   use->answer_why[0] != '\0' ? use->answer_why : tb_staging_remedy(use->answer));
}

/* The bytes stay where the version itself is good: an operator may withdraw the one that stands in its way. */
static bool keeps_bytes(const struct tb_staged_use *use, int status)
{
    return status == TB_GROUP_BROKEN ||
           (use->staging->state == TB_STAGING_WHOLE && status == (int)use->answer &&
            tb_status_scope(status) != TB_SCOPE_VERSION);
}

static bool is_for_one(const struct tb_staging *st)
{
    return st->patch_for != NULL || st->slices_for != NULL || st->gpu_for != NULL || st->left_gpu;
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
    if (use != NULL && use->staging->left_gpu) { /* the gateway has heard of it */
        tb_use_drop(sub, use, 0);
        use = NULL;
    }
    if (use == NULL) use = new_use(sub, uid);
    if (use == NULL) return tb_fail(TB_SITE_NOMEM, "no memory to stage a version");
    int status = look(sub, use);
    if (status == TB_AGAIN && (!use->asked || is_stuck(s, use))) {
        const int asked = tb_use_ask(sub, use);
        if (asked != TB_OK) return asked;
    } else if (status == TB_OK && has_to_ask(use)) {
        status = tb_use_ask(sub, use);
    }
    while (status == TB_AGAIN || (status == TB_OK && is_unanswered(s, use))) {
        const enum tb_status waited = tb_session_wait_change(s, call);
        if (waited == TB_CANCELLED)
            return tb_fail(TB_CANCELLED, "tb_stage was cancelled; the version goes on arriving");
        if (waited == TB_TIMEOUT) return not_yet(s, use->staging);
        status = look(sub, use);
    }
    if (status == TB_OK) status = judge_answer(use);
    if (status == TB_OK) status = tb_use_tied(sub, use);
    if (status == TB_OK && sub->update == TB_UPDATE_SWITCH)
        (void)tb_use_fill(sub, use); /* or the switch does it */
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

/* Under the lock. The gateway sends no reader here any more once it has answered; if it is away, no reader
 * can come by a new token either. */
static void tell_release(struct tb_session *s, const struct tb_staging *st)
{
    struct tb_request *request = st->uses == 1 && s->up ? release_request(s, &st->uid) : NULL;
    const struct tb_call call = {.deadline = tb_time_add(tb_clock_now(), TB_MS(RELEASE_MS)),
                                 .cancels = s->cancels};
    const enum tb_status status = request != NULL ? tb_request_wait(s, request, &call) : TB_OK;
    const bool heard = request != NULL && request->done;
    if (status != TB_OK && status != TB_NOT_FOUND && status != TB_DONE_BEFORE)
        tb_log(TB_LOG_WARN, "release.untold", "number=%llu status=%s action=readers_cut_off",
               (unsigned long long)st->key.number, tb_status_name(status));
    tb_request_free(request);
    if (!heard)
        tb_staging_give_back(s, st); /* P3: a gateway that takes us for a keeper may let its own copy go */
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
        tell_release(s, use->staging);
        tb_use_drop(subscription, use, tb_session_drain_ms(s));
    }
    tb_session_unlock(s);
    tb_session_leave(s);
    return status;
}

int tb_use_ask_anew(struct tb_subscription *sub, struct tb_staged_use *use, const struct tb_call *call)
{
    struct tb_session *s = sub->session;
    struct tb_request *request = s->up ? release_request(s, &use->staging->uid) : NULL;
    if (request == NULL)
        return tb_fail(TB_GATEWAY_AWAY, "the gateway at %s is away: nothing can be fetched", s->gateway_text);
    const enum tb_status status = tb_request_wait(s, request, call);
    tb_request_free(request);
    if (status != TB_OK && status != TB_NOT_FOUND && status != TB_DONE_BEFORE)
        return tb_fail(status, "version %llu cannot be asked for again",
                       (unsigned long long)use->staging->key.number);
    use->staging->state = TB_STAGING_READING;
    const int asked = tb_use_ask(sub, use);
    if (asked == TB_OK) tb_staging_export_notice(s, use->staging);
    return asked;
}

/* ---- unsubscribe ---- */

static void end_subscription(struct tb_subscription *sub, bool wait)
{
    struct tb_session *s = sub->session;
    while (sub->uses != NULL) {
        struct tb_staged_use *use = sub->uses;
        if (wait) tell_release(s, use->staging);
        tb_use_drop(sub, use, wait ? tb_session_drain_ms(s) : 0);
    }
    tb_request_farewell(s, unsubscribe_request(s, sub));
    for (struct tb_subscription **at = &s->subscriptions; *at != NULL; at = &(*at)->next) {
        if (*at == sub) {
            *at = sub->next;
            break;
        }
    }
    if (sub->registration != NULL) sub->registration->subscriptions--;
    if (sub->second != NULL) sub->second->subscriptions--;
    tb_free(sub);
    tb_spare_drop_unwanted(s);
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

/* registration_suspend.c - tb_suspend, tb_resume and tb_unregister: how the caller gets its memory
 * back.
 *
 * After a suspension no reader and no pass of ours touches the memory. A resumed reference comes
 * back only over the bytes that were sealed. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/client/follow/staged_gpu.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/memory/spare_memory.h"
#include "intra/client/memory/tied_tensors_bytes.h"
#include "intra/client/publish/publication.h"
#include "intra/client/publish/publication_export.h"
#include "intra/client/publish/publication_messages.h"
#include "intra/client/publish/publication_watch.h"
#include "intra/client/publish/publish_pass.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

#define SEAL_AGAIN_MS 30000u
/* Of a drain, or a quarter where it is short: left for the gateway's answer at its end. */
#define ANSWER_MS 500u

/* ---- giving the memory back ---- */

static bool is_hiding(const struct tb_publication *p)
{
    return p->life == TB_PUBLICATION_HIDING || p->life == TB_PUBLICATION_HIDDEN;
}

/* One that no call works on: served from here, or suspended. */
static struct tb_publication *next_in_place(struct tb_session *s, const struct tb_registration *r,
                                            bool suspended)
{
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next) {
        if (p->registration != r || !p->in_place || tb_publication_is_busy(p->life)) continue;
        if ((p->life == TB_PUBLICATION_SUSPENDED) == suspended) return p;
    }
    return NULL;
}

static void tell_hidden(const struct tb_publication *p, enum tb_status status, bool heard)
{
    if (status == TB_OK || status == TB_DONE_BEFORE) return;
    const bool late = heard && (status == TB_TIMEOUT || status == TB_PEER_REVOKED);
    tb_log(TB_LOG_WARN, late ? "publish.not_taken" : "publish.hidden_unasked",
           "number=%llu shard=%u status=%s action=readers_cut_off", (unsigned long long)p->number, p->shard,
           tb_status_name(status));
}

static struct tb_request *hide_request(struct tb_session *s, const struct tb_publication *p, bool keep,
                                       uint32_t drain_ms)
{
    return keep ? tb_publication_unpublish(s, &p->uid, p->shard, drain_ms)
                : tb_publication_gone_request(s, p, drain_ms);
}

static uint32_t left_ms(const struct tb_call *call)
{
    return (uint32_t)(tb_time_since(tb_clock_now(), call->deadline) / 1000000u);
}

/* The gateway's drain begins when it hears of it, and ends before ours: what it could not take it
 * says at the end. */
static uint32_t gateway_drain_ms(const struct tb_call *call)
{
    const uint32_t left = left_ms(call), quarter = left / 4;
    return left - (quarter < ANSWER_MS ? quarter : ANSWER_MS);
}

/* A publication whose UNPUBLISH was answered is not announced to a gateway that comes anew, while
 * other answers are waited for. */
static void answered(struct tb_session *s, struct tb_request *request, void *user)
{
    (void)s;
    (void)request;
    struct tb_publication *p = user;
    tb_publication_step(&p->life, TB_PUBLICATION_ANSWERED);
}

/* Asks the gateway to send no new reader. keep: the reference may come back, so the gateway counts
 * on that. */
static void ask_to_hide(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms, bool keep)
{
    TB_ASSERT(p->hiding == NULL);
    tb_publication_step(&p->life, TB_PUBLICATION_HIDE);
    p->hiding = s->up ? hide_request(s, p, keep, drain_ms) : NULL;
    if (p->hiding == NULL) return;
    p->hiding->fn = answered;
    p->hiding->user = p;
    tb_request_post(s, p->hiding);
}

/* Its answer is waited for as long as readers may drain, then they are cut off. */
static void hide_asked(struct tb_session *s, struct tb_publication *p, const struct tb_call *call, bool keep)
{
    TB_ASSERT(is_hiding(p));
    struct tb_request *request = p->hiding;
    const enum tb_status status = request != NULL ? tb_request_await(s, request, call) : TB_GATEWAY_AWAY;
    const bool heard = request != NULL && request->done;
    tell_hidden(p, status, heard);
    tb_request_free(request);
    p->hiding = NULL;
    if (!heard) tb_request_farewell(s, hide_request(s, p, keep, 0));
    p->counted_on = keep && status != TB_OK;
    tb_publication_hide(s, p, left_ms(call));
    tb_publication_step(&p->life, TB_PUBLICATION_CLOSED);
}

/* It does not come back: where the gateway counts on it all the same, it is told. */
static void end_hidden(struct tb_session *s, struct tb_publication *p)
{
    TB_ASSERT(p->export_id == 0 || p->life == TB_PUBLICATION_RETURNING);
    if (p->counted_on) tb_request_farewell(s, tb_publication_gone_request(s, p, 0));
    tb_publication_remove(s, p, 0);
}

/* Another thread unpublishes, or publishes again, a shard of it. */
static bool is_busy(const struct tb_session *s, const struct tb_registration *r)
{
    for (const struct tb_publication *p = s->publications; p != NULL; p = p->next)
        if (p->registration == r && p->in_place && tb_publication_is_busy(p->life)) return true;
    return false;
}

/* Under the lock. After it no reader and no pass of ours touches the memory. All are asked before
 * any is waited for, so the gateway and the readers of each have all of the drain. */
static void hide_all(struct tb_session *s, struct tb_registration *r, bool keep)
{
    TB_ASSERT_LOCKED(s);
    TB_ASSERT(r->suspended); /* no new pass begins */
    struct tb_call call = {.cancels = s->cancels};
    r->ending++;
    while (r->passes > 0 || is_busy(s, r))
        tb_session_wait_unbounded(s);
    call.deadline = tb_time_add(tb_clock_now(), TB_MS(tb_session_drain_ms(s)));
    const uint32_t drain_ms = gateway_drain_ms(&call);
    struct tb_publication *p;
    while ((p = next_in_place(s, r, false)) != NULL)
        ask_to_hide(s, p, drain_ms, keep);
    /* nobody removes the one that is busy with us */
    for (p = s->publications; p != NULL; p = p->next)
        if (p->registration == r && p->in_place && is_hiding(p)) hide_asked(s, p, &call, keep);
    tb_session_changed(s, false); /* they are busy no longer */
    while (!keep && (p = next_in_place(s, r, true)) != NULL)
        end_hidden(s, p);
    TB_ASSERT(r->ending > 0);
    r->ending--;
}

/* Under the lock, let go meanwhile: to give its pages back takes a while. It counts as a pass, so
 * nobody brings the memory back before. */
static void let_go(struct tb_session *s, struct tb_registration *r)
{
    TB_ASSERT_LOCKED(s);
    if (r->stretches.list == NULL) return;
    tb_registration_begin_pass(r);
    tb_session_unlock(s);
    for (uint32_t i = 0; r->stays && i < r->stretches.count; i++)
        tb_fabric_memory_goes(s->fabric, r->stretches.list[i].at);
    tb_session_lock(s);
    tb_stretches_free(&r->stretches);
    r->stays = false;
    tb_registration_end_pass(r);
}

/* Under the lock, let go meanwhile: a device is waited for. It counts as a pass, so nobody brings
 * the memory back before. */
static void close_gpu(struct tb_session *s, struct tb_registration *r)
{
    TB_ASSERT_LOCKED(s);
    struct tb_gpu_memory *gpu = r->gpu;
    if (gpu == NULL) return;
    r->gpu = NULL;
    tb_registration_begin_pass(r);
    tb_session_unlock(s);
    tb_gpu_memory_close(gpu);
    tb_session_lock(s);
    tb_registration_end_pass(r);
}

int tb_unregister(struct tb_registration *registration)
{
    if (registration == NULL) return tb_fail(TB_BAD_ARGUMENT, "no registration given");
    struct tb_session *s = registration->session;
    int status = tb_session_enter(s);
    if (status != TB_OK) return status;
    tb_session_lock(s);
    if (registration->subscriptions > 0) {
        status = tb_fail(TB_BAD_STATE, "%u subscriptions use the registration: tb_unsubscribe first",
                         registration->subscriptions);
    } else {
        registration->suspended = true; /* no new pass */
        hide_all(s, registration, false);
        let_go(s, registration);
        tb_stagings_leave_gpu(s, registration);
        close_gpu(s, registration);
        tb_spare_drop(s, &registration->spare);
        tb_reserve_drop_of(s, registration);
        tb_registration_free(registration);
    }
    tb_session_unlock(s);
    tb_session_leave(s);
    return status;
}

int tb_suspend(struct tb_registration *registration)
{
    if (registration == NULL) return tb_fail(TB_BAD_ARGUMENT, "no registration given");
    struct tb_session *s = registration->session;
    int status = tb_session_enter(s);
    if (status != TB_OK) return status;
    tb_session_lock(s);
    if (registration->suspended) {
        status = tb_fail(TB_BAD_STATE, "the registration is suspended already");
    } else {
        registration->suspended = true;
        hide_all(s, registration, true);
        tb_registration_gone(registration, true);
        let_go(s, registration);
        tb_stagings_leave_gpu(s, registration);
        close_gpu(s, registration);
        tb_guard_end(registration->guard);
        registration->guard = NULL;
    }
    tb_session_unlock(s);
    tb_session_leave(s);
    return status;
}

/* ---- and bringing it again ---- */

/* Digests what stands there now: the reference comes back only over the bytes that were sealed.
 * Without the lock. */
static int compare_with_sealed(struct tb_session *s, struct tb_registration *r,
                               const struct tb_publication *p)
{
    TB_ASSERT_UNLOCKED(s);
    uint32_t differs;
    if (r->gpu != NULL && !p->copied)
        return tb_fail(
            TB_BAD_STATE,
            "version %llu was published in place from host memory and its tensors are a GPU's now: its "
            "reference does not come back",
            (unsigned long long)p->number);
    uint8_t *blobs = p->blobs.bytes;
    if (p->copied) blobs += p->manifest.layout.bytes;
    struct tb_manifest manifest = p->manifest;
    const struct tb_pass with = {
        .manifest = &manifest, .tensors = r->memory, .rows = r->rows, .blobs = blobs, .gpu = r->gpu};
    const enum tb_status status = tb_pass_compare(s->crew, &with, &differs);
    const int missing = tb_registration_missing(r);
    if (missing != TB_OK || status == TB_OK) return missing;
    if (status != TB_CONFLICT)
        return tb_fail(status, "no memory to compare version %llu", (unsigned long long)p->number);
    return tb_fail(TB_CONFLICT,
                   "version %llu shard %u: chunk %u of %u is no longer what was sealed; its reference does "
                   "not come back",
                   (unsigned long long)p->number, p->shard, differs, p->manifest.chunk_count);
}

static int seal_again(struct tb_session *s, struct tb_publication *p)
{
    const enum tb_status status = tb_publication_export(s, p);
    if (status != TB_OK)
        return tb_fail(status, "version %llu cannot be exported again", (unsigned long long)p->number);
    const struct tb_call call = tb_call_begin(s, SEAL_AGAIN_MS);
    struct tb_request *request = tb_publication_seal(s, p);
    const int sealed = tb_request_call(s, request, &call, "tb_resume");
    tb_request_free(request);
    return sealed == TB_DONE_BEFORE ? TB_OK : sealed;
}

static int bring_back(struct tb_session *s, struct tb_registration *r, struct tb_publication *p)
{
    TB_ASSERT_LOCKED(s);
    TB_ASSERT(p->registration == r && p->in_place);
    tb_publication_step(&p->life, TB_PUBLICATION_RETURN);
    tb_session_unlock(s);
    tb_publication_protect(s, p);
    int status = compare_with_sealed(s, r, p);
    tb_session_lock(s);
    const bool seals = status == TB_OK && !p->unpublished;
    if (seals) {
        tb_session_unlock(s);
        status = seal_again(s, p);
        tb_session_lock(s);
    }
    const bool over = p->unpublished;
    /* a seal may have arrived */
    p->counted_on = (status != TB_OK || over) && (p->counted_on || seals);
    if (status != TB_OK || over)
        end_hidden(s, p);
    else
        tb_publication_step(&p->life, TB_PUBLICATION_RETURNED);
    tb_session_changed(s, false);
    return over ? TB_OK : status;
}

static const char *given_name(const struct tb_registration *r, uint32_t given)
{
    if (r->slices != NULL) return r->slices[given].name;
    for (uint32_t i = 0; i < r->layout.tensor_count; i++)
        if (r->given_of[i] == given) return r->layout.tensors[i].name;
    return "";
}

/* Under the lock, let go meanwhile. On failure it stays suspended. */
static int find_gpu_again(struct tb_session *s, struct tb_registration *r)
{
    TB_ASSERT(r->suspended && r->gpu == NULL && r->guard == NULL);
    struct tb_gpu_memory *gpu;
    tb_session_unlock(s);
    int status = tb_registration_find_gpu(s, r, &gpu);
    r->gpu = status == TB_OK ? gpu : NULL;
    struct tb_guard *guard = NULL;
    if (status == TB_OK) status = tb_registration_guard(r, &guard);
    tb_session_lock(s);
    r->guard = guard;
    if (status != TB_OK) {
        close_gpu(s, r);
        return status;
    }
    r->suspended = false;
    tb_registration_gone(r, false);
    return TB_OK;
}

/* Its tensors stand there from now on, unless a subscription cannot go on with that. */
static int move(struct tb_session *s, struct tb_registration *r, void *const *memories)
{
    uint8_t **before = tb_calloc((size_t)r->given_count + 1, sizeof *before);
    if (before == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for %u addresses", r->given_count);
    memcpy(before, r->given, r->given_count * sizeof *before);
    for (uint32_t i = 0; i < r->given_count; i++)
        r->given[i] = memories[i];
    tb_registration_place(r);
    int status = tb_tied_may_move(s, r);
    if (status == TB_OK) status = tb_registration_tie(r);
    if (status != TB_OK) {
        memcpy(r->given, before, r->given_count * sizeof *before);
        tb_registration_place(r);
    }
    tb_free(before);
    return status;
}

static int resume(struct tb_session *s, struct tb_registration *r, void *const *memories, uint32_t count)
{
    if (!r->suspended) return tb_fail(TB_BAD_STATE, "the registration is not suspended");
    if (r->ending > 0 || r->passes > 0)
        return tb_fail(TB_BAD_STATE, "another call suspends or resumes the registration");
    if (memories != NULL && count != r->given_count)
        return tb_fail(TB_BAD_ARGUMENT, "%u addresses for %u tensors", count, r->given_count);
    for (uint32_t i = 0; memories != NULL && i < count; i++)
        if (memories[i] == NULL && r->given[i] != NULL)
            return tb_fail(TB_BAD_ARGUMENT, "tensor %u, \"%.200s\", has no memory", i, given_name(r, i));
    const int moved = memories == NULL ? TB_OK : move(s, r, memories);
    if (moved != TB_OK) return moved;
    tb_registration_begin_pass(r); /* nobody else resumes it, or ends it, meanwhile */
    int first = find_gpu_again(s, r);
    struct tb_publication *p;
    while (!r->suspended && (p = next_in_place(s, r, true)) != NULL) {
        const int status = bring_back(s, r, p);
        if (first == TB_OK) first = status;
    }
    tb_registration_end_pass(r);
    return first;
}

int tb_resume(struct tb_registration *registration, void *const *memories, uint32_t count)
{
    if (registration == NULL) return tb_fail(TB_BAD_ARGUMENT, "no registration given");
    struct tb_session *s = registration->session;
    int status = tb_session_enter(s);
    if (status != TB_OK) return status;
    tb_session_lock(s);
    status = resume(s, registration, memories, count);
    tb_session_unlock(s);
    tb_session_leave(s);
    return status;
}

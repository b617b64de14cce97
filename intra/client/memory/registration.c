/* registration.c - a layout over memory that stays the caller's, and the ways in which the caller gets it
 * back. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "intra/client/publish/publish_pass.h"
#include "intra/client/session/client.h"

#define SEAL_AGAIN_MS 30000u
/* Of a drain, or a quarter where it is short: left for the gateway's answer at its end. */
#define ANSWER_MS 500u
/* What NICs keep is looked through for each stretch of each version, a million looks for so many. Of more stretches it is registered for
 * each version anew. */
#define STAYS_STRETCHES_MAX 1024u

/* ---- register ---- */

static int describe(const struct tb_tensor_desc *d, uint32_t index, struct tb_tensor *t)
{
    if (d->name == NULL || d->dtype == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "tensor %u has no name or dtype", index);
    memset(t, 0, sizeof *t);
    t->name = d->name;
    if (!tb_tensor_set_dtype(t, d->dtype))
        return tb_fail(TB_BAD_ARGUMENT, "tensor \"%.200s\": " TB_DTYPE_UNKNOWN, d->name, d->dtype);
    if (d->rank > TB_RANK_MAX)
        return tb_fail(TB_BAD_ARGUMENT, "tensor \"%.200s\": rank %u is above %d", d->name, d->rank,
                       TB_RANK_MAX);
    if (d->rank > 0 && d->shape == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "tensor \"%.200s\" has no shape", d->name);
    t->rank = (uint8_t)d->rank;
    for (uint32_t i = 0; i < d->rank; i++)
        t->full[i] = t->box_count[i] = d->shape[i];
    return TB_OK;
}

static int build_layout(struct tb_registration *r, const struct tb_tensor *tensors, uint32_t count)
{
    const size_t bytes = tb_layout_bytes_for(tensors, count);
    r->layout_memory = tb_malloc(bytes);
    if (r->layout_memory == NULL)
        return tb_fail(TB_SITE_NOMEM, "no memory for a layout of %u tensors", count);
    const enum tb_status status = tb_layout_build(tensors, count, r->layout_memory, bytes, &r->layout);
    if (status == TB_OK) return TB_OK;
    /* One by one, to name the one that is wrong; if each is fine alone, two have one name. */
    for (uint32_t i = 0; i < count; i++) {
        struct tb_layout one;
        const enum tb_status alone = tb_layout_build(&tensors[i], 1, r->layout_memory, bytes, &one);
        if (alone != TB_OK)
            return tb_fail(alone, "tensor %u, \"%.200s\", cannot be registered", i, tensors[i].name);
    }
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = 0; k < i && count <= 20000; k++)
            if (strcmp(tensors[i].name, tensors[k].name) == 0)
                return tb_fail(status, "tensors %u and %u are both named \"%.200s\"", k, i, tensors[i].name);
    return tb_fail(status, "the %u tensors do not make a layout: two of one name, or too large together",
                   count);
}

void tb_registration_place(struct tb_registration *r)
{
    for (uint32_t i = 0; i < r->layout.tensor_count; i++) {
        uint8_t *given = r->given[r->given_of[i]];
        r->memory[i] = given == NULL || r->given_offset == NULL ? given : given + r->given_offset[i];
    }
}

static int place_tensors(struct tb_registration *r, const struct tb_tensor_desc *descs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct tb_tensor *t = tb_layout_find(&r->layout, descs[i].name);
        TB_ASSERT(t != NULL);
        if (descs[i].memory == NULL && t->bytes > 0)
            return tb_fail(TB_BAD_ARGUMENT, "tensor \"%.200s\" has no memory", descs[i].name);
        r->given_of[t - r->layout.tensors] = i;
        r->given[i] = descs[i].memory;
    }
    tb_registration_place(r);
    r->want_count = count;
    r->want_bytes = r->layout.bytes;
    r->wants = r->layout.tensors;
    r->want_memory = r->memory;
    return TB_OK;
}

static int build_registration(struct tb_registration *r, const struct tb_tensor_desc *descs, uint32_t count)
{
    struct tb_tensor *tensors = tb_calloc(count, sizeof *tensors);
    r->memory = tb_calloc(count, sizeof *r->memory);
    r->given = tb_calloc(count, sizeof *r->given);
    r->given_of = tb_calloc(count, sizeof *r->given_of);
    r->given_count = count;
    int status = tensors == NULL || r->memory == NULL || r->given == NULL || r->given_of == NULL
                     ? tb_fail(TB_SITE_NOMEM, "no memory for %u tensors", count)
                     : TB_OK;
    for (uint32_t i = 0; i < count && status == TB_OK; i++)
        status = describe(&descs[i], i, &tensors[i]);
    if (status == TB_OK) status = build_layout(r, tensors, count);
    if (status == TB_OK) status = place_tensors(r, descs, count);
    tb_free(tensors);
    return status;
}

int tb_registration_tie(struct tb_registration *r)
{
    struct tb_tied tied;
    const struct tb_tied_list list = {r->wants, r->want_memory, r->want_count};
    if (tb_tied_find(&list, &tied) != TB_OK)
        return tb_fail(TB_SITE_NOMEM, "no memory to compare where %u tensors stand", r->want_count);
    tb_tied_free(&r->tied);
    r->tied = tied;
    return TB_OK;
}

struct tb_gpu *tb_session_gpu(struct tb_session *s, const struct tb_registration *r)
{
    tb_session_lock(s);
    struct tb_gpu *gpu = r == NULL || r->gpu != NULL ? s->gpu : NULL;
    tb_session_unlock(s);
    return gpu;
}

/* The driver's entry points, read from its library without the lock. Two calls may do so at once: the
 * first one's stay. What takes longer is done with a memory. */
static enum tb_status find_driver(struct tb_session *s, struct tb_gpu **gpu_out, char *why)
{
    *gpu_out = tb_session_gpu(s, NULL);
    if (*gpu_out != NULL) return TB_OK;
    struct tb_gpu *mine = NULL;
    const enum tb_status status = tb_gpu_open(&mine, why);
    tb_session_lock(s);
    struct tb_gpu *spare = s->gpu != NULL ? mine : NULL;
    if (s->gpu == NULL) s->gpu = mine;
    *gpu_out = s->gpu;
    tb_session_unlock(s);
    tb_gpu_close(spare);
    return *gpu_out != NULL ? TB_OK : status;
}

/* Whose memory it is: asked when it comes, and again when it comes back. A device that nobody has used yet takes seconds to come up,
 * and a session that renews no lease meanwhile is given up by its gateway. */
int tb_registration_find_gpu(struct tb_session *s, const struct tb_registration *r,
                             struct tb_gpu_memory **gpu_out)
{
    char why[TB_GPU_WHY_BYTES] = "";
    struct tb_gpu *gpu;
    enum tb_status status = find_driver(s, &gpu, why);
    *gpu_out = NULL;
    if (status == TB_SITE_NOMEM) return tb_fail(status, "the GPU's driver: %s", why);
    if (status == TB_PEER_PROTOCOL) /* it may be host memory all the same, and then all is well */
        tb_log(TB_LOG_WARN, "gpu.not_asked", "reason=\"%s\" action=taken_for_host_memory", why);
    const struct tb_layout wants = {.tensor_count = r->want_count, .tensors = r->wants};
    const struct tb_gpu_tensors tensors = {&wants, r->want_memory};
    status = tb_gpu_memory_open(gpu, &tensors, gpu_out, why);
    return status == TB_OK ? TB_OK : tb_fail(status, "%s", why);
}

/* ---- memory that maps a file ---- */

static void wake(void *user)
{
    tb_session_wake(user); /* uv_async_send, which a signal handler may call */
}

int tb_registration_guard(const struct tb_registration *r, struct tb_guard **guard_out)
{
    *guard_out = NULL;
    if (r->gpu != NULL) return TB_OK;
    struct tb_guard_range *ranges = tb_calloc((size_t)r->want_count + 1, sizeof *ranges);
    enum tb_status status = ranges == NULL ? TB_SITE_NOMEM : TB_OK;
    for (uint32_t i = 0; ranges != NULL && i < r->want_count; i++)
        ranges[i] = (struct tb_guard_range){r->want_memory[i], r->wants[i].bytes};
    if (status == TB_OK) status = tb_guard_new(ranges, r->want_count, wake, r->session, guard_out);
    tb_free(ranges);
    return status == TB_OK ? TB_OK : tb_fail(status, "no memory to guard %u tensors", r->want_count);
}

int tb_registration_missing(const struct tb_registration *r)
{
    const uint8_t *at = r != NULL ? tb_guard_missing(r->guard) : NULL;
    if (at == NULL) return TB_OK;
    const char *name = "";
    for (uint32_t i = 0; i < r->want_count; i++)
        if (at >= r->want_memory[i] && at < r->want_memory[i] + r->wants[i].bytes) name = r->wants[i].name;
    return tb_fail(TB_SITE_IO, "tensor \"%.200s\" maps a file that was cut short: bytes of it are missing",
                   name);
}

void tb_registration_gone(struct tb_registration *r, bool gone)
{
    pthread_rwlock_wrlock(&r->target.lock);
    r->target.gone = gone;
    r->target.gpu = gone ? NULL : r->gpu;
    r->target.writes++;
    pthread_rwlock_unlock(&r->target.lock);
}

/* What stands in a buffer of ours stays as long as that. */
static bool is_callers(const struct tb_session *s, const struct tb_registration *r, uint32_t tensor)
{
    const uint64_t bytes = r->layout.tensors[tensor].bytes;
    return bytes > 0 && tb_buffer_find(s, r->memory[tensor], bytes) == NULL;
}

enum tb_status tb_registration_stretch(struct tb_session *s, struct tb_registration *r)
{
    if (r->stretches.list != NULL) return TB_OK;
    struct tb_stretch *pieces = tb_calloc((size_t)r->layout.tensor_count + 1, sizeof *pieces);
    if (pieces == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < r->layout.tensor_count; i++)
        if (is_callers(s, r, i)) pieces[i] = (struct tb_stretch){r->memory[i], r->layout.tensors[i].bytes};
    const enum tb_status status = tb_stretches_make(pieces, r->layout.tensor_count, &r->stretches);
    tb_free(pieces);
    r->stays = status == TB_OK && r->stretches.count <= STAYS_STRETCHES_MAX;
    for (uint32_t i = 0; r->stays && i < r->stretches.count; i++)
        tb_fabric_memory_stays(s->fabric, r->stretches.list[i].at, r->stretches.list[i].bytes);
    return status;
}

void tb_registration_discard(struct tb_registration *r)
{
    tb_guard_end(r->guard);
    tb_gpu_memory_close(r->gpu);
    tb_session_memory_free(r->session, &r->spare.memory);
    tb_stretches_free(&r->stretches);
    tb_tied_free(&r->tied);
    pthread_rwlock_destroy(&r->target.lock);
    tb_free(r->slices);
    tb_free(r->slice_names);
    tb_free(r->rows);
    tb_free(r->given);
    tb_free(r->given_of);
    tb_free(r->given_offset);
    tb_free(r->memory);
    tb_free(r->layout_memory);
    tb_free(r);
}

struct tb_registration *tb_registration_new(struct tb_session *s)
{
    struct tb_registration *r = tb_calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->session = s;
    /* A switch does not wait for the encoders of a version that arrives without end. */
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&r->target.lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    return r;
}

void tb_registration_enter(struct tb_registration *r)
{
    struct tb_session *s = r->session;
    r->target.gpu = r->gpu;
    tb_session_lock(s);
    r->next = s->registrations;
    s->registrations = r;
    tb_session_unlock(s);
}

static int new_registration(struct tb_session *s, const struct tb_tensor_desc *tensors, uint32_t count,
                            struct tb_registration **registration_out)
{
    if (tensors == NULL || count == 0 || count > TB_TENSORS_MAX || registration_out == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "a registration has 1 to %d tensors", TB_TENSORS_MAX);
    struct tb_registration *r = tb_registration_new(s);
    if (r == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for a registration");
    int status = build_registration(r, tensors, count);
    if (status == TB_OK) status = tb_registration_tie(r);
    if (status == TB_OK) status = tb_registration_find_gpu(s, r, &r->gpu);
    if (status == TB_OK) status = tb_registration_guard(r, &r->guard);
    if (status != TB_OK) {
        tb_registration_discard(r);
        return status;
    }
    tb_registration_enter(r);
    *registration_out = r;
    return TB_OK;
}

int tb_register(struct tb_session *session, const struct tb_tensor_desc *tensors, uint32_t count,
                struct tb_registration **registration_out)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    status = new_registration(session, tensors, count, registration_out);
    tb_session_leave(session);
    return status;
}

void tb_registration_free(struct tb_registration *r)
{
    for (struct tb_registration **at = &r->session->registrations; *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    tb_registration_discard(r);
}

/* ---- giving the memory back ---- */

static struct tb_publication *next_in_place(struct tb_session *s, const struct tb_registration *r,
                                            bool suspended)
{
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next)
        if (p->registration == r && p->in_place && !p->busy && p->suspended == suspended) return p;
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
    return keep ? tb_unpublish_request(s, &p->uid, p->shard, drain_ms)
                : tb_unpublish_gone_request(s, p, drain_ms);
}

static uint32_t left_ms(const struct tb_call *call)
{
    return (uint32_t)(tb_time_since(tb_clock_now(), call->deadline) / 1000000u);
}

/* The gateway's drain begins when it hears of it, and ends before ours: what it could not take it says at the end. */
static uint32_t gateway_drain_ms(const struct tb_call *call)
{
    const uint32_t left = left_ms(call), quarter = left / 4;
    return left - (quarter < ANSWER_MS ? quarter : ANSWER_MS);
}

/* What was answered is not announced again to a gateway that comes anew, while others are waited for. */
static void answered(struct tb_session *s, struct tb_request *request, void *user)
{
    (void)s;
    (void)request;
    struct tb_publication *p = user;
    p->suspended = true;
}

/* Asks the gateway to send no new reader. keep: the reference may come back, so the gateway counts on that. */
static void ask_to_hide(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms, bool keep)
{
    p->busy = true;
    p->hiding = s->up ? hide_request(s, p, keep, drain_ms) : NULL;
    if (p->hiding == NULL) return;
    p->hiding->fn = answered;
    p->hiding->user = p;
    tb_request_post(s, p->hiding);
}

/* Its answer is waited for as long as readers may drain, then they are cut off. */
static void hide_asked(struct tb_session *s, struct tb_publication *p, const struct tb_call *call, bool keep)
{
    struct tb_request *request = p->hiding;
    const enum tb_status status = request != NULL ? tb_request_await(s, request, call) : TB_GATEWAY_AWAY;
    const bool heard = request != NULL && request->done;
    tell_hidden(p, status, heard);
    tb_request_free(request);
    p->hiding = NULL;
    if (!heard) tb_request_farewell(s, hide_request(s, p, keep, 0));
    p->counted_on = keep && status != TB_OK;
    tb_publication_hide(s, p, left_ms(call));
    p->busy = false;
    p->suspended = true;
}

/* It does not come back: where the gateway counts on it all the same, it is told. */
static void end_hidden(struct tb_session *s, struct tb_publication *p)
{
    if (p->counted_on) tb_request_farewell(s, tb_unpublish_gone_request(s, p, 0));
    tb_publication_remove(s, p, 0);
}

/* Another thread unpublishes, or publishes again, a shard of it. */
static bool is_busy(const struct tb_session *s, const struct tb_registration *r)
{
    for (const struct tb_publication *p = s->publications; p != NULL; p = p->next)
        if (p->registration == r && p->in_place && p->busy) return true;
    return false;
}

/* Under the lock. After it no reader and no pass of ours touches the memory. All are asked before any is waited for, so the gateway and
 * the readers of each have all of the drain. */
static void hide_all(struct tb_session *s, struct tb_registration *r, bool keep)
{
    struct tb_call call = {.cancels = s->cancels};
    r->ending++;
    while (r->passes > 0 || is_busy(s, r))
        tb_session_wait_unbounded(s);
    call.deadline = tb_time_add(tb_clock_now(), TB_MS(tb_session_drain_ms(s)));
    const uint32_t drain_ms = gateway_drain_ms(&call);
    struct tb_publication *p;
    while ((p = next_in_place(s, r, false)) != NULL)
        ask_to_hide(s, p, drain_ms, keep);
    for (p = s->publications; p != NULL; p = p->next) /* nobody removes the one that is busy with us */
        if (p->registration == r && p->in_place && p->busy) hide_asked(s, p, &call, keep);
    tb_session_changed(s, false); /* they are busy no longer */
    while (!keep && (p = next_in_place(s, r, true)) != NULL)
        end_hidden(s, p);
    r->ending--;
}

/* Under the lock, let go meanwhile: to give its pages back takes a while. It counts as a pass, so nobody brings the memory back before. */
static void let_go(struct tb_session *s, struct tb_registration *r)
{
    if (r->stretches.list == NULL) return;
    r->passes++;
    tb_session_unlock(s);
    for (uint32_t i = 0; r->stays && i < r->stretches.count; i++)
        tb_fabric_memory_goes(s->fabric, r->stretches.list[i].at);
    tb_session_lock(s);
    tb_stretches_free(&r->stretches);
    r->stays = false;
    r->passes--;
    tb_session_changed(s, false);
}

/* Under the lock, let go meanwhile: a device is waited for. It counts as a pass, so nobody brings the memory back before. */
static void close_gpu(struct tb_session *s, struct tb_registration *r)
{
    struct tb_gpu_memory *gpu = r->gpu;
    if (gpu == NULL) return;
    r->gpu = NULL;
    r->passes++;
    tb_session_unlock(s);
    tb_gpu_memory_close(gpu);
    tb_session_lock(s);
    r->passes--;
    tb_session_changed(s, false);
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
        close_gpu(s, registration);
        tb_spare_drop(s, &registration->spare);
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

/* Digests what stands there now: the reference comes back only over the bytes that were sealed. Without the
 * lock. */
static int compare_with_sealed(struct tb_session *s, struct tb_registration *r,
                               const struct tb_publication *p)
{
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
    p->busy = true;
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
    p->busy = false;
    p->suspended = false;
    p->counted_on = (status != TB_OK || over) && (p->counted_on || seals); /* a seal may have arrived */
    if (status != TB_OK || over) end_hidden(s, p);
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
    r->passes++; /* nobody else resumes it, or ends it, meanwhile */
    int first = find_gpu_again(s, r);
    struct tb_publication *p;
    while (!r->suspended && (p = next_in_place(s, r, true)) != NULL) {
        const int status = bring_back(s, r, p);
        if (first == TB_OK) first = status;
    }
    r->passes--;
    tb_session_changed(s, false);
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

/* registration.c - a layout over memory that stays the caller's, and the ways in which the caller
 * gets it back. */
#include "intra/client/memory/registration.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/layout/tensor.h"
#include "base/log.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/publish/publish_pass.h"
#include "intra/client/session/session.h"

/* Each stretch of each version is searched in the list that NICs keep: a million comparisons for so
 * many stretches. With more stretches the memory is registered for each version anew. */
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
        TB_ASSERT(r->memory[t - r->layout.tensors] == NULL);
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

struct tb_gpu *tb_registration_gpu(struct tb_session *s, const struct tb_registration *r)
{
    tb_session_lock(s);
    struct tb_gpu *gpu = r == NULL || r->gpu != NULL ? s->gpu : NULL;
    tb_session_unlock(s);
    return gpu;
}

/* The driver's entry points, read from its library without the lock. Two calls may do so at once:
 * the entry points of the first stay. A device is opened later, with the first memory on it. */
static enum tb_status find_driver(struct tb_session *s, struct tb_gpu **gpu_out, char *why)
{
    *gpu_out = tb_registration_gpu(s, NULL);
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

/* The driver is asked whose memory it is when it is registered, and again when it is resumed. A
 * device that nobody has used yet takes seconds to come up, and a session that renews no lease
 * meanwhile is given up by its gateway. */
int tb_registration_find_gpu(struct tb_session *s, const struct tb_registration *r,
                             struct tb_gpu_memory **gpu_out)
{
    TB_ASSERT_UNLOCKED(s);
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
    TB_ASSERT_UNLOCKED(r->session);
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

/* The byte may be behind its tensor, on the tensor's last page. */
static const char *name_of(const struct tb_registration *r, const uint8_t *at)
{
    const uint8_t *nearest = NULL;
    const char *name = "";
    for (uint32_t i = 0; i < r->want_count; i++) {
        const uint8_t *memory = r->want_memory[i];
        if (r->wants[i].bytes == 0 || memory > at || (nearest != NULL && memory < nearest)) continue;
        nearest = memory;
        name = r->wants[i].name;
    }
    return name;
}

int tb_registration_missing(const struct tb_registration *r)
{
    const uint8_t *at = r != NULL ? tb_guard_missing(r->guard) : NULL;
    if (at == NULL) return TB_OK;
    return tb_fail(TB_SITE_IO, "tensor \"%.200s\" maps a file that was cut short: bytes of it are missing",
                   name_of(r, at));
}

void tb_registration_gone(struct tb_registration *r, bool gone)
{
    TB_ASSERT_LOCKED(r->session);
    pthread_rwlock_wrlock(&r->target.lock);
    r->target.gone = gone;
    r->target.gpu = gone ? NULL : r->gpu;
    r->target.writes++;
    pthread_rwlock_unlock(&r->target.lock);
}

/* A tensor in a buffer of ours stays as long as the buffer does. */
static bool is_callers(const struct tb_session *s, const struct tb_registration *r, uint32_t tensor)
{
    const uint64_t bytes = r->layout.tensors[tensor].bytes;
    return bytes > 0 && tb_buffer_find(s, r->memory[tensor], bytes) == NULL;
}

enum tb_status tb_registration_stretch(struct tb_session *s, struct tb_registration *r)
{
    TB_ASSERT_LOCKED(s);
    if (r->stretches.list != NULL) return TB_OK;
    struct tb_stretch *pieces = tb_calloc((size_t)r->layout.tensor_count + 1, sizeof *pieces);
    if (pieces == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < r->layout.tensor_count; i++)
        if (is_callers(s, r, i)) pieces[i] = (struct tb_stretch){r->memory[i], r->layout.tensors[i].bytes};
    const enum tb_status status = tb_stretches_make(pieces, r->layout.tensor_count, &r->stretches);
    TB_ASSERT(!r->stays);
    tb_free(pieces);
    r->stays = status == TB_OK && r->stretches.count <= STAYS_STRETCHES_MAX;
    for (uint32_t i = 0; r->stays && i < r->stretches.count; i++)
        tb_fabric_memory_stays(s->fabric, r->stretches.list[i].at, r->stretches.list[i].bytes);
    return status;
}

void tb_registration_discard(struct tb_registration *r)
{
    TB_ASSERT(r->ending == 0);
    TB_ASSERT(r->passes == 0 && r->subscriptions == 0);
    tb_guard_end(r->guard);
    tb_gpu_memory_close(r->gpu);
    tb_buffer_memory_free(r->session, &r->spare.memory);
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
    TB_ASSERT(r->next == NULL && r->want_count > 0 && r->want_memory != NULL);
    struct tb_session *s = r->session;
    r->target.gpu = r->gpu;
    tb_session_lock(s);
    r->next = s->registrations;
    s->registrations = r;
    tb_session_unlock(s);
}

void tb_registration_begin_pass(struct tb_registration *r)
{
    TB_ASSERT_LOCKED(r->session);
    r->passes++;
}

void tb_registration_end_pass(struct tb_registration *r)
{
    TB_ASSERT_LOCKED(r->session);
    TB_ASSERT(r->passes > 0);
    r->passes--;
    tb_session_changed(r->session, false);
}

int tb_registration_complete(struct tb_session *s, struct tb_registration *r)
{
    int status = tb_registration_tie(r);
    if (status != TB_OK) return status;
    status = tb_registration_find_gpu(s, r, &r->gpu);
    return status == TB_OK ? tb_registration_guard(r, &r->guard) : status;
}

static int new_registration(struct tb_session *s, const struct tb_tensor_desc *tensors, uint32_t count,
                            struct tb_registration **registration_out)
{
    if (tensors == NULL || count == 0 || count > TB_TENSORS_MAX || registration_out == NULL)
        return tb_fail(TB_BAD_ARGUMENT, "a registration has 1 to %d tensors", TB_TENSORS_MAX);
    struct tb_registration *r = tb_registration_new(s);
    if (r == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for a registration");
    int status = build_registration(r, tensors, count);
    if (status == TB_OK) status = tb_registration_complete(s, r);
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

/* ---- invariants ---- */

static uint32_t count_subscriptions(const struct tb_session *s, const struct tb_registration *r)
{
    uint32_t count = 0;
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next)
        count += (sub->registration == r) + (sub->second == r);
    return count;
}

void tb_registrations_check(const struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_registration *r = s->registrations; r != NULL; r = r->next) {
        TB_ASSERT(r->session == s);
        TB_ASSERT(r->subscriptions == count_subscriptions(s, r));
        if (r->target.gone) TB_ASSERT(r->suspended);
        if (r->stretches.list == NULL) TB_ASSERT(!r->stays);
        if (r->stays) TB_ASSERT(r->stretches.count <= STAYS_STRETCHES_MAX);
    }
}

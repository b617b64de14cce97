/* fabric_exports.c - exports open and close, and their tokens. */
#include "intra/fabric/fabric_exports.h"

#include <errno.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "intra/fabric/door.h"
#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/fabric/lent_memory.h"
#include "intra/verbs_part.h"

enum tb_status tb_export_open(struct tb_fabric *f, const struct tb_export_options *options)
{
    pthread_mutex_lock(&f->lock);
    const enum tb_status status = tb_exports_add(&f->exports, options);
    pthread_mutex_unlock(&f->lock);
    return status;
}

enum tb_status tb_export_grant(struct tb_fabric *f, uint64_t export_id, const struct tb_id *token,
                               const struct tb_fingerprint *reader)
{
    return tb_export_grant_of(f, export_id, token, reader, 0);
}

enum tb_status tb_export_grant_of(struct tb_fabric *f, uint64_t export_id, const struct tb_id *token,
                                  const struct tb_fingerprint *reader, uint64_t owner)
{
    const struct tb_grant grant = {.token = *token, .reader = *reader, .owner = owner};
    pthread_mutex_lock(&f->lock);
    const enum tb_status status = tb_exports_grant(&f->exports, export_id, &grant, tb_clock_now());
    pthread_mutex_unlock(&f->lock);
    return status;
}

uint32_t tb_export_readers(struct tb_fabric *f, uint64_t export_id)
{
    pthread_mutex_lock(&f->lock);
    const struct tb_export *e = tb_exports_find(&f->exports, export_id);
    const uint32_t readers = e != NULL ? e->readers : 0;
    pthread_mutex_unlock(&f->lock);
    return readers;
}

void tb_fabric_usage(struct tb_fabric *f, struct tb_fabric_usage *usage_out)
{
    pthread_mutex_lock(&f->lock);
    tb_exports_lapse(&f->exports, tb_clock_now());
    *usage_out = f->exports.usage;
    pthread_mutex_unlock(&f->lock);
    usage_out->tokens_max = TB_TOKENS_MAX;
    usage_out->readers = atomic_load_explicit(&f->readers, memory_order_relaxed);
    usage_out->readers_most = atomic_load_explicit(&f->readers_most, memory_order_relaxed);
    /* First those that are counted last: no more of them are seen than of all. */
    usage_out->readers_spent = atomic_load_explicit(&f->readers_spent, memory_order_acquire);
    usage_out->readers_refused = atomic_load_explicit(&f->readers_refused, memory_order_relaxed);
    usage_out->readers_denied = atomic_load_explicit(&f->readers_denied, memory_order_relaxed);
    usage_out->readers_max = tb_door_readers_max;
    usage_out->lent_bytes = atomic_load_explicit(&f->lent_bytes, memory_order_relaxed);
    usage_out->lent_most = atomic_load_explicit(&f->lent_most, memory_order_relaxed);
    usage_out->borrowed_bytes = atomic_load_explicit(&f->borrowed_bytes, memory_order_relaxed);
    usage_out->borrowed_most = atomic_load_explicit(&f->borrowed_most, memory_order_relaxed);
    usage_out->lent_max = TB_LENT_ALL_MAX;
}

void tb_fabric_tokens(struct tb_fabric *f, void (*each)(void *user, const struct tb_fingerprint *reader),
                      void *user)
{
    const struct tb_export *e;
    const struct tb_grant *g;
    pthread_mutex_lock(&f->lock);
    LIST_FOREACH(e, &f->exports.all, link)
    LIST_FOREACH(g, &e->grants, link) each(user, &g->reader);
    pthread_mutex_unlock(&f->lock);
}

bool tb_export_garbled_by(struct tb_fabric *f, uint64_t *owner_out)
{
    pthread_mutex_lock(&f->lock);
    TB_ASSERT(f->garbled_count <= TB_FABRIC_GARBLED_MAX);
    const bool any = f->garbled_count > 0;
    if (any) *owner_out = f->garbled[--f->garbled_count];
    pthread_mutex_unlock(&f->lock);
    return any;
}

struct owners {
    const uint64_t *all;
    uint32_t count;
};

static void owners_leave(struct tb_fabric *f, void *arg)
{
    const struct owners *owners = arg;
    tb_door_owners_leave(f->door, owners->all, owners->count);
}

void tb_export_owners_end(struct tb_fabric *f, const uint64_t *owners, uint32_t count)
{
    struct owners leaving = {owners, count};
    TB_ASSERT(!tb_fabric_on_thread(f));
    if (count == 0) return;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < count; i++)
        tb_exports_forget(&f->exports, owners[i]); /* first: none comes in behind those that end */
    pthread_mutex_unlock(&f->lock);
    tb_fabric_call(f, owners_leave, &leaving);
}

static void revoke_readers(struct tb_fabric *f, void *arg)
{
    tb_door_revoke(f->door, arg);
}

static struct timespec after_ms(uint32_t ms)
{
    const tb_time_ns at = tb_clock_now() + TB_MS(ms);
    return (struct timespec){.tv_sec = (time_t)(at / TB_SECONDS(1)), .tv_nsec = (long)(at % TB_SECONDS(1))};
}

void tb_export_close(struct tb_fabric *f, uint64_t export_id, uint32_t drain_ms)
{
    TB_ASSERT(!tb_fabric_on_thread(f));
    const struct timespec until = after_ms(drain_ms);
    pthread_mutex_lock(&f->lock);
    struct tb_export *e = tb_exports_find(&f->exports, export_id);
    if (e == NULL || e->closing) {
        pthread_mutex_unlock(&f->lock);
        return;
    }
    e->closing = true;
    while (e->readers > 0 && pthread_cond_timedwait(&f->changed, &f->lock, &until) != ETIMEDOUT)
        continue;
    const bool cut = e->readers > 0;
    pthread_mutex_unlock(&f->lock);

    if (cut) tb_fabric_call(f, revoke_readers, e);
    pthread_mutex_lock(&f->lock);
    while (e->readers > 0) /* the door ends each within a second */
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    tb_verbs_export_drop(e->verbs); /* takes a while for many pages; nobody comes in, as it is closing */
    pthread_mutex_lock(&f->lock);
    tb_exports_remove(e);
    pthread_mutex_unlock(&f->lock);
}

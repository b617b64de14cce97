/* buffer_switch.c - how a staged version gets into registered buffers: copied into those in use, or
 * into the other ones of two, which are then switched to. */
#include "intra/client/follow/buffer_switch.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"

/* So many pieces at most: enough for threads to end together, and a hundred thousand small tensors
 * cost no more than a large one. */
#define PIECES_MAX 512u

struct copying {
    const struct tb_staged_use *use;
    uint8_t *const *memory;
    const struct tb_tied *tied;
    const struct tb_gpu_memory *gpu;
};

/* Bytes that a copy writes there. Of tensors that share one memory it writes the first alone. */
static uint64_t copied_to(const struct tb_staged_use *use, const struct tb_registration *to)
{
    TB_ASSERT(use->copies_made && use->copies.bytes >= to->tied.bytes);
    return use->copies.bytes - to->tied.bytes;
}

static void copy_box(const struct copying *c, const struct tb_box_copy *copy)
{
    TB_ASSERT(copy->shard < c->use->staging->key.shard_count);
    if (tb_gpu_memory_has(c->gpu, copy->want) || tb_tied_has(c->tied, copy->want)) return;
    const uint8_t *from = c->use->staging->shards[copy->shard].place.bytes + copy->from;
    uint8_t *to = c->memory[copy->want] + copy->to;
    for (uint64_t row = 0; row < copy->rows; row++)
        memcpy(to + row * copy->to_stride, from + row * copy->from_stride, copy->run);
}

static uint32_t copies_a_piece(const struct tb_box_copies *copies)
{
    return copies->count / PIECES_MAX + 1;
}

static void copy_piece(void *user, uint32_t piece, uint32_t slot)
{
    (void)slot;
    const struct copying *c = user;
    const struct tb_box_copies *copies = &c->use->copies;
    const uint32_t each = copies_a_piece(copies), first = piece * each;
    for (uint32_t i = first; i < copies->count && i < first + each; i++)
        copy_box(c, &copies->list[i]);
}

static enum tb_status copy_to_gpu(const struct tb_registration *r, const struct tb_staged_use *use)
{
    if (r->gpu == NULL) return TB_OK;
    struct tb_gpu_rows *moves = tb_calloc((size_t)use->copies.count + 1, sizeof *moves);
    if (moves == NULL) return TB_SITE_NOMEM;
    uint32_t count = 0;
    for (uint32_t i = 0; i < use->copies.count; i++) {
        const struct tb_box_copy *copy = &use->copies.list[i];
        if (!tb_gpu_memory_has(r->gpu, copy->want) || tb_tied_has(&r->tied, copy->want)) continue;
        TB_ASSERT(copy->rows > 0); /* none would be one to tb_gpu_move */
        uint8_t *to = r->want_memory[copy->want] + copy->to;
        const uint8_t *from = use->staging->shards[copy->shard].place.bytes + copy->from;
        moves[count++] = (struct tb_gpu_rows){.row = {to, from, copy->run},
                                              .rows = copy->rows,
                                              .to_stride = copy->to_stride,
                                              .from_stride = copy->from_stride};
    }
    const enum tb_status status = tb_gpu_move(r->gpu, moves, count);
    tb_free(moves);
    return status;
}

/* Without the lock: the calls on a subscription come one at a time, and `passes` keeps the memory
 * where it is. */
static int use_copy(struct tb_subscription *sub, const struct tb_staged_use *use, struct tb_registration *to)
{
    TB_ASSERT_LOCKED(sub->session);
    TB_ASSERT(use->copies_made && !to->suspended);
    struct tb_session *s = sub->session;
    tb_registration_begin_pass(to);
    tb_session_unlock(s);
    struct copying c = {.use = use, .memory = to->want_memory, .tied = &to->tied, .gpu = to->gpu};
    pthread_rwlock_wrlock(&to->target.lock);
    const uint64_t wrote = ++to->target.writes;
    const enum tb_status status = copy_to_gpu(to, use);
    const uint32_t each = copies_a_piece(&use->copies);
    if (status == TB_OK) tb_crew_run(s->crew, (use->copies.count + each - 1) / each, copy_piece, &c);
    pthread_rwlock_unlock(&to->target.lock);
    tb_session_lock(s);
    tb_registration_end_pass(to);
    sub->wrote = wrote;
    if (status == TB_OK) return TB_OK;
    return tb_fail(
        status,
        "version %llu did not get into the GPU's memory (gpu.failed in the log says why): the buffers are "
        "of no one version until tb_activate returns TB_OK",
        (unsigned long long)use->staging->key.number);
}

/* Into the buffers in use: until all of it is there they hold no version (P2). */
static int copy_in_use(struct tb_subscription *sub, const struct tb_staged_use *use,
                       struct tb_registration *to)
{
    sub->torn = use->staging->uid;
    return use_copy(sub, use, to);
}

/* ---- a switch between two ---- */

static struct tb_registration *idle_buffers(const struct tb_subscription *sub)
{
    TB_ASSERT(sub->second != NULL);
    return sub->buffer == 0 ? sub->second : sub->registration;
}

/* The buffers hold what this subscription wrote: no later write, no suspension. Under the lock, so
 * it does not wait for a writer, which may take seconds and leaves other bytes. */
static bool as_written(struct tb_registration *r, uint64_t wrote)
{
    if (pthread_rwlock_tryrdlock(&r->target.lock) != 0) return false;
    const bool same = r->target.writes == wrote;
    pthread_rwlock_unlock(&r->target.lock);
    return same;
}

static bool is_filled(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    return tb_id_equal(&sub->filled, &use->staging->uid) && as_written(idle_buffers(sub), sub->filled_wrote);
}

static int fill(struct tb_subscription *sub, const struct tb_staged_use *use)
{
    sub->filled = (struct tb_id){{0}};
    const int status = use_copy(sub, use, idle_buffers(sub));
    if (status != TB_OK) return status;
    sub->filled = use->staging->uid;
    sub->filled_wrote = sub->wrote;
    return TB_OK;
}

int tb_use_fill(struct tb_subscription *sub, const struct tb_staged_use *use)
{
    TB_ASSERT_LOCKED(sub->session);
    if (is_filled(sub, use) || tb_id_equal(&sub->active, &use->staging->uid)) return TB_OK;
    if (idle_buffers(sub)->suspended) return TB_OK; /* the switch does it, or refuses */
    return fill(sub, use);
}

/* The active version is in the buffers in use; after they were suspended it is not, and comes
 * again, to where it was. */
static int stay(struct tb_subscription *sub, const struct tb_staged_use *use, struct tb_activate_info *info)
{
    struct tb_registration *in_use = sub->buffer == 0 ? sub->registration : sub->second;
    if (as_written(in_use, sub->active_wrote)) return TB_OK;
    const int status = copy_in_use(sub, use, in_use);
    if (status != TB_OK) return status;
    sub->active_wrote = sub->wrote;
    info->copied_bytes = copied_to(use, in_use);
    return TB_OK;
}

int tb_use_flip(struct tb_subscription *sub, const struct tb_staged_use *use, struct tb_activate_info *info)
{
    TB_ASSERT_LOCKED(sub->session);
    if (tb_id_equal(&sub->active, &use->staging->uid)) return stay(sub, use, info);
    if (!is_filled(sub, use)) {
        info->copied_bytes = copied_to(use, idle_buffers(sub));
        const int filled = fill(sub, use);
        if (filled != TB_OK) return filled;
    }
    sub->buffer = !sub->buffer;
    sub->active_wrote = sub->filled_wrote;
    sub->filled = (struct tb_id){{0}};
    return TB_OK;
}

int tb_use_overwrite(struct tb_subscription *sub, const struct tb_staged_use *use,
                     struct tb_activate_info *info)
{
    TB_ASSERT_LOCKED(sub->session);
    const int status = copy_in_use(sub, use, sub->registration);
    if (status != TB_OK) return status;
    info->copied_bytes = copied_to(use, sub->registration);
    return TB_OK;
}

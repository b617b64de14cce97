/* staged_gpu.c - a version staged in the memory of the GPU that its tensors stand on: what lands
 * there is digested there, and the switch copies inside the device. Blobs, bitmaps and everything
 * that decides stay in host memory.
 *
 * Promise P1: a chunk is held by what the device says of its own memory. Such a staging is for its
 * one subscription: nobody reads from it, and nothing is decoded from it. It goes when the
 * registration is suspended, as an engine that sleeps wants its GPU's memory back, all of it. */
#include "intra/client/follow/staged_gpu.h"

#include <stdio.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "intra/client/follow/patch.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_notices.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"
#include "intra/cuda_part_stage.h"

#define FAR_ALIGN 4096u /* of shards in it; the digest's kernel wants 16 */

void tb_staging_not_on_gpu(const struct tb_staging *st, const char *why)
{
    tb_log(TB_LOG_WARN, "staging.not_on_gpu", "number=%llu reason=\"%s\" action=staged_in_host_memory",
           (unsigned long long)st->key.number, why);
}

/* ---- memory ---- */

/* A tensor in host memory would have to be copied down by cores, and cores cannot read the
 * device. */
static bool all_on_device(const struct tb_registration *r)
{
    for (uint32_t i = 0; i < r->want_count; i++)
        if (r->wants[i].bytes > 0 && !tb_gpu_memory_has(r->gpu, i)) return false;
    return true;
}

/* The device's memory of the registration, which stays as it is until its pass ends. NULL:
 * `why`. */
static struct tb_gpu_memory *begin_use(struct tb_session *s, struct tb_registration *r, char *why)
{
    struct tb_gpu_memory *gpu = NULL;
    tb_session_lock(s);
    if (r->suspended)
        snprintf(why, TB_GPU_WHY_BYTES, "the registration is suspended");
    else if (r->gpu == NULL)
        snprintf(why, TB_GPU_WHY_BYTES, "its tensors stand in host memory");
    else if (!all_on_device(r))
        snprintf(why, TB_GPU_WHY_BYTES, "some of its tensors stand in host memory");
    else
        gpu = r->gpu;
    if (gpu != NULL) tb_registration_begin_pass(r);
    tb_session_unlock(s);
    return gpu;
}

static struct tb_gpu_stage_size lay_out(struct tb_staging *st)
{
    struct tb_gpu_stage_size size = {.bytes = 0};
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        const struct tb_manifest *m = &st->shards[i].manifest;
        st->shards[i].far_offset = size.bytes;
        size.bytes += (m->layout.bytes + FAR_ALIGN - 1) / FAR_ALIGN * FAR_ALIGN;
        for (uint32_t k = 0; k < m->chunk_count; k++)
            if (m->chunks[k].bytes > size.chunk_bytes) size.chunk_bytes = m->chunks[k].bytes;
    }
    return size;
}

void tb_staging_find_gpu(struct tb_staging *st)
{
    TB_ASSERT_UNLOCKED(st->session);
    struct tb_session *s = st->session;
    struct tb_registration *r = st->gpu_for;
    struct tb_gpu_stage *stage = NULL;
    char why[TB_GPU_WHY_BYTES] = "";
    if (r == NULL) return;
    const struct tb_gpu_stage_size size = lay_out(st);
    struct tb_gpu_memory *gpu = begin_use(s, r, why);
    const bool opened = gpu != NULL && tb_gpu_stage_open(gpu, &size, &stage, why) == TB_OK;
    tb_session_lock(s); /* others look at it */
    if (gpu != NULL) tb_registration_end_pass(r);
    st->stage = opened ? stage : NULL;
    st->stage_bytes = opened ? size.bytes : 0;
    if (!opened) st->gpu_for = NULL;
    tb_session_unlock(s);
    if (!opened) tb_staging_not_on_gpu(st, why);
}

/* ---- places ---- */

struct far_look {
    struct tb_gpu_landing landing;
    struct tb_place_look *look;
};

static void on_landed(struct tb_gpu_ask *asked, enum tb_status status)
{
    struct far_look *f = (struct far_look *)asked; /* its first member's first */
    struct tb_place_look *look = f->look;
    const struct tb_digest digest = f->landing.digest;
    look->proof = f->landing.proof; /* zero where nobody asked for it */
    tb_free(f);
    tb_place_looked(look, status, &digest);
}

/* By place.h: the device digests what stands in its memory, after it has copied the chunk there. */
static void look(void *user, struct tb_place_look *look)
{
    struct far_look *f = tb_calloc(1, sizeof *f);
    TB_ASSERT(look->came.encoded == NULL && tb_place_is_far(look->place, look->chunk));
    if (f == NULL) {
        tb_place_looked(look, TB_SITE_NOMEM, NULL);
        return;
    }
    f->look = look;
    f->landing.asked.answer = on_landed;
    f->landing.from = look->came.beside;
    f->landing.foreign = look->came.foreign;
    f->landing.at = tb_place_chunk(look->place, look->chunk, &f->landing.bytes);
    tb_gpu_stage_take(user, &f->landing);
}

static uint8_t *lend(void *user, uint32_t bytes)
{
    return tb_gpu_stage_lend(user, bytes);
}

static void give(void *user, uint8_t *lent)
{
    tb_gpu_stage_give(user, lent);
}

void tb_staging_put_far(struct tb_staging *st, struct tb_staged_shard *sh)
{
    TB_ASSERT(st->stage != NULL && sh->place.far == NULL);
    struct tb_export_device device = {.dmabuf = -1};
    uint8_t *at = tb_gpu_stage_base(st->stage) + sh->far_offset;
    const uint64_t bytes = sh->manifest.layout.bytes;
    if (bytes > 0 && !tb_gpu_stage_device(st->stage, at, bytes, &device)) device.dmabuf = -1;
    sh->far = (struct tb_place_far){.bytes = bytes,
                                    .rest = sh->place.bytes,
                                    .dmabuf = device.dmabuf,
                                    .dmabuf_offset = device.offset,
                                    .pci = device.pci};
    sh->place.bytes = at;
    sh->place.far = &sh->far;
    sh->owner.look = look;
    sh->owner.lend = lend;
    sh->owner.give = give;
    sh->owner.user = st->stage;
    sh->place.owner = &sh->owner;
}

struct tb_staged_gpu_facts tb_staged_gpu_facts(const struct tb_staging *st)
{
    TB_ASSERT_LOCKED(st->session);
    if (st->stage != NULL) {
        struct tb_gpu_stage_facts of;
        tb_gpu_stage_facts(st->stage, &of);
        return (struct tb_staged_gpu_facts){.ring_bytes = of.ring_bytes, .queue = of.queue};
    }
    struct tb_gpu_proofs_facts of = {.device_bytes = 0};
    if (st->patch != NULL) tb_patch_proofs_facts(st->patch, &of);
    return (struct tb_staged_gpu_facts){
        .kept_bytes = of.device_bytes, .pinned_bytes = of.pinned_bytes, .queue = of.queue};
}

/* ---- suspended ---- */

static struct tb_staging *next_of(struct tb_session *s, const struct tb_registration *r)
{
    for (struct tb_staging *st = s->stagings; st != NULL; st = st->next)
        if (st->gpu_for == r && (tb_staging_is_preparing(st->life) || st->stage != NULL)) return st;
    return NULL;
}

/* P2: the gateway hears that it is not here, before anybody could say go to it. */
static void leave(struct tb_session *s, struct tb_registration *r, struct tb_staging *st)
{
    TB_ASSERT(st->gpu_for == r && !tb_staging_is_preparing(st->life) && st->stage != NULL);
    struct tb_gpu_stage *stage = st->stage;
    tb_staging_give_back(s, st);
    tb_staging_fail(st, TB_BAD_STATE,
                    "it stood in the GPU's memory, and went with tb_suspend: stage it again");
    tb_staging_step(&st->life, TB_STAGING_LEAVES);
    st->gpu_for = NULL;
    st->stage = NULL;
    st->stage_bytes = 0;
    tb_registration_begin_pass(r);
    tb_session_unlock(s);
    tb_gpu_stage_close(stage);
    tb_session_lock(s);
    tb_registration_end_pass(r);
}

static struct tb_staging *next_patch_of(struct tb_session *s, const struct tb_registration *r)
{
    for (struct tb_staging *st = s->stagings; st != NULL; st = st->next)
        if (st->patch_for == r && st->patch != NULL && !tb_patch_has_left(st->patch)) return st;
    return NULL;
}

/* Under the lock, let go meanwhile: the device is waited for. A chunk that waits there keeps its
 * hop, and the hop its staging. */
static void patches_leave(struct tb_session *s, struct tb_registration *r)
{
    struct tb_staging *st;
    while ((st = next_patch_of(s, r)) != NULL) {
        struct tb_gpu_proofs *proofs = tb_patch_take_proofs(st->patch);
        tb_registration_begin_pass(r);
        tb_session_unlock(s);
        tb_gpu_proofs_close(proofs);
        tb_session_lock(s);
        tb_registration_end_pass(r);
    }
}

void tb_stagings_leave_gpu(struct tb_session *s, struct tb_registration *r)
{
    TB_ASSERT(r->suspended); /* no new staging is for it */
    TB_ASSERT_LOCKED(s);
    struct tb_staging *st;
    r->ending++; /* nobody resumes it meanwhile */
    patches_leave(s, r);
    while ((st = next_of(s, r)) != NULL || r->passes > 0) {
        if (st == NULL || tb_staging_is_preparing(st->life))
            tb_session_wait_unbounded(s);
        else
            leave(s, r, st);
    }
    r->ending--;
}

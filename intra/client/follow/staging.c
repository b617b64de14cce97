/* staging.c - how a staging is described by its manifests, and how it goes with its last use. */
#include "intra/client/follow/staging.h"

#include <string.h>
#include <sys/mman.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/follow/staged_slices.h"
#include "intra/client/follow/staging_fill.h"
#include "intra/client/follow/staging_places.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/memory/spare_memory.h"
#include "intra/client/session/session.h"
#include "intra/cuda_part_stage.h"
#include "intra/fabric/fabric_exports.h"

#define MORE_BYTES_MAX ((uint64_t)32 << 20)

static void free_staging(struct tb_staging *st)
{
    TB_ASSERT(st->hop == NULL && st->uses == 0 && !tb_staging_is_preparing(st->life));
    tb_patch_free(st->patch); /* it looks at the manifests */
    for (uint32_t i = 0; st->shards != NULL && i < st->key.shard_count; i++)
        tb_layouts_release(st->session->layouts, &st->shards[i].manifest_memory);
    tb_free(st->shards);
    tb_free(st->claimed);
    tb_free(st->wanted);
    tb_free(st->source);
    tb_free(st->base_places);
    tb_home_word_drop(&st->word);
    tb_free(st->kept_plan);
    tb_staging_unpin(st);
    tb_gpu_stage_close(st->stage);
    if (st->memory.bytes != NULL && st->memory.memfd < 0)
        munmap(st->memory.bytes, st->memory.count);
    else
        tb_buffer_memory_free(st->session, &st->memory);
    pthread_mutex_destroy(&st->note_lock);
    tb_free(st);
}

/* ---- spare memory ---- */

static bool subscribed(const struct tb_session *s, const struct tb_name *model)
{
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next)
        if (tb_name_equal(&sub->model, model)) return true;
    return false;
}

/* ---- prepared memory ---- */

/* Of the version no more is known than the tensors that are wanted of it. Beside them it has blobs,
 * the ends of shards, and bitmaps. */
static uint64_t more_bytes(uint64_t bytes)
{
    return bytes / 64 + (bytes / 8 < MORE_BYTES_MAX ? bytes / 8 : MORE_BYTES_MAX);
}

static bool has_memory_for(const struct tb_session *s, const struct tb_reserve_wish *wish)
{
    if (tb_reserve_count(s, wish) > 0) return true;
    if (s->spare.memory.bytes != NULL && tb_name_equal(&s->spare.model, wish->model)) return true;
    for (const struct tb_staging *st = s->stagings; st != NULL; st = st->next)
        if (tb_name_equal(&st->key.model, wish->model)) return true;
    return false;
}

void tb_staging_prepare_ahead(struct tb_session *s, const struct tb_subscription *sub)
{
    TB_ASSERT_LOCKED(s);
    const struct tb_registration *r = sub->registration;
    if (s->no_prepare || r == NULL || r->slices != NULL || sub->stage_on_gpu) return;
    uint64_t chunks = r->want_bytes / TB_CHUNK_BYTES_MIN + 1;
    if (chunks > TB_SHELF_COUNT_MAX) chunks = TB_SHELF_COUNT_MAX;
    const uint64_t bytes = r->want_bytes + more_bytes(r->want_bytes);
    const struct tb_reserve_wish wish = {.kind = TB_RESERVE_STAGING,
                                         .model = &sub->model,
                                         .bytes =
                                             bytes + tb_shelf_bytes((uint32_t)chunks, TB_SHELF_ROOM(bytes)),
                                         .pin = true};
    if (!has_memory_for(s, &wish)) tb_reserve_ask(s, &wish);
}

void tb_staging_drop_spare(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    if (!subscribed(s, &s->spare.model)) tb_spare_drop(s, &s->spare);
    const struct tb_reserve *r = s->reserves;
    while (r != NULL) {
        const struct tb_name model = r->model;
        const bool unwanted = r->kind == TB_RESERVE_STAGING && !tb_reserve_is_leaving(r->life);
        r = r->next;
        if (!unwanted || subscribed(s, &model)) continue;
        tb_reserve_drop(s, TB_RESERVE_STAGING, &model);
        r = s->reserves;
    }
}

/* The caller frees the memory that was kept before. */
static struct tb_shared_memory keep_spare(struct tb_session *s, struct tb_staging *st)
{
    TB_ASSERT_LOCKED(s);
    if (st->memory.bytes == NULL || st->memory.memfd < 0 || !subscribed(s, &st->key.model))
        return (struct tb_shared_memory){.memfd = -1};
    return tb_spare_keep(&s->spare, &st->key.model, &st->memory);
}

void tb_staging_drop(struct tb_session *s, struct tb_staging *st, uint32_t drain_ms)
{
    TB_ASSERT_LOCKED(s);
    TB_ASSERT(st->uses == 0);
    for (struct tb_staging **at = &s->stagings; *at != NULL; at = &(*at)->next) {
        if (*at == st) {
            *at = st->next;
            break;
        }
    }
    struct tb_registration *r = st->gpu_for;
    if (r != NULL)
        tb_registration_begin_pass(
            r); /* its suspension waits for what goes now, and is not in the list any more */
    /* A task of the pool may be making its places: it says PREPARED or FAILED soon. */
    while (tb_staging_is_preparing(st->life))
        tb_session_wait_unbounded(s);
    tb_staging_close_hop(st);
    tb_staging_base_goes(s, st);
    if (st->export_id != 0) {
        tb_session_unlock(s);
        tb_export_close(s->fabric, st->export_id, drain_ms);
        tb_session_lock(s);
    }
    /* Behind the export's end no reader of ours is left in it, and nobody finds the staging any
     * more. */
    TB_ASSERT(st->hop == NULL); /* nothing lands there any more */
    struct tb_shared_memory before = keep_spare(s, st);
    tb_session_unlock(s);
    tb_buffer_memory_free(s, &before);
    free_staging(st);
    tb_session_lock(s);
    if (r == NULL) return;
    tb_registration_end_pass(r);
}

/* ---- manifests ---- */

static enum tb_status decode_manifest(struct tb_layouts *layouts, struct tb_staged_shard *sh,
                                      const struct tb_msg_manifest *m)
{
    const enum tb_status status =
        tb_layouts_decode(layouts, m->head.bytes, m->head.count, &sh->manifest_memory, &sh->manifest);
    if (status != TB_OK) return status;
    if (m->digests.count != (uint64_t)sh->manifest.chunk_count * TB_DIGEST_BYTES) {
        tb_layouts_release(layouts, &sh->manifest_memory);
        return TB_PEER_GARBLED;
    }
    if (m->digests.count > 0) memcpy(sh->manifest.digests, m->digests.bytes, m->digests.count);
    return TB_OK;
}

enum tb_status tb_staging_manifest(struct tb_session *s, const struct tb_msg_manifest *m)
{
    TB_ASSERT_LOCKED(s);
    struct tb_staging *st = tb_staging_find(s, &m->uid);
    if (st == NULL || tb_staging_has_failed(st->life)) return TB_OK; /* released meanwhile */
    if (st->shards == NULL) return TB_OK; /* behind the answer to a STAGE that was given up */
    if (m->shard >= st->key.shard_count) return TB_PEER_GARBLED;
    struct tb_staged_shard *sh = &st->shards[m->shard];
    if (sh->manifest_memory.tables != NULL) return TB_OK; /* told again (P4) */
    const enum tb_status status = decode_manifest(s->layouts, sh, m);
    if (status == TB_PEER_GARBLED) return status;
    if (status != TB_OK) {
        tb_staging_fail(st, status, "no memory for a manifest");
        return TB_OK;
    }
    TB_ASSERT(st->life == TB_STAGING_MANIFESTS && st->manifests_here < st->key.shard_count);
    if (++st->manifests_here < st->key.shard_count) return TB_OK;
    tb_home_word_judge_all(st); /* a version without a chunk has no proofs to wait for */
    tb_staging_step(&st->life, TB_STAGING_SUBMITTED);
    if (tb_crew_submit(s->crew, tb_staging_prepare, st) == TB_OK) return TB_OK;
    tb_staging_step(&st->life, TB_STAGING_UNPLACED);
    tb_staging_fail(st, TB_SITE_NOMEM, "no memory to prepare the version");
    return TB_OK;
}

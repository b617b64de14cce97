/* chunk_recheck.c - the gateway says that a reader got a damaged chunk from here: this process
 * digests its own copy.
 *
 * P1: only the own digest counts. A staged chunk that fails it is not held any more, and is fetched
 * again from the staging's source. Where the rollout computes from the staging itself nothing may
 * land, so the chunk stays as it is and is served no more. A packed copy of GPU memory is made
 * again from that memory. Other sealed memory has no second source: the gateway is told. P7:
 * base/damage_reports.h bounds the digests.
 *
 * Everything here runs on the session thread and under the lock: a chunk takes a few ms. */
#include "intra/client/publish/chunk_recheck.h"

#include <inttypes.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/layout/chunk_digest.h"
#include "base/log.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_fill.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

static void answer(struct tb_session *s, const struct tb_msg_doubt *m, enum tb_msg_found found)
{
    struct tb_request *notice = tb_request_new(s, TB_MSG_DOUBTED, 0, 0);
    if (notice == NULL) return; /* the chunk's readers report it again */
    const struct tb_msg_doubted answered = {
        .uid = m->uid, .shard = m->shard, .chunk = m->chunk, .found = (uint8_t)found};
    tb_msg_doubted_encode(&answered, &notice->payload);
    tb_request_post(s, notice);
}

static bool may_look(struct tb_session *s, const struct tb_msg_doubt *m)
{
    const struct tb_doubt doubt = {.uid = m->uid, .shard = m->shard, .chunk = m->chunk, .at = tb_clock_now()};
    return tb_doubts_take(&s->doubts, &doubt);
}

/* P10: once a damaged chunk, where its holder knows what became of it. */
static void tell_damaged(const char *place, uint64_t number, const struct tb_msg_doubt *m, const char *action)
{
    tb_log(TB_LOG_ERROR, "chunk.damaged",
           "place=%s number=%" PRIu64 " shard=%" PRIu32 " chunk=%" PRIu32 " action=%s", place, number,
           m->shard, m->chunk, action);
}

/* ---- what is staged ---- */

static bool is_good(const struct tb_place *place, uint32_t k)
{
    uint32_t bytes = 0;
    const uint8_t *chunk = tb_place_chunk(place, k, &bytes);
    return tb_chunk_matches(place->manifest, k, chunk);
}

/* Others read it: it stands in shared memory, and all of its bytes stay. */
static bool is_served(const struct tb_staging *st)
{
    return tb_staging_is_open(st->life) && st->export_id != 0 && !st->unserved;
}

/* The rollout has no buffers of its own, and computes from what is staged. */
static bool is_computed_from(const struct tb_session *s, const struct tb_staging *st)
{
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next)
        if (sub->registration == NULL && tb_id_equal(&sub->active, &st->uid)) return true;
    return false;
}

/* A call copies from it to the buffers now, and holds no lock. */
static bool is_copied_from(const struct tb_session *s, const struct tb_staging *st)
{
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        const bool busy = (sub->registration != NULL && sub->registration->passes > 0) ||
                          (sub->second != NULL && sub->second->passes > 0);
        for (const struct tb_staged_use *use = sub->uses; busy && use != NULL; use = use->next)
            if (use->staging == st) return true;
    }
    return false;
}

static void recheck_staged(struct tb_session *s, struct tb_staging *st, const struct tb_msg_doubt *m)
{
    TB_ASSERT(m->shard < st->key.shard_count && tb_staging_is_open(st->life));
    struct tb_place *place = &st->shards[m->shard].place;
    if (is_copied_from(s, st) || !may_look(s, m)) return;
    if (is_good(place, m->chunk)) {
        answer(s, m, TB_MSG_FOUND_GOOD);
        return;
    }
    tb_bitmap_clear(place->held, m->chunk); /* its readers see it, and ask no more for it */
    if (is_computed_from(s, st)) {
        tell_damaged("staging_in_use", st->key.number, m, "not_served");
        tb_staging_unserve(s, st);
        answer(s, m, TB_MSG_FOUND_GONE);
        return;
    }
    tell_damaged("staging", st->key.number, m, "fetch_again");
    answer(s, m, TB_MSG_FOUND_AGAIN);
    tb_staging_read_again(s, st);
}

/* Checks the bytes of an encoded chunk, not the chunk that they decode to: the base may have
 * left. */
static void recheck_encoded(struct tb_session *s, struct tb_staging *st, const struct tb_msg_doubt *m)
{
    TB_ASSERT(m->shard < st->key.shard_count);
    uint32_t line = m->chunk;
    for (uint32_t i = 0; i < m->shard; i++)
        line += st->shards[i].manifest.chunk_count;
    if (st->shelf_offset == 0 || !may_look(s, m)) return;
    const bool good = tb_shelf_recheck(&st->shelf, line);
    if (!good) tell_damaged("shelf", st->key.number, m, "not_served");
    answer(s, m, good ? TB_MSG_FOUND_GOOD : TB_MSG_FOUND_GONE);
}

/* ---- what is sealed ---- */

static struct tb_spread spread_of(const struct tb_publication *p)
{
    const struct tb_registration *r = p->registration;
    const uint64_t blobs_at = p->copied ? p->manifest.layout.bytes : 0;
    return (struct tb_spread){.layout = &p->manifest.layout,
                              .tensors = r != NULL ? r->memory : NULL,
                              .rows = r != NULL ? r->rows : NULL,
                              .blobs = p->blobs.bytes != NULL ? (uint8_t *)p->blobs.bytes + blobs_at : NULL};
}

/* Digests the memory that readers read: the packed copy, or the tensors where they stand. */
static bool sealed_is_good(const struct tb_publication *p, uint32_t k)
{
    const struct tb_chunk *chunk = &p->manifest.chunks[k];
    const uint8_t *packed = p->shadow != NULL ? p->shadow->memory.bytes : p->copied ? p->blobs.bytes : NULL;
    const struct tb_spread spread = spread_of(p);
    if (packed != NULL) return tb_chunk_matches(&p->manifest, k, packed + chunk->offset);
    const struct tb_digest digest = tb_spread_digest(&spread, chunk);
    return tb_chunk_has_digest(&p->manifest, k, &digest);
}

static enum tb_status gather_from_device(const struct tb_publication *p, const struct tb_chunk *chunk,
                                         uint8_t *to)
{
    const struct tb_spread spread = spread_of(p);
    uint32_t tensor = tb_layout_tensor_at(&p->manifest.layout, chunk->offset);
    const uint64_t end = chunk->offset + chunk->bytes;
    enum tb_status status = TB_OK;
    for (uint64_t at = chunk->offset; at < end && status == TB_OK;) {
        const struct tb_stretch_rows from = tb_spread_rows_at(&spread, at, end - at, &tensor);
        const struct tb_gpu_rows move = {.row = {to + (at - chunk->offset), from.at, from.bytes},
                                         .rows = from.rows,
                                         .to_stride = from.bytes,
                                         .from_stride = from.stride};
        status = tb_gpu_move(p->registration->gpu, &move, 1);
        at += from.bytes * from.rows;
    }
    return status;
}

/* The copy of a GPU's memory, made again: only if that memory still has what was sealed. */
static bool mend(struct tb_publication *p, uint32_t k)
{
    const struct tb_chunk *chunk = &p->manifest.chunks[k];
    uint8_t *again = p->copied ? tb_malloc(chunk->bytes) : NULL;
    if (again == NULL) return false;
    const bool good =
        gather_from_device(p, chunk, again) == TB_OK && tb_chunk_matches(&p->manifest, k, again);
    if (good) memcpy((uint8_t *)p->blobs.bytes + chunk->offset, again, chunk->bytes);
    tb_free(again);
    return good;
}

static void recheck_sealed(struct tb_session *s, struct tb_publication *p, const struct tb_msg_doubt *m)
{
    TB_ASSERT(m->chunk < p->manifest.chunk_count);
    if (!may_look(s, m)) return;
    if (sealed_is_good(p, m->chunk)) {
        answer(s, m, TB_MSG_FOUND_GOOD);
        return;
    }
    const bool mended = mend(p, m->chunk);
    p->spoiled = p->spoiled || !mended;
    tell_damaged(p->copied ? "gpu_copy" : "sealed", p->number, m, mended ? "copied_again" : "told");
    answer(s, m, mended ? TB_MSG_FOUND_MENDED : TB_MSG_FOUND_SPOILED);
}

/* A pass over a GPU's memory has the device for seconds. The chunk's readers report it again. */
static bool device_is_busy(const struct tb_publication *p)
{
    return p->copied && p->registration->passes > 0;
}

/* A call that works on it may take its memory away. */
static bool is_sealed_here(const struct tb_publication *p, uint32_t chunk)
{
    return p->life == TB_PUBLICATION_STANDING && p->export_id != 0 && !device_is_busy(p) &&
           chunk < p->manifest.chunk_count;
}

void tb_recheck(struct tb_session *s, const struct tb_msg_doubt *m)
{
    TB_ASSERT_LOCKED(s);
    struct tb_publication *p = tb_publication_find(s, &m->uid, m->shard);
    struct tb_staging *st = tb_staging_find(s, &m->uid);
    if (p != NULL && !m->encoded && is_sealed_here(p, m->chunk)) recheck_sealed(s, p, m);
    if (st == NULL || !is_served(st) || m->shard >= st->key.shard_count) return;
    const struct tb_place *place = &st->shards[m->shard].place;
    if (m->chunk >= place->manifest->chunk_count) return;
    if (m->encoded)
        recheck_encoded(s, st, m);
    else if (tb_place_held(place, m->chunk))
        recheck_staged(s, st, m);
}

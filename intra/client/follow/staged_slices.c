/* staged_slices.c - a version of which a registration of slices wants some: which chunks that are,
 * and their pages pinned for a GPU. */
#include "intra/client/follow/staged_slices.h"

#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_match.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"

static void want_chunks(struct tb_staging *st, struct tb_staged_shard *sh, uint64_t *wanted)
{
    TB_ASSERT(sh->owner.wanted == NULL);
    const struct tb_manifest *m = &sh->manifest;
    for (uint32_t k = 0; k < m->chunk_count; k++) {
        if (m->chunks[k].offset >= m->layout.bytes) (void)tb_bitmap_set(wanted, k); /* blobs */
        if (tb_bitmap_test(wanted, k)) {
            st->wanted_bytes += m->chunks[k].bytes;
            st->total_chunks++;
        } else {
            (void)tb_bitmap_set(sh->place.claimed, k);
        }
    }
    TB_ASSERT(sh->place.owner == NULL || sh->place.owner == &sh->owner);
    sh->owner.wanted = wanted;
    sh->place.owner = &sh->owner;
}

/* ---- for a GPU ---- */

/* By whole pages; those of chunks beside each other are one piece, since no page is pinned twice.
 * So a row of what is wanted, whose chunks stand beside each other, is in one piece. */
static void add_pages(struct tb_staging *st, uint64_t from, uint64_t end)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint8_t *base = st->memory.bytes;
    from = from / page * page;
    end = (end + page - 1) / page * page;
    if (end > st->memory.count) end = st->memory.count;
    struct tb_shared_memory *last = st->pinned_count > 0 ? &st->pinned[st->pinned_count - 1] : NULL;
    if (last != NULL && base + from <= (uint8_t *)last->bytes + last->count)
        last->count = (uint64_t)(base + end - (uint8_t *)last->bytes);
    else
        st->pinned[st->pinned_count++] =
            (struct tb_shared_memory){.bytes = base + from, .count = end - from, .memfd = -1};
}

/* All of them or none: what is refused once (ulimit -l) is refused for the others, too, and told
 * once. Without it copies are slower, and no more than that. The pages between are none: all of the
 * mapping cannot be pinned. */
static void pin_wanted(struct tb_staging *st)
{
    struct tb_gpu *gpu = tb_registration_gpu(st->session, st->slices_for);
    if (gpu == NULL) return;
    st->pinned = tb_calloc((size_t)st->total_chunks + 1, sizeof *st->pinned);
    if (st->pinned == NULL) return;
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        const struct tb_staged_shard *sh = &st->shards[i];
        for (uint32_t k = 0; k < sh->manifest.chunk_count; k++) {
            const struct tb_chunk *c = &sh->manifest.chunks[k];
            if (!tb_bitmap_test(sh->owner.wanted, k)) continue;
            add_pages(st, sh->bytes_offset + c->offset, sh->bytes_offset + c->offset + c->bytes);
        }
    }
    for (uint32_t i = 0; i < st->pinned_count; i++) {
        tb_gpu_pin(gpu, &st->pinned[i]);
        if (st->pinned[i].pin != NULL) continue;
        tb_staging_unpin(st);
        return;
    }
}

void tb_staging_unpin(struct tb_staging *st)
{
    for (uint32_t i = 0; i < st->pinned_count; i++)
        tb_shared_memory_unpin(&st->pinned[i]);
    tb_free(st->pinned);
    st->pinned = NULL;
    st->pinned_count = 0;
}

/* Where the version does not fit the slices, blobs alone are wanted, and tb_use_match says what
 * does not fit. */
enum tb_status tb_staging_want_slices(struct tb_staging *st, uint64_t words)
{
    TB_ASSERT_UNLOCKED(st->session);
    struct tb_box_copies copies = {0};
    TB_ASSERT(st->slices_for != NULL && st->wanted == NULL);
    st->wanted = tb_calloc(words + 1, sizeof *st->wanted);
    if (st->wanted == NULL) return TB_SITE_NOMEM;
    const int matched = tb_staging_match(st, st->slices_for, &copies);
    if (matched != TB_OK && matched != TB_LAYOUT_MISMATCH) return (enum tb_status)matched;
    st->total_chunks = 0;
    uint64_t *wanted = st->wanted;
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        struct tb_staged_shard *sh = &st->shards[i];
        tb_boxes_chunks(&copies, i, sh->manifest.chunks, sh->manifest.chunk_count, wanted);
        want_chunks(st, sh, wanted);
        wanted += TB_BITMAP_WORDS(sh->manifest.chunk_count);
    }
    tb_free(copies.list);
    pin_wanted(st);
    return TB_OK;
}

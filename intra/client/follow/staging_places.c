/* staging_places.c - how places for a described version are made: by a task of the pool and without
 * the lock, while its life
 * (PREPARING, FAILING) keeps the staging.
 *
 * Promise P1: before a place stands, its digests hash to its shard's root and the roots to the
 * version's. Promise P7: counts and sizes come from the gateway and are checked against each other
 * before memory is asked for; pages are reserved, so a full machine is a status. */
#include "intra/client/follow/staging_places.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/version_key.h"
#include "base/system_calls.h"
#include "intra/client/follow/staged_gpu.h"
#include "intra/client/follow/staged_slices.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_match.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/memory/spare_memory.h"
#include "intra/client/memory/tied_tensors_bytes.h"
#include "intra/client/session/session.h"
#include "intra/fabric/source_descriptor.h"

#define PAGE_BYTES 4096u

static enum tb_status check_roots(const struct tb_staging *st)
{
    struct tb_digest *roots = tb_calloc(st->key.shard_count, sizeof *roots);
    if (roots == NULL) return TB_SITE_NOMEM;
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < st->key.shard_count && status == TB_OK; i++) {
        roots[i] = tb_manifest_root(&st->shards[i].manifest);
        if (!tb_digest_equal(&roots[i], &st->shards[i].manifest.root)) status = TB_PEER_GARBLED;
    }
    const struct tb_digest root = tb_version_key_root(&st->key, roots);
    if (status == TB_OK && !tb_digest_equal(&root, &st->key.root)) status = TB_PEER_GARBLED;
    tb_free(roots);
    return status;
}

static uint64_t version_bytes(const struct tb_staging *st)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        bytes += st->shards[i].manifest.bytes;
    return bytes;
}

/* Nobody else maps it. */
static bool is_passage(const struct tb_staging *st)
{
    return st->patch_for != NULL || st->slices_for != NULL || st->stage != NULL;
}

/* On a GPU stand the tensors alone. */
static uint64_t here_bytes(const struct tb_staging *st, const struct tb_manifest *m)
{
    return st->stage != NULL ? m->bytes - m->layout.bytes : m->bytes;
}

/* All shards, behind them their bitmaps, and the shelf stand in one memory: one descriptor a
 * version. */
static uint64_t lay_out(struct tb_staging *st, uint64_t *words_out)
{
    TB_ASSERT(tb_staging_has_manifests(st) && st->total_chunks == 0);
    uint64_t bytes = 0, words = 0;
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        struct tb_staged_shard *sh = &st->shards[i];
        sh->bytes_offset = bytes;
        bytes += (here_bytes(st, &sh->manifest) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    }
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        struct tb_staged_shard *sh = &st->shards[i];
        sh->held_offset = bytes + words * sizeof(uint64_t);
        words += TB_BITMAP_WORDS(sh->manifest.chunk_count);
        st->total_chunks += sh->manifest.chunk_count;
    }
    *words_out = words;
    const uint64_t end = bytes + (words + 1) * sizeof(uint64_t);
    if (is_passage(st) || st->total_chunks == 0 || st->total_chunks > TB_SHELF_COUNT_MAX) return end;
    st->shelf_offset = end;
    return end + tb_shelf_bytes(st->total_chunks, TB_SHELF_ROOM(version_bytes(st)));
}

/* Which bytes have to be zero, as in new memory: bitmaps, and the shelf's head and bits. The others
 * are what they were: no bit says that one of them is held. */
struct zeroed {
    uint64_t from, end;
};

/* Bitmaps first, and what of the shelf has to be zero behind them. */
static struct zeroed zeroed_of(const struct tb_staging *st)
{
    TB_ASSERT(st->shelf_offset > st->shards[0].held_offset);
    const uint64_t from = st->shards[0].held_offset, shelf = st->shelf_offset;
    return (struct zeroed){from, shelf + tb_shelf_zero_bytes(st->total_chunks)};
}

/* A spare of another size goes first, so that both never stand at once. */
static bool take_spare(struct tb_staging *st, uint64_t bytes, struct zeroed zeroed)
{
    struct tb_session *s = st->session;
    const struct tb_spare_wish wish = {&st->key.model, bytes};
    if (!tb_spare_take(s, &s->spare, &wish, &st->memory)) return false;
    memset((uint8_t *)st->memory.bytes + zeroed.from, 0, zeroed.end - zeroed.from);
    return true;
}

static enum tb_status encode_source(struct tb_staging *st)
{
    struct tb_source_shard *shards = tb_calloc(st->key.shard_count, sizeof *shards);
    if (shards == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        shards[i] = (struct tb_source_shard){.shard = i,
                                             .held_offset = st->shards[i].held_offset,
                                             .packed_offset = st->shards[i].bytes_offset};
    const size_t bytes = tb_source_encoded_bytes(shards, st->key.shard_count);
    st->source = tb_malloc(bytes);
    if (st->source != NULL) {
        struct tb_writer w;
        tb_writer_init(&w, st->source, bytes);
        tb_source_encode(shards, st->key.shard_count, &w);
        TB_ASSERT(!w.full);
        st->source_bytes = w.used;
    }
    tb_free(shards);
    return st->source == NULL ? TB_SITE_NOMEM : TB_OK;
}

/* Once, and in background: a switch copies from here to the GPU. */
static void pin_for_gpu(struct tb_staging *st)
{
    tb_gpu_pin(tb_registration_gpu(st->session, NULL), &st->memory);
}

/* Pages of it exist where a chunk stands, so nothing is reserved; nobody else maps it. */
static enum tb_status map_passage(struct tb_staging *st, uint64_t bytes)
{
    void *map =
        tb_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return TB_SITE_NOMEM;
    /* Bytes that are written behind a fork would go to new pages, while a device that has the
     * memory pinned reads the old ones. */
    if (madvise(map, bytes, MADV_DONTFORK) != 0) {
        munmap(map, bytes);
        return TB_SITE_NOMEM;
    }
    /* Pages of a patch go one by one: a huge one would stay for the sake of its one small part that
     * is still needed. */
    if (st->patch_for != NULL) (void)madvise(map, bytes, MADV_NOHUGEPAGE);
    st->memory = (struct tb_shared_memory){.bytes = map, .count = bytes, .memfd = -1};
    return TB_OK;
}

static enum tb_status make_memory(struct tb_staging *st, uint64_t bytes)
{
    if (is_passage(st)) return map_passage(st, bytes);
    if (st->shelf_offset != 0 && take_spare(st, bytes, zeroed_of(st))) return TB_OK;
    const struct tb_reserve_wish wish = {.kind = TB_RESERVE_STAGING, .model = &st->key.model, .bytes = bytes};
    return tb_reserve_take(st->session, &wish, &st->memory);
}

static enum tb_status make_places(struct tb_staging *st)
{
    TB_ASSERT(st->memory.bytes == NULL && st->claimed == NULL);
    uint64_t words;
    tb_staging_find_gpu(st);
    const uint64_t bytes = lay_out(st, &words);
    const enum tb_status made = make_memory(st, bytes);
    if (made != TB_OK) return made;
    if (st->memory.memfd >= 0) pin_for_gpu(st);
    st->claimed = tb_calloc(words + 1, sizeof *st->claimed);
    if (st->claimed == NULL) return TB_SITE_NOMEM;
    uint8_t *base = st->memory.bytes;
    uint64_t *claimed = st->claimed;
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        struct tb_staged_shard *sh = &st->shards[i];
        sh->place = (struct tb_place){.manifest = &sh->manifest,
                                      .bytes = base + sh->bytes_offset,
                                      .held = (uint64_t *)(void *)(base + sh->held_offset),
                                      .claimed = claimed};
        if (st->stage != NULL) tb_staging_put_far(st, sh);
        claimed += TB_BITMAP_WORDS(sh->manifest.chunk_count);
    }
    if (st->shelf_offset != 0)
        tb_shelf_init(&st->shelf, base + st->shelf_offset, st->total_chunks,
                      TB_SHELF_ROOM(version_bytes(st)));
    if (st->slices_for != NULL) return tb_staging_want_slices(st, words);
    return st->stage != NULL ? TB_OK : encode_source(st);
}

/* ---- as a patch ---- */

/* A version may have a tensor in boxes, which no table of whole tensors covers: it is staged whole,
 * and its boxes are copied. */
static void patch_or_whole(struct tb_staging *st)
{
    const struct tb_registration *r = st->patch_for;
    bool fits = true;
    for (uint32_t i = 0; r != NULL && i < r->layout.tensor_count && fits; i++) {
        uint32_t shard;
        fits = tb_staging_tensor(st, &r->layout.tensors[i], &shard) != NULL;
    }
    if (fits) return;
    tb_session_lock(st->session); /* others look at it */
    st->patch_for = NULL;
    tb_session_unlock(st->session);
}

enum tb_status tb_staging_patch_tables(const struct tb_staging *st)
{
    TB_ASSERT(st->patch_for != NULL && st->patch != NULL);
    const struct tb_registration *r = st->patch_for;
    for (uint32_t i = 0; i < r->layout.tensor_count; i++) {
        uint32_t shard;
        const struct tb_tensor *theirs = tb_staging_tensor(st, &r->layout.tensors[i], &shard);
        if (theirs == NULL) return TB_LAYOUT_MISMATCH; /* never: patch_or_whole looked */
        const size_t at = (size_t)(theirs - st->shards[shard].manifest.layout.tensors);
        tb_patch_memory(st->patch, shard)[at] = r->memory[i];
        tb_patch_on_device(st->patch, shard)[at] = tb_gpu_memory_has(r->gpu, i);
        if (tb_tied_has(&r->tied, i))
            tb_patch_ties(st->patch, shard)[at] =
                tb_tied_by_digests(st, r, i) == TB_TIED_SAME ? TB_PATCH_TIED_ALIKE : TB_PATCH_TIED;
    }
    return TB_OK;
}

static enum tb_status new_patch(struct tb_staging *st)
{
    TB_ASSERT(st->patch == NULL && st->patch_for != NULL);
    struct tb_patch_shard_of *tables = tb_calloc((size_t)st->key.shard_count + 1, sizeof *tables);
    if (tables == NULL) return TB_SITE_NOMEM;
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < st->key.shard_count; i++) {
        tables[i].manifest = &st->shards[i].manifest;
        const size_t tensors = (size_t)tables[i].manifest->layout.tensor_count + 1;
        tables[i].memory = tb_calloc(tensors, sizeof *tables[i].memory);
        tables[i].on_device = tb_calloc(tensors, sizeof *tables[i].on_device);
        if (tables[i].memory == NULL || tables[i].on_device == NULL) status = TB_SITE_NOMEM;
        if (st->patch_for->tied.count == 0) continue;
        tables[i].ties = tb_calloc(tensors, sizeof *tables[i].ties);
        if (tables[i].ties == NULL) status = TB_SITE_NOMEM;
    }
    if (status == TB_OK) {
        status = tb_patch_new(&st->patch_for->target, tables, st->key.shard_count, &st->patch);
    } else {
        for (uint32_t i = 0; i < st->key.shard_count; i++) {
            tb_free(tables[i].memory);
            tb_free(tables[i].on_device);
            tb_free(tables[i].ties);
        }
    }
    tb_free(tables);
    return status;
}

static enum tb_status make_patch(struct tb_staging *st)
{
    if (st->patch_for == NULL) return TB_OK;
    enum tb_status status = new_patch(st);
    if (status != TB_OK) return status;
    tb_session_lock(st->session); /* tensors may be moved */
    status = tb_staging_patch_tables(st);
    tb_session_unlock(st->session);
    if (status != TB_OK) return status;
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        tb_patch_watch(st->patch, i, &st->shards[i].place);
    return TB_OK;
}

void tb_staging_prepare(void *user, uint32_t piece, uint32_t slot)
{
    TB_ASSERT_UNLOCKED(((struct tb_staging *)user)->session);
    (void)piece;
    (void)slot;
    struct tb_staging *st = user;
    struct tb_session *s = st->session;
    enum tb_status status = check_roots(st);
    char why[sizeof st->why] = "the manifests do not hash to the version's root";
    if (status == TB_OK) {
        patch_or_whole(st);
        status = make_places(st);
        if (status == TB_OK) status = make_patch(st);
        if (status != TB_OK)
            snprintf(why, sizeof why, "no shared memory to stage %llu bytes",
                     (unsigned long long)version_bytes(st));
    }
    tb_session_lock(s);
    const bool failed_meanwhile = st->life == TB_STAGING_FAILING;
    tb_staging_step(&st->life, status == TB_OK ? TB_STAGING_PLACED : TB_STAGING_UNPLACED);
    if (status != TB_OK && !failed_meanwhile) tb_staging_fail(st, status, why);
    tb_session_changed(s, false);
    tb_session_wake(s);
    tb_session_unlock(s);
}

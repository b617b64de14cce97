/* arena_reserve.c - a region and space for its shards, reserved and freed. In the file both exist
 * as a whole or not at all, whatever instant a kill hits. */
#include "gateway/arena/arena_reserve.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/layout/version_key.h"
#include "gateway/arena/arena_inner.h"
#include "gateway/arena/arena_regions.h"

/* Packed bytes of at least so many start on a huge page; for smaller ones the gap would cost
 * more than it brings. */
#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
#define HUGE_FROM_BYTES ((uint64_t)32 << 20)

/* ---- a shard ---- */

/* A copy of the manifest on our heap, made through its wire form, which the file needs anyway. */
static enum tb_status manifest_copy(struct tb_layouts *layouts, struct arena_shard *s,
                                    const struct tb_manifest *from, uint8_t *head, size_t head_bytes)
{
    struct tb_writer w;
    tb_writer_init(&w, head, head_bytes);
    tb_manifest_head_encode(from, &w);
    TB_ASSERT(!w.full && w.used == head_bytes);
    const enum tb_status status =
        tb_layouts_decode(layouts, head, head_bytes, &s->manifest_memory, &s->manifest);
    if (status != TB_OK) return status;
    if (from->digests != NULL)
        memcpy(s->manifest.digests, from->digests, s->manifest.chunk_count * sizeof *from->digests);
    struct tb_blake3 proof;
    for (uint32_t k = 0; from->proven != NULL && k < from->chunk_count; k++)
        if (tb_manifest_proof(from, k, &proof)) tb_manifest_set_proof(&s->manifest, k, &proof);
    return TB_OK;
}

static void digests_write(struct tb_arena_region *region, struct arena_shard *s)
{
    uint8_t *digests = region->arena->file.map + s->extent.offset + s->plan.digests;
    TB_ASSERT(s->record != ARENA_NO_RECORD && s->manifest.digests != NULL);
    memcpy(digests, s->manifest.digests, s->manifest.chunk_count * sizeof *s->manifest.digests);
    __atomic_store_n(&region->arena->file.records[s->record].digests_done, (uint64_t)ARENA_USED,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&s->is_ready, 1, __ATOMIC_RELEASE);
}

static bool digests_complete(const struct tb_manifest *manifest)
{
    const struct tb_digest root = tb_manifest_root(manifest);
    return !tb_arena_root_is_zero(&manifest->root) && tb_digest_equal(&root, &manifest->root);
}

/* Record and extent of a shard; on success both are this shard's, and nothing in the file says so
 * yet. */
static enum tb_status shard_take(struct tb_arena_region *region, uint32_t shard,
                                 const struct tb_manifest *manifest, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct tb_arena *arena = region->arena;
    struct arena_shard *s = &region->shards[shard];
    TB_ASSERT(s->record == ARENA_NO_RECORD && !s->has_space);
    struct arena_record_shard numbers = {.packed_bytes = manifest->bytes,
                                         .head_bytes = tb_manifest_head_bytes(manifest),
                                         .shard = shard,
                                         .chunk_count = manifest->chunk_count};
    if (!tb_arena_extent_plan(&numbers, &s->plan)) {
        tb_arena_say(error_out,
                     "shard %" PRIu32 ": %" PRIu64 " bytes in %" PRIu32 " chunks are over the limits", shard,
                     manifest->bytes, manifest->chunk_count);
        return TB_TOO_LARGE;
    }
    const uint64_t align = manifest->bytes >= HUGE_FROM_BYTES ? HUGE_PAGE_BYTES : TB_EXTENT_GRAIN;
    const enum tb_status status = tb_extents_take(&arena->extents, s->plan.total, align, &numbers.offset);
    if (status != TB_OK || arena->slots_free == 0) {
        tb_arena_say(error_out,
                     "shard %" PRIu32 " needs %" PRIu64 " bytes: the arena has %" PRIu64 " free of %" PRIu64
                     ", the largest piece %" PRIu64 ", and %" PRIu32 " slots",
                     shard, s->plan.total, arena->extents.free_bytes, arena->extents.all.bytes,
                     tb_extents_largest(&arena->extents), arena->slots_free);
        if (status == TB_OK)
            tb_extents_give(&arena->extents, (struct tb_extent){numbers.offset, s->plan.total});
        return TB_SITE_NOMEM;
    }
    numbers.bytes = s->plan.total;
    s->extent = (struct tb_extent){numbers.offset, numbers.bytes};
    s->record = tb_arena_slot_take(arena);
    struct arena_record *r = &arena->file.records[s->record];
    memset(r, 0, sizeof *r);
    r->kind = ARENA_SHARD;
    r->uid = region->key.uid;
    r->shard = numbers;
    r->check = tb_arena_record_check(r);
    return TB_OK;
}

static enum tb_status shard_reserve(struct tb_arena_region *region, uint32_t shard,
                                    const struct tb_manifest *manifest, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct tb_arena *arena = region->arena;
    struct arena_shard *s = &region->shards[shard];
    enum tb_status status = shard_take(region, shard, manifest, error_out);
    if (status != TB_OK) return status;
    struct arena_record *r = &arena->file.records[s->record];
    uint8_t *base = arena->file.map + s->extent.offset;
    status = manifest_copy(arena->layouts, s, manifest, base + s->plan.head, r->shard.head_bytes);
    if (status == TB_OK) status = tb_arena_shard_attach(region, s);
    if (status != TB_OK) {
        tb_arena_say(error_out, "shard %" PRIu32 ": %s", shard, tb_status_text(status));
        tb_arena_shard_give(region, s);
        return status;
    }
    memset(s->place.held, 0, TB_BITMAP_WORDS(manifest->chunk_count) * sizeof *s->place.held);
    if (digests_complete(&s->manifest)) digests_write(region, s);
    tb_arena_record_use(r, ARENA_USED);
    __atomic_store_n(&s->has_space, 1, __ATOMIC_RELEASE);
    return TB_OK;
}

/* TB_OK: it has no space yet. */
static enum tb_status shard_look(const struct tb_arena_region *region, uint32_t shard,
                                 const struct tb_manifest *manifest)
{
    if (shard >= region->key.shard_count) return TB_BAD_ARGUMENT;
    const struct arena_shard *s = &region->shards[shard];
    if (!s->has_space) return TB_OK;
    return tb_digest_equal(&s->manifest.root, &manifest->root) ? TB_DONE_BEFORE : TB_CONFLICT;
}

enum tb_status tb_arena_shard_reserve(struct tb_arena_region *region, uint32_t shard,
                                      const struct tb_manifest *manifest,
                                      char error_out[TB_ARENA_ERROR_BYTES])
{
    error_out[0] = '\0';
    pthread_mutex_lock(&region->arena->mutex);
    enum tb_status status = shard_look(region, shard, manifest);
    if (status == TB_OK) status = shard_reserve(region, shard, manifest, error_out);
    tb_arena_tables_check(region->arena);
    pthread_mutex_unlock(&region->arena->mutex);
    return status;
}

enum tb_status tb_arena_digests_done(struct tb_arena_region *region, uint32_t shard)
{
    if (shard >= region->key.shard_count || !region->shards[shard].has_space) return TB_BAD_STATE;
    struct arena_shard *s = &region->shards[shard];
    if (tb_arena_place_ready(region, shard)) return TB_DONE_BEFORE;
    if (!digests_complete(&s->manifest)) return TB_CHUNK_DIGEST;
    digests_write(region, s);
    return TB_OK;
}

/* ---- regions ---- */

/* Fills a free record; it counts only once tb_arena_record_use has said so. */
static void record_fill_region(struct tb_arena_region *region)
{
    struct arena_record *r = &region->arena->file.records[region->record];
    struct tb_version_key key = region->key;
    struct tb_writer w;
    memset(r, 0, sizeof *r);
    memset(&key.root, 0, sizeof key.root);
    r->kind = ARENA_REGION;
    r->uid = key.uid;
    r->region.made = region->made;
    tb_writer_init(&w, r->region.key, sizeof r->region.key);
    tb_version_key_encode(&key, &w);
    TB_ASSERT(!w.full);
    r->region.key_bytes = (uint32_t)w.used;
    r->spare = ~(uint64_t)0 << 32;
    r->check = tb_arena_record_check(r);
}

static bool same_key(const struct tb_version_key *a, const struct tb_version_key *b)
{
    return tb_id_equal(&a->uid, &b->uid) && tb_name_equal(&a->model, &b->model) &&
           tb_id_equal(&a->run, &b->run) && a->run_order == b->run_order && a->number == b->number &&
           a->shard_count == b->shard_count;
}

/* A region with its record filled but not in use: it does not exist for a restart yet. */
static enum tb_status region_make(struct tb_arena *arena, const struct tb_version_key *key,
                                  struct tb_arena_region **region_out, char error_out[TB_ARENA_ERROR_BYTES])
{
    TB_ASSERT(key->shard_count > 0 && key->shard_count <= TB_SHARDS_MAX);
    if (key->shard_count >= arena->file.header.record_count) {
        tb_arena_say(error_out,
                     "%" PRIu32 " shards take %" PRIu32 " slots, and the arena's file has %" PRIu32
                     ": a new one of %" PRIu64 " bytes has enough",
                     key->shard_count, key->shard_count + 1, arena->file.header.record_count,
                     tb_arena_file_bytes_for(key->shard_count + 1));
        return TB_TOO_LARGE;
    }
    if (arena->slots_free == 0) {
        tb_arena_say(error_out, "all %" PRIu32 " slots of the arena are in use",
                     arena->file.header.record_count);
        return TB_SITE_NOMEM;
    }
    struct tb_arena_region *region = tb_arena_region_alloc(arena, key);
    if (region == NULL) {
        tb_arena_say(error_out, "no heap for a region of %" PRIu32 " shards", key->shard_count);
        return TB_SITE_NOMEM;
    }
    region->record = tb_arena_slot_take(arena);
    TB_ASSERT(region->record != ARENA_NO_RECORD); /* looked for above, under the same lock */
    region->made = arena->made + 1;
    record_fill_region(region);
    if (!tb_arena_root_is_zero(&key->root)) tb_arena_record_set_root(region, &key->root);
    tb_arena_region_link(region);
    *region_out = region;
    return TB_OK;
}

static enum tb_status region_look(struct tb_arena *arena, const struct tb_version_key *key,
                                  struct tb_arena_region **region_out)
{
    struct tb_arena_region *region = tb_arena_region_find(arena, &key->uid);
    if (region == NULL) return TB_OK;
    if (!same_key(&region->key, key)) return TB_CONFLICT;
    *region_out = region;
    return TB_DONE_BEFORE;
}

enum tb_status tb_arena_region_new(struct tb_arena *arena, const struct tb_version_key *key,
                                   struct tb_arena_region **region_out, char error_out[TB_ARENA_ERROR_BYTES])
{
    error_out[0] = '\0';
    pthread_mutex_lock(&arena->mutex);
    enum tb_status status = region_look(arena, key, region_out);
    if (status == TB_OK) {
        status = region_make(arena, key, region_out, error_out);
        if (status == TB_OK) tb_arena_record_use(&arena->file.records[(*region_out)->record], ARENA_USED);
    }
    tb_arena_tables_check(arena);
    pthread_mutex_unlock(&arena->mutex);
    return status;
}

/* The shards that have no space yet. */
static enum tb_status reserve_missing(struct tb_arena_region *region,
                                      const struct tb_manifest *const *manifests,
                                      char error_out[TB_ARENA_ERROR_BYTES])
{
    for (uint32_t s = 0; s < region->key.shard_count; s++) {
        enum tb_status status = shard_look(region, s, manifests[s]);
        if (status == TB_OK) status = shard_reserve(region, s, manifests[s], error_out);
        if (status != TB_OK && status != TB_DONE_BEFORE) return status;
    }
    return TB_OK;
}

/* One refusal with the numbers of the whole version says more than the one of the
 * shard that did not fit. */
static void say_whole_need(struct tb_arena *arena, const struct tb_manifest *const *manifests, uint32_t count,
                           char error_out[TB_ARENA_ERROR_BYTES])
{
    uint64_t need = 0;
    for (uint32_t s = 0; s < count; s++)
        need += manifests[s]->bytes;
    tb_arena_say(error_out,
                 "a version of %" PRIu64 " bytes in %" PRIu32 " shards does not fit: the arena has %" PRIu64
                 " bytes free of %" PRIu64 ", the largest piece %" PRIu64 ", and %" PRIu32 " slots",
                 need, count, arena->extents.free_bytes, arena->extents.all.bytes,
                 tb_extents_largest(&arena->extents), arena->slots_free);
}

static enum tb_status reserve_new(struct tb_arena *arena, const struct tb_version_key *key,
                                  const struct tb_manifest *const *manifests,
                                  struct tb_arena_region **region_out, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct tb_arena_region *region = NULL;
    enum tb_status status = region_make(arena, key, &region, error_out);
    if (status != TB_OK) return status;
    status = reserve_missing(region, manifests, error_out);
    if (status != TB_OK) {
        tb_arena_region_drop(region);
        if (status == TB_SITE_NOMEM) say_whole_need(arena, manifests, key->shard_count, error_out);
        return status;
    }
    /* now it exists, with all of its shards */
    tb_arena_record_use(&arena->file.records[region->record], ARENA_USED);
    *region_out = region;
    return TB_OK;
}

enum tb_status tb_arena_reserve(struct tb_arena *arena, const struct tb_version_key *key,
                                const struct tb_manifest *const *manifests, uint32_t count,
                                struct tb_arena_region **region_out, char error_out[TB_ARENA_ERROR_BYTES])
{
    error_out[0] = '\0';
    if (count != key->shard_count) return TB_BAD_ARGUMENT;
    struct tb_arena_region *region = NULL;
    pthread_mutex_lock(&arena->mutex);
    enum tb_status status = region_look(arena, key, &region);
    if (status == TB_OK) {
        status = reserve_new(arena, key, manifests, &region, error_out);
    } else if (status == TB_DONE_BEFORE) {
        const enum tb_status filled = reserve_missing(region, manifests, error_out);
        if (filled != TB_OK) status = filled;
    }
    tb_arena_tables_check(arena);
    pthread_mutex_unlock(&arena->mutex);
    if (status == TB_OK || status == TB_DONE_BEFORE) *region_out = region;
    return status;
}

enum tb_status tb_arena_free(struct tb_arena_region *region)
{
    struct tb_arena *arena = region->arena;
    pthread_mutex_lock(&arena->mutex);
    if (region->refs > 0) {
        pthread_mutex_unlock(&arena->mutex);
        return TB_BAD_STATE;
    }
    region->leaving = true; /* the verifier takes no new chunk of it */
    while (region->verifying > 0)
        pthread_cond_wait(&arena->verified, &arena->mutex);
    tb_arena_region_drop(region);
    tb_arena_tables_check(arena);
    pthread_mutex_unlock(&arena->mutex);
    return TB_OK;
}

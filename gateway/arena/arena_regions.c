/* arena_regions.c - the regions of an arena: the list in the order in which they were made, the
 * table by uid, their records in the file, their states and pins. */
#include "gateway/arena/arena_regions.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "gateway/arena/arena_inner.h"

static struct tb_arena_region **bucket_of(struct tb_arena *arena, const struct tb_id *uid)
{
    return &arena->buckets[uid->bytes[0] % ARENA_BUCKETS]; /* uids are random */
}

static void shard_release_heap(struct tb_arena *arena, struct arena_shard *s)
{
    tb_layouts_release(arena->layouts, &s->manifest_memory);
    tb_free(s->claimed);
    tb_free(s->suspect);
    memset(s, 0, sizeof *s);
    s->record = ARENA_NO_RECORD;
}

static void region_unlink(struct tb_arena_region *region)
{
    struct tb_arena *arena = region->arena;
    TB_ASSERT(arena->regions > 0);
    if (arena->prove_from == region) arena->prove_from = region->next;
    *(region->previous == NULL ? &arena->first : &region->previous->next) = region->next;
    *(region->next == NULL ? &arena->last : &region->next->previous) = region->previous;
    struct tb_arena_region **at = bucket_of(arena, &region->key.uid);
    while (*at != region)
        at = &(*at)->bucket_next;
    *at = region->bucket_next;
    arena->regions--;
}

static void region_free_heap(struct tb_arena_region *region)
{
    for (uint32_t s = 0; s < region->key.shard_count; s++)
        shard_release_heap(region->arena, &region->shards[s]);
    tb_free(region);
}

void tb_arena_regions_forget(struct tb_arena *arena)
{
    while (arena->first != NULL) {
        struct tb_arena_region *region = arena->first;
        region_unlink(region);
        region_free_heap(region);
    }
}

void tb_arena_life_renew(struct tb_arena *arena)
{
    tb_random_bytes(&arena->file.header.life, sizeof arena->file.header.life);
    tb_arena_file_save(&arena->file);
}

struct tb_id tb_arena_life(struct tb_arena *arena)
{
    pthread_mutex_lock(&arena->mutex);
    const struct tb_id life = arena->file.header.life;
    pthread_mutex_unlock(&arena->mutex);
    return life;
}

struct tb_arena_region *tb_arena_region_alloc(struct tb_arena *arena, const struct tb_version_key *key)
{
    struct tb_arena_region *region =
        tb_calloc(1, sizeof *region + (size_t)key->shard_count * sizeof region->shards[0]);
    if (region == NULL) return NULL;
    region->arena = arena;
    region->key = *key;
    region->record = ARENA_NO_RECORD;
    for (uint32_t s = 0; s < key->shard_count; s++)
        region->shards[s].record = ARENA_NO_RECORD;
    return region;
}

void tb_arena_region_link(struct tb_arena_region *region)
{
    struct tb_arena *arena = region->arena;
    struct tb_arena_region *before = arena->last;
    TB_ASSERT(tb_arena_region_find(arena, &region->key.uid) == NULL);
    while (before != NULL && before->made > region->made)
        before = before->previous;
    region->previous = before;
    region->next = before == NULL ? arena->first : before->next;
    *(before == NULL ? &arena->first : &before->next) = region;
    *(region->next == NULL ? &arena->last : &region->next->previous) = region;
    struct tb_arena_region **bucket = bucket_of(arena, &region->key.uid);
    region->bucket_next = *bucket;
    *bucket = region;
    arena->regions++;
    if (region->made > arena->made) arena->made = region->made;
}

struct tb_arena_region *tb_arena_region_find(struct tb_arena *arena, const struct tb_id *uid)
{
    struct tb_arena_region *region = *bucket_of(arena, uid);
    while (region != NULL && !tb_id_equal(&region->key.uid, uid))
        region = region->bucket_next;
    return region;
}

struct tb_arena_region *tb_arena_region(struct tb_arena *arena, const struct tb_id *uid)
{
    pthread_mutex_lock(&arena->mutex);
    struct tb_arena_region *region = tb_arena_region_find(arena, uid);
    pthread_mutex_unlock(&arena->mutex);
    return region;
}

struct tb_arena_region *tb_arena_region_next(struct tb_arena *arena, struct tb_arena_region *previous)
{
    pthread_mutex_lock(&arena->mutex);
    struct tb_arena_region *region = previous == NULL ? arena->first : previous->next;
    pthread_mutex_unlock(&arena->mutex);
    return region;
}

/* ---- records ---- */

uint32_t tb_arena_slot_take(struct tb_arena *arena)
{
    if (arena->slots_free == 0) return ARENA_NO_RECORD;
    const uint32_t record = arena->slots[--arena->slots_free];
    TB_ASSERT(record < arena->file.header.record_count);
    TB_ASSERT(tb_arena_record_used(&arena->file.records[record]) == ARENA_FREE);
    return record;
}

static void slot_give(struct tb_arena *arena, uint32_t record)
{
    if (record == ARENA_NO_RECORD) return;
    TB_ASSERT(arena->slots_free < arena->file.header.record_count);
    tb_arena_record_use(&arena->file.records[record], ARENA_FREE);
    arena->slots[arena->slots_free++] = record;
}

bool tb_arena_root_is_zero(const struct tb_digest *root)
{
    static const struct tb_digest zero;
    return tb_digest_equal(root, &zero);
}

void tb_arena_record_set_root(struct tb_arena_region *region, const struct tb_digest *root)
{
    struct arena_record *r = &region->arena->file.records[region->record];
    TB_ASSERT(r->kind == ARENA_REGION && r->root_check == 0 && !tb_arena_root_is_zero(root));
    r->root = *root;
    __atomic_store_n(&r->root_check, tb_arena_root_check(&region->key.uid, root), __ATOMIC_RELEASE);
    region->key.root = *root;
}

/* ---- a shard's space ---- */

void tb_arena_shard_proves(struct tb_arena_region *region, struct arena_shard *s)
{
    const struct tb_arena *arena = region->arena;
    if (arena->proves == NULL || !arena->proves(arena->proves_user, &region->key.model)) return;
    s->proves = true;
    if (!arena->proves_later) s->place.proves = &s->manifest;
}

enum tb_status tb_arena_shard_attach(struct tb_arena_region *region, struct arena_shard *s)
{
    uint8_t *base = region->arena->file.map + s->extent.offset;
    const uint64_t words = TB_BITMAP_WORDS(s->manifest.chunk_count);
    TB_ASSERT(s->extent.bytes == s->plan.total && s->claimed == NULL);
    s->claimed = tb_calloc(words == 0 ? 1 : words, sizeof *s->claimed);
    if (s->claimed == NULL) return TB_SITE_NOMEM;
    s->place = (struct tb_place){
        .manifest = &s->manifest,
        .bytes = base,
        .held = (uint64_t *)(void *)(base + s->plan.held),
        .claimed = s->claimed,
    };
    s->proves = s->all_proven = false;
    s->prove_from = 0;
    tb_arena_shard_proves(region, s);
    return TB_OK;
}

void tb_arena_shard_give(struct tb_arena_region *region, struct arena_shard *s)
{
    struct tb_arena *arena = region->arena;
    if (s->record == ARENA_NO_RECORD) return;
    slot_give(arena, s->record);
    tb_extents_give(&arena->extents, s->extent);
    shard_release_heap(arena, s);
}

void tb_arena_region_drop(struct tb_arena_region *region)
{
    struct tb_arena *arena = region->arena;
    TB_ASSERT(region->refs == 0 && region->verifying == 0);
    /* Its own record first: shards without a region are nobody's, a region without its
     * shards would be a lie. */
    slot_give(arena, region->record);
    for (uint32_t s = 0; s < region->key.shard_count; s++)
        tb_arena_shard_give(region, &region->shards[s]);
    region_unlink(region);
    region_free_heap(region);
}

/* ---- what a region says of itself ---- */

const struct tb_version_key *tb_arena_region_key(const struct tb_arena_region *region)
{
    return &region->key;
}

enum tb_status tb_arena_region_set_root(struct tb_arena_region *region, const struct tb_digest *root)
{
    if (tb_arena_root_is_zero(root)) return TB_BAD_ARGUMENT;
    pthread_mutex_lock(&region->arena->mutex);
    enum tb_status status = TB_OK;
    if (tb_arena_root_is_zero(&region->key.root))
        tb_arena_record_set_root(region, root);
    else if (!tb_digest_equal(&region->key.root, root))
        status = TB_CONFLICT;
    pthread_mutex_unlock(&region->arena->mutex);
    return status;
}

bool tb_arena_place_ready(const struct tb_arena_region *region, uint32_t shard)
{
    return shard < region->key.shard_count &&
           __atomic_load_n(&region->shards[shard].is_ready, __ATOMIC_ACQUIRE) != 0;
}

struct tb_place *tb_arena_place(struct tb_arena_region *region, uint32_t shard)
{
    if (shard >= region->key.shard_count) return NULL;
    struct arena_shard *s = &region->shards[shard];
    return __atomic_load_n(&s->has_space, __ATOMIC_ACQUIRE) != 0 ? &s->place : NULL;
}

bool tb_arena_region_complete(const struct tb_arena_region *region)
{
    for (uint32_t s = 0; s < region->key.shard_count; s++)
        if (!tb_arena_place_ready(region, s)) return false;
    return true;
}

bool tb_arena_region_whole(const struct tb_arena_region *region)
{
    for (uint32_t s = 0; s < region->key.shard_count; s++)
        if (!tb_arena_place_ready(region, s) || !tb_place_whole(&region->shards[s].place)) return false;
    return true;
}

bool tb_arena_region_tell(const struct tb_arena_region *region,
                          void (*fn)(void *user, uint32_t shard, uint32_t held_chunks), void *user)
{
    bool whole = true;
    for (uint32_t s = 0; s < region->key.shard_count; s++) {
        const bool ready = tb_arena_place_ready(region, s);
        const uint32_t held = ready ? tb_place_held_count(&region->shards[s].place) : 0;
        whole = whole && ready && held == region->shards[s].manifest.chunk_count;
        if (ready) fn(user, s, held);
    }
    return whole;
}

/* ---- pins ---- */

void tb_arena_region_ref(struct tb_arena_region *region)
{
    pthread_mutex_lock(&region->arena->mutex);
    TB_ASSERT(!region->leaving && region->refs < UINT32_MAX);
    region->refs++;
    pthread_mutex_unlock(&region->arena->mutex);
}

void tb_arena_region_unref(struct tb_arena_region *region)
{
    pthread_mutex_lock(&region->arena->mutex);
    TB_ASSERT(region->refs > 0);
    region->refs--;
    pthread_mutex_unlock(&region->arena->mutex);
}

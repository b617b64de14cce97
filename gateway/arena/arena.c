/* arena.c - regions: reserving, looking up, pinning, freeing. Opening is arena_file.c, a restart
 * arena_recover.c, re-verification arena_verify.c. */
#include "gateway/arena/arena.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "gateway/arena/arena_inner.h"

/* Packed bytes of at least so many start on a huge page; for smaller ones the gap would cost
 * more than it brings. */
#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
#define HUGE_FROM_BYTES ((uint64_t)32 << 20)

/* ---- open and close ---- */

static enum tb_status tables_alloc(struct tb_arena *arena)
{
    const uint32_t count = arena->file.header.record_count;
    arena->extents_memory = tb_calloc((size_t)count + 1, sizeof *arena->extents_memory);
    arena->slots = tb_calloc(count, sizeof *arena->slots);
    return arena->extents_memory != NULL && arena->slots != NULL ? TB_OK : TB_SITE_NOMEM;
}

static void log_opened(const struct tb_arena *arena, const char *path, const char *event,
                       enum tb_log_level level)
{
    char life[TB_HEX_CHARS];
    struct tb_log_line line;
    tb_id_format(&arena->file.header.life, life);
    tb_log_begin(&line, level, event);
    tb_log_str(&line, "path", path);
    tb_log_u64(&line, "bytes", arena->file.bytes);
    tb_log_u64(&line, "regions", arena->regions);
    tb_log_u64(&line, "free_bytes", arena->extents.free_bytes);
    tb_log_str(&line, "life", life);
    tb_log_end(&line);
}

static bool is_blank(const struct arena_file *f)
{
    for (size_t i = 0; i < TB_EXTENT_GRAIN; i++)
        if (f->map[i] != 0) return false;
    return true;
}

/* An empty arena where there was none, or where the header can not be believed. */
static void begin_anew(struct tb_arena *arena, const char *path)
{
    const bool blank = arena->file.fresh || is_blank(&arena->file);
    tb_arena_file_format(&arena->file);
    if (!blank) log_opened(arena, path, "arena.header_damaged", TB_LOG_ERROR);
}

static enum tb_status settle(struct tb_arena *arena, const char *path, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct arena_file *f = &arena->file;
    enum tb_status status = tb_arena_file_load(f, path, error_out);
    if (status == TB_SITE_CONFIG) return status;
    if (status != TB_OK) begin_anew(arena, path);
    if (tables_alloc(arena) != TB_OK) {
        tb_arena_say(error_out, "arena %s: no heap for its tables", path);
        return TB_SITE_NOMEM;
    }
    tb_extents_init(&arena->extents, arena->extents_memory, f->header.record_count + 1,
                    tb_arena_file_room(f));
    status = tb_arena_recover(arena, error_out);
    if (status != TB_OK) return status;
    if (f->header.bytes != f->bytes) {
        /* before the trim: a header that promises more than there is counts as damaged */
        f->header.bytes = f->bytes;
        tb_arena_file_save(f);
    }
    return tb_arena_file_trim(f, error_out);
}

enum tb_status tb_arena_check(const struct tb_arena_options *options, struct tb_arena_look *look_out,
                              char error_out[TB_ARENA_ERROR_BYTES])
{
    struct arena_file f;
    enum tb_status status = tb_arena_file_look(&f, options, look_out, error_out);
    if (status == TB_OK && f.records != NULL) {
        status = tb_arena_recover_check(&f, error_out);
        look_out->too_small = status != TB_OK;
    }
    tb_arena_file_look_end(&f);
    return status;
}

enum tb_status tb_arena_open(const struct tb_arena_options *options, struct tb_arena **arena_out,
                             char error_out[TB_ARENA_ERROR_BYTES])
{
    TB_ASSERT(options->path != NULL);
    error_out[0] = '\0';
    struct tb_arena *arena = tb_calloc(1, sizeof *arena);
    if (arena == NULL) {
        tb_arena_say(error_out, "arena %s: no heap", options->path);
        return TB_SITE_NOMEM;
    }
    arena->file.fd = -1;
    pthread_mutex_init(&arena->mutex, NULL);
    pthread_cond_init(&arena->verified, NULL);
    enum tb_status status = TB_SITE_NOMEM;
    arena->layouts = tb_layouts_new();
    if (arena->layouts == NULL) {
        tb_arena_say(error_out, "arena %s: no heap", options->path);
        goto undo_arena;
    }
    status = tb_arena_file_open(&arena->file, options, error_out);
    if (status != TB_OK) goto undo_arena;
    status = settle(arena, options->path, error_out);
    if (status != TB_OK) goto undo_arena;
    log_opened(arena, options->path, "arena.open", TB_LOG_INFO);
    *arena_out = arena;
    return TB_OK;

undo_arena:
    tb_arena_close(arena);
    return status;
}

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

void tb_arena_close(struct tb_arena *arena)
{
    if (arena == NULL) return;
    while (arena->first != NULL) {
        struct tb_arena_region *region = arena->first;
        region_unlink(region);
        region_free_heap(region);
    }
    tb_arena_file_close(&arena->file);
    tb_layouts_free(arena->layouts);
    tb_free(arena->extents_memory);
    tb_free(arena->slots);
    pthread_cond_destroy(&arena->verified);
    pthread_mutex_destroy(&arena->mutex);
    tb_free(arena);
}

void *tb_arena_memory(struct tb_arena *arena, uint64_t *bytes_out)
{
    *bytes_out = arena->file.bytes;
    return arena->file.map;
}

struct tb_layouts *tb_arena_layouts(struct tb_arena *arena)
{
    return arena->layouts;
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

void tb_arena_budget(struct tb_arena *arena, struct tb_arena_budget *budget_out)
{
    pthread_mutex_lock(&arena->mutex);
    memset(budget_out, 0, sizeof *budget_out); /* tests compare it whole */
    budget_out->total_bytes = arena->extents.all.bytes;
    budget_out->used_bytes = arena->extents.all.bytes - arena->extents.free_bytes;
    budget_out->free_bytes = arena->extents.free_bytes;
    budget_out->largest_free_bytes = tb_extents_largest(&arena->extents);
    budget_out->regions = arena->regions;
    budget_out->slots = arena->file.header.record_count;
    budget_out->slots_free = arena->slots_free;
    pthread_mutex_unlock(&arena->mutex);
}

/* ---- the list and the table by uid ---- */

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

static uint32_t slot_take(struct tb_arena *arena)
{
    return arena->slots_free == 0 ? ARENA_NO_RECORD : arena->slots[--arena->slots_free];
}

static void slot_give(struct tb_arena *arena, uint32_t record)
{
    if (record == ARENA_NO_RECORD) return;
    tb_arena_record_use(&arena->file.records[record], ARENA_FREE);
    arena->slots[arena->slots_free++] = record;
}

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
    r->state = ~(uint64_t)0 << 32;
    r->check = tb_arena_record_check(r);
}

static bool root_is_zero(const struct tb_digest *root)
{
    static const struct tb_digest zero;
    return tb_digest_equal(root, &zero);
}

static void record_set_root(struct tb_arena_region *region, const struct tb_digest *root)
{
    struct arena_record *r = &region->arena->file.records[region->record];
    r->root = *root;
    __atomic_store_n(&r->root_check, tb_arena_root_check(&region->key.uid, root), __ATOMIC_RELEASE);
    region->key.root = *root;
}

/* ---- a shard's space ---- */

enum tb_status tb_arena_shard_attach(struct tb_arena_region *region, struct arena_shard *s)
{
    uint8_t *base = region->arena->file.map + s->extent.offset;
    const uint64_t words = TB_BITMAP_WORDS(s->manifest.chunk_count);
    s->claimed = tb_calloc(words == 0 ? 1 : words, sizeof *s->claimed);
    if (s->claimed == NULL) return TB_SITE_NOMEM;
    s->place = (struct tb_place){
        .manifest = &s->manifest,
        .bytes = base,
        .held = (uint64_t *)(void *)(base + s->plan.held),
        .claimed = s->claimed,
    };
    return TB_OK;
}

static void shard_give(struct tb_arena_region *region, struct arena_shard *s)
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
    /* Its own record first: shards without a region are nobody's, a region without its
     * shards would be a lie. */
    slot_give(arena, region->record);
    for (uint32_t s = 0; s < region->key.shard_count; s++)
        shard_give(region, &region->shards[s]);
    region_unlink(region);
    region_free_heap(region);
}

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
    return TB_OK;
}

static void digests_write(struct tb_arena_region *region, struct arena_shard *s)
{
    uint8_t *digests = region->arena->file.map + s->extent.offset + s->plan.digests;
    memcpy(digests, s->manifest.digests, s->manifest.chunk_count * sizeof *s->manifest.digests);
    __atomic_store_n(&region->arena->file.records[s->record].digests_done, (uint64_t)ARENA_USED,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&s->is_ready, 1, __ATOMIC_RELEASE);
}

static bool digests_complete(const struct tb_manifest *manifest)
{
    const struct tb_digest root = tb_manifest_root(manifest);
    return !root_is_zero(&manifest->root) && tb_digest_equal(&root, &manifest->root);
}

/* Record and extent of a shard; on success both are this shard's, and nothing in the file says so
 * yet. */
static enum tb_status shard_take(struct tb_arena_region *region, uint32_t shard,
                                 const struct tb_manifest *manifest, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct tb_arena *arena = region->arena;
    struct arena_shard *s = &region->shards[shard];
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
    s->record = slot_take(arena);
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
        shard_give(region, s);
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
    region->record = slot_take(arena);
    region->made = arena->made + 1;
    record_fill_region(region);
    if (!root_is_zero(&key->root)) record_set_root(region, &key->root);
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
    pthread_mutex_unlock(&arena->mutex);
    if (status == TB_OK || status == TB_DONE_BEFORE) *region_out = region;
    return status;
}

const struct tb_version_key *tb_arena_region_key(const struct tb_arena_region *region)
{
    return &region->key;
}

uint32_t tb_arena_region_state(const struct tb_arena_region *region)
{
    return (uint32_t)__atomic_load_n(&region->arena->file.records[region->record].state, __ATOMIC_ACQUIRE);
}

void tb_arena_region_set_state(struct tb_arena_region *region, uint32_t state)
{
    const uint64_t word = state | (uint64_t)~state << 32;
    __atomic_store_n(&region->arena->file.records[region->record].state, word, __ATOMIC_RELEASE);
}

enum tb_status tb_arena_region_set_root(struct tb_arena_region *region, const struct tb_digest *root)
{
    if (root_is_zero(root)) return TB_BAD_ARGUMENT;
    pthread_mutex_lock(&region->arena->mutex);
    enum tb_status status = TB_OK;
    if (root_is_zero(&region->key.root))
        record_set_root(region, root);
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

uint64_t tb_arena_region_bytes(const struct tb_arena_region *region)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < region->key.shard_count; s++)
        bytes += region->shards[s].extent.bytes;
    return bytes;
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
    pthread_mutex_unlock(&arena->mutex);
    return TB_OK;
}

/* arena_recover.c - what a killed process left: records are read as a stranger's, and what
 * does not fit is dropped.
 *
 * Two things look alike and are not: a region that a kill left half made or half freed, which never
 * existed or has left as a whole, and damage. Only damage gives the arena a new life, because only
 * then a peer may miss what it was told we hold. */
#include <inttypes.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/version_key.h"
#include "base/log.h"
#include "gateway/arena/arena_inner.h"

struct recovery {
    struct tb_arena *arena;
    uint32_t damaged; /* records and regions */
    char *error_out;
};

static void log_damaged(const struct tb_id *uid, uint32_t record, const char *what)
{
    char hex[TB_HEX_CHARS];
    tb_id_format(uid, hex);
    tb_log(TB_LOG_ERROR, "arena.region_damaged", "uid=%s record=%" PRIu32 " what=%s action=drop", hex, record,
           what);
}

/* The life is new before anything is dropped: a kill in between must not leave a
 * loss within the old one. */
static void note_damage(struct recovery *rec, const struct tb_id *uid, uint32_t record, const char *what)
{
    log_damaged(uid, record, what);
    if (rec->damaged++ == 0) tb_arena_life_renew(rec->arena);
}

static void record_damaged(struct recovery *rec, uint32_t record, const char *what)
{
    struct arena_record *r = &rec->arena->file.records[record];
    note_damage(rec, &r->uid, record, what);
    tb_arena_record_use(r, ARENA_FREE);
}

static bool is_sound(const struct arena_record *r, uint32_t kind)
{
    const struct tb_digest check = tb_arena_record_check(r);
    return tb_arena_record_used(r) == ARENA_USED && r->kind == kind && tb_digest_equal(&check, &r->check);
}

/* Leaves only records that are free, or in use with a check that fits. */
static void check_records(struct recovery *rec)
{
    for (uint32_t i = 0; i < rec->arena->file.header.record_count; i++) {
        struct arena_record *r = &rec->arena->file.records[i];
        if (tb_arena_record_used(r) == ARENA_FREE) continue;
        const struct tb_digest check = tb_arena_record_check(r);
        if (tb_arena_record_used(r) != ARENA_USED || !tb_digest_equal(&check, &r->check))
            record_damaged(rec, i, "record_check");
    }
}

static bool region_record_decode(const struct arena_record *r, struct tb_version_key *key_out)
{
    struct tb_reader reader;
    if (r->region.key_bytes > sizeof r->region.key) return false;
    tb_reader_init(&reader, r->region.key, r->region.key_bytes);
    if (tb_version_key_decode(&reader, key_out) != TB_OK || !tb_reader_ended(&reader)) return false;
    const uint32_t low = (uint32_t)r->spare;
    if ((uint32_t)(r->spare >> 32) != ~low) return false;
    if (r->root_check != 0 && r->root_check != tb_arena_root_check(&r->uid, &r->root)) return false;
    if (r->root_check != 0) key_out->root = r->root;
    return tb_id_equal(&key_out->uid, &r->uid);
}

static enum tb_status recover_region(struct recovery *rec, uint32_t record)
{
    struct tb_arena *arena = rec->arena;
    const struct arena_record *r = &arena->file.records[record];
    struct tb_version_key key;
    if (!region_record_decode(r, &key) || tb_arena_region_find(arena, &r->uid) != NULL) {
        record_damaged(rec, record, "region_record");
        return TB_OK;
    }
    struct tb_arena_region *region = tb_arena_region_alloc(arena, &key);
    if (region == NULL) return TB_SITE_NOMEM;
    region->record = record;
    region->made = r->region.made;
    tb_arena_region_link(region);
    return TB_OK;
}

/* The digests that were complete when the process died must still hash to the root, and
 * nothing may be held before. */
static const char *recover_digests(struct arena_shard *s, const struct arena_record *r, const uint8_t *base)
{
    if (r->digests_done == 0)
        return tb_bitmap_popcount(s->place.held, s->manifest.chunk_count) == 0 ? NULL
                                                                               : "held_without_digests";
    if (r->digests_done != ARENA_USED) return "digests_flag";
    memcpy(s->manifest.digests, base + s->plan.digests,
           s->manifest.chunk_count * sizeof *s->manifest.digests);
    const struct tb_digest root = tb_manifest_root(&s->manifest);
    if (!tb_digest_equal(&root, &s->manifest.root)) return "digests";
    s->is_ready = 1;
    return NULL;
}

/* Damaged ones are as good as none: they are made or asked for again. */
static void recover_proofs(struct arena_shard *s, const struct arena_record *r, const uint8_t *base)
{
    const struct tb_blake3 *proofs = (const void *)(base + s->plan.proofs);
    const uint32_t count = s->manifest.chunk_count;
    if (s->plan.proofs == 0 || r->spare == 0 || r->spare != tb_arena_proofs_check(proofs, count)) return;
    for (uint32_t k = 0; k < count; k++)
        tb_manifest_set_proof(&s->manifest, k, &proofs[k]);
}

/* Another process landed the chunks that are held now: each is to be digested before it may be a
 * base. */
static enum tb_status mark_suspect(struct arena_shard *s)
{
    const uint64_t words = TB_BITMAP_WORDS(s->manifest.chunk_count);
    TB_ASSERT(s->has_space && s->suspect == NULL);
    s->suspects = tb_place_held_count(&s->place);
    if (s->suspects == 0) return TB_OK;
    s->suspect = tb_calloc(words, sizeof *s->suspect);
    if (s->suspect == NULL) return TB_SITE_NOMEM;
    tb_bitmap_copy(s->suspect, s->place.held, s->manifest.chunk_count);
    return TB_OK;
}

/* The manifest from its head in the extent. *what_out says what does not fit. */
static enum tb_status recover_manifest(struct tb_layouts *layouts, struct arena_shard *s,
                                       const struct arena_record *r, const uint8_t *base,
                                       const char **what_out)
{
    *what_out = NULL;
    const enum tb_status status = tb_layouts_decode(layouts, base + s->plan.head, r->shard.head_bytes,
                                                    &s->manifest_memory, &s->manifest);
    if (status == TB_SITE_NOMEM) return status;
    if (status != TB_OK || s->manifest.bytes != r->shard.packed_bytes ||
        s->manifest.chunk_count != r->shard.chunk_count)
        *what_out = "manifest_head";
    return TB_OK;
}

/* A shard whose numbers are sound and whose extent is its own. *what_out says what of its
 * contents does not fit. */
static enum tb_status recover_contents(struct tb_arena_region *region, struct arena_shard *s,
                                       const struct arena_record *r, const char **what_out)
{
    const uint8_t *base = region->arena->file.map + s->extent.offset;
    enum tb_status status = recover_manifest(region->arena->layouts, s, r, base, what_out);
    if (status != TB_OK || *what_out != NULL) return status;
    status = tb_arena_shard_attach(region, s);
    if (status != TB_OK) return status;
    if (!tb_bitmap_tail_clear(s->place.held, s->manifest.chunk_count)) {
        *what_out = "held_tail";
        return TB_OK;
    }
    *what_out = recover_digests(s, r, base);
    if (*what_out != NULL) return TB_OK;
    recover_proofs(s, r, base);
    s->has_space = 1;
    return mark_suspect(s);
}

static const char *claim_extent(struct tb_arena_region *region, const struct arena_record *r, uint32_t record)
{
    if (r->shard.shard >= region->key.shard_count) return "shard_number";
    struct arena_shard *s = &region->shards[r->shard.shard];
    if (s->record != ARENA_NO_RECORD) return "shard_twice";
    if (!tb_arena_extent_plan(&r->shard, &s->plan) || s->plan.total != r->shard.bytes) return "extent_size";
    const struct tb_extent extent = {r->shard.offset, r->shard.bytes};
    if (tb_extents_take_at(&region->arena->extents, extent) != TB_OK) return "extent_overlaps";
    s->extent = extent;
    s->record = record;
    return NULL;
}

static enum tb_status recover_shard(struct recovery *rec, uint32_t record)
{
    struct tb_arena *arena = rec->arena;
    struct arena_record *r = &arena->file.records[record];
    struct tb_arena_region *region = tb_arena_region_find(arena, &r->uid);
    if (region == NULL) { /* half made or half freed by a killed process */
        tb_arena_record_use(r, ARENA_FREE);
        return TB_OK;
    }
    if (tb_arena_file_cuts(&arena->file, &r->shard, rec->error_out)) return TB_SITE_CONFIG;
    const char *what = claim_extent(region, r, record);
    if (what != NULL) {
        record_damaged(rec, record, what);
        region->damaged = true;
        return TB_OK;
    }
    const enum tb_status status = recover_contents(region, &region->shards[r->shard.shard], r, &what);
    if (what != NULL) {
        note_damage(rec, &r->uid, record, what);
        region->damaged = true;
    }
    return status;
}

typedef enum tb_status (*recover_fn)(struct recovery *rec, uint32_t record);

static enum tb_status recover_each(struct recovery *rec, uint32_t kind, recover_fn fn)
{
    for (uint32_t i = 0; i < rec->arena->file.header.record_count; i++) {
        const struct arena_record *r = &rec->arena->file.records[i];
        if (tb_arena_record_used(r) != ARENA_USED || r->kind != kind) continue;
        const enum tb_status status = fn(rec, i);
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

static void collect_slots(struct tb_arena *arena)
{
    arena->slots_free = 0;
    for (uint32_t i = arena->file.header.record_count; i-- > 0;)
        if (tb_arena_record_used(&arena->file.records[i]) == ARENA_FREE)
            arena->slots[arena->slots_free++] = i;
}

static void drop_damaged(struct tb_arena *arena)
{
    struct tb_arena_region *next = NULL;
    for (struct tb_arena_region *region = arena->first; region != NULL; region = next) {
        next = region->next;
        if (region->damaged) tb_arena_region_drop(region);
    }
}

/* A kind that is neither has a check that fits only if we wrote it: our own mistake, or a later
 * format. */
static void drop_unknown_kinds(struct recovery *rec)
{
    for (uint32_t i = 0; i < rec->arena->file.header.record_count; i++) {
        const struct arena_record *r = &rec->arena->file.records[i];
        if (tb_arena_record_used(r) == ARENA_USED && r->kind != ARENA_REGION && r->kind != ARENA_SHARD)
            record_damaged(rec, i, "record_kind");
    }
}

enum tb_status tb_arena_recover(struct tb_arena *arena, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct recovery rec = {.arena = arena, .error_out = error_out};
    check_records(&rec);
    drop_unknown_kinds(&rec);
    enum tb_status status = recover_each(&rec, ARENA_REGION, recover_region);
    if (status == TB_OK) status = recover_each(&rec, ARENA_SHARD, recover_shard);
    if (status == TB_SITE_NOMEM) tb_arena_say(error_out, "arena: no heap to recover its regions");
    if (status != TB_OK) return status;
    collect_slots(arena);
    drop_damaged(arena);
    tb_arena_tables_check(arena);
    return TB_OK;
}

/* A shard without its region was half made or half freed. */
static bool has_region(const struct arena_file *f, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < f->header.record_count; i++) {
        const struct arena_record *r = &f->records[i];
        struct tb_version_key key;
        if (!tb_id_equal(&r->uid, uid) || !is_sound(r, ARENA_REGION)) continue;
        if (region_record_decode(r, &key)) return true;
    }
    return false;
}

enum tb_status tb_arena_recover_check(const struct arena_file *f, char error_out[TB_ARENA_ERROR_BYTES])
{
    for (uint32_t i = 0; i < f->header.record_count; i++) {
        const struct arena_record *r = &f->records[i];
        if (!is_sound(r, ARENA_SHARD) || !tb_arena_file_cuts(f, &r->shard, error_out)) continue;
        if (has_region(f, &r->uid)) return TB_SITE_CONFIG;
    }
    error_out[0] = '\0';
    return TB_OK;
}

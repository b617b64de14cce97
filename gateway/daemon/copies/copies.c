/* copies.c - this gateway's copy of each version: its region in the arena, who may read
 * it, and giving it back. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_verify.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/anchors.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_shelf.h"
#include "gateway/daemon/copies/copy_sweep.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/copies/shelves.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/source_descriptor.h"
#include "wan/send/encoded_chunks.h"

/* ---- serving ---- */

/* Two buffers a shard: its held bitmap, its packed bytes. */
static enum tb_status source_build(struct tb_copy *copy, struct tb_export_buffer *buffers,
                                   struct tb_source_shard *shards)
{
    TB_ASSERT(copy->source == NULL && tb_arena_region_complete(copy->region));
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        const struct tb_place *p = tb_arena_place(copy->region, s);
        const uint32_t chunks = p->manifest->chunk_count;
        buffers[2 * s] = (struct tb_export_buffer){
            .bytes = p->held, .count = TB_BITMAP_WORDS(chunks) * sizeof(uint64_t), .memfd = -1};
        buffers[2 * s + 1] =
            (struct tb_export_buffer){.bytes = p->bytes, .count = p->manifest->bytes, .memfd = -1};
        shards[s] = (struct tb_source_shard){.shard = s, .held_buffer = 2 * s, .packed_buffer = 2 * s + 1};
    }
    copy->source_bytes = (uint32_t)tb_source_encoded_bytes(shards, copy->key.shard_count);
    copy->source = tb_malloc(copy->source_bytes);
    if (copy->source == NULL) return TB_SITE_NOMEM;
    struct tb_writer w;
    tb_writer_init(&w, copy->source, copy->source_bytes);
    tb_source_encode(shards, copy->key.shard_count, &w);
    return TB_OK;
}

static enum tb_status export_with(struct tb_copy *copy, struct tb_export_buffer *buffers)
{
    struct tb_daemon *d = copy->d;
    const uint32_t count = copy->key.shard_count;
    const struct tb_shelf_at shelf = {.buffer = 2 * count};
    const bool has_shelf = tb_copy_shelf_make(copy, &buffers[2 * count]);
    const struct tb_export_options options = {.export_id = ++d->next_export_id,
                                              .buffers = buffers,
                                              .buffer_count = 2 * count + has_shelf,
                                              .shelf = has_shelf ? &shelf : NULL};
    const enum tb_status status = tb_export_open(d->fabric, &options);
    if (status != TB_OK) {
        tb_copy_shelf_end(copy);
        return status;
    }
    copy->export_id = options.export_id;
    tb_copy_shelf_begin(copy);
    return TB_OK;
}

static enum tb_status export_open(struct tb_copy *copy)
{
    const uint32_t count = copy->key.shard_count;
    TB_ASSERT(copy->export_id == 0 && !tb_copy_leaves(copy));
    enum tb_status status = TB_SITE_NOMEM;
    struct tb_export_buffer *buffers = tb_calloc(2 * (size_t)count + 1, sizeof *buffers);
    if (buffers == NULL) return status;
    struct tb_source_shard *shards = tb_calloc(count, sizeof *shards);
    if (shards == NULL) goto undo_buffers;
    status = source_build(copy, buffers, shards);
    if (status != TB_OK) goto undo_shards;
    status = export_with(copy, buffers);
    if (status == TB_OK) goto undo_shards; /* its source stays */
    tb_free(copy->source);
    copy->source = NULL;

undo_shards:
    tb_free(shards);
undo_buffers:
    tb_free(buffers);
    return status;
}

void tb_copy_serve(struct tb_copy *copy)
{
    if (!tb_copy_is_ready(copy) || tb_copy_leaves(copy) || copy->region == NULL ||
        !tb_arena_region_complete(copy->region))
        return;
    if (!tb_digest_equal(&tb_arena_region_key(copy->region)->root, &copy->key.root) &&
        tb_arena_region_set_root(copy->region, &copy->key.root) != TB_OK) {
        tb_log(TB_LOG_ERROR, "copy.root_conflict", "model=%s number=%llu action=not_served",
               copy->key.model.text, (unsigned long long)copy->key.number);
        return;
    }
    if (copy->export_id == 0) {
        const enum tb_status status = export_open(copy);
        if (status != TB_OK) {
            tb_log(TB_LOG_ERROR, "copy.export_failed", "model=%s number=%llu status=%s", copy->key.model.text,
                   (unsigned long long)copy->key.number, tb_status_name(status));
        }
    }
    tb_copy_serving_step(&copy->serving, TB_COPY_SERVES);
    tb_daemon_wake(copy->d);
}

/* ---- giving back ---- */

/* The last step, once no hop, reader or stream touches the bytes; true when the copy is gone. */
static bool evict_finish(struct tb_copy *copy)
{
    if (!tb_copy_leaves(copy) || copy->evict_waits != 0) return false;
    struct tb_daemon *d = copy->d;
    if (d->links_restarting)
        return false; /* P1: until they are closed their streams touch what was offered, and land */
    if ((copy->used_by & TB_COPY_USED_BY_LANDING) != 0) return false; /* the dispatcher ends that */
    TB_ASSERT(copy->hops == NULL && copy->export_id == 0); /* P1: nobody begins to touch its bytes */
    if (copy->region != NULL && tb_arena_free(copy->region) != TB_OK)
        return false; /* pinned: the tick tries again */
    const struct tb_id uid = copy->key.uid;
    const bool gone = copy->evict_why != TB_SUPERSEDED, had_room = copy->region != NULL;
    tb_copy_free(copy);
    if (gone && d->encoded_chunks != NULL) tb_encoded_chunks_drop(d->encoded_chunks, &uid);
    d->counters.evictions += had_room;
    TB_MOOT(tb_catalog_evicted(d->catalog, tb_clock_now(), &uid));
    d->room_freed = true;
    tb_daemon_wake(d);
    return true;
}

static void evict_step_done(void *user)
{
    struct tb_copy *copy = user;
    TB_ASSERT(tb_copy_leaves(copy) && copy->evict_waits > 0);
    copy->evict_waits--;
    (void)evict_finish(copy);
}

static void leave(struct tb_copy *copy)
{
    tb_copy_life_step(&copy->life, TB_COPY_IS_EVICTED);
    tb_copy_serving_step(&copy->serving, TB_COPY_IS_RETRACTED);
}

void tb_copy_evict(struct tb_copy *copy, enum tb_status why)
{
    struct tb_daemon *d = copy->d;
    if (tb_copy_leaves(copy)) return;
    leave(copy);
    copy->evict_why = why != TB_OK ? why : TB_SUPERSEDED;
    tb_log(TB_LOG_INFO, "copy.evict", "model=%s run=%llu number=%llu why=%s", copy->key.model.text,
           (unsigned long long)copy->key.run_order, (unsigned long long)copy->key.number,
           why != TB_OK ? tb_status_name(why) : "retention");
    tb_daemon_wake(d); /* hops that decode from it begin again without */
    tb_home_landing_stop(copy);
    if (copy->export_id != 0) tb_export_close(d->fabric, copy->export_id, 0);
    copy->export_id = 0;
    tb_copy_shelf_end(copy);
    if (d->links == NULL || d->links_restarting) return; /* the tick finishes, once no stream touches it */
    copy->evict_waits = 2;
    if (tb_links_retract(d->links, &copy->key.uid, copy->evict_why, evict_step_done, copy) != TB_OK) {
        copy->evict_waits--;
    }
    if (tb_links_land_stop(d->links, &copy->key.uid, evict_step_done, copy) != TB_OK) copy->evict_waits--;
}

/* P7: the catalog evicts versions that have a place in the arena. The manifests of this one never
 * came, or found no room. The tick frees it: a caller may hold a pointer to it. */
void tb_copy_ended(struct tb_copy *copy, enum tb_status why)
{
    if (copy->region != NULL || tb_copy_leaves(copy)) return;
    leave(copy);
    copy->evict_why = why;
    tb_home_landing_stop(copy);
}

/* ---- after a restart ---- */

static bool restore_known(struct tb_daemon *d, const struct tb_version_key *key)
{
    static const struct tb_digest zero;
    const bool was_ready = !tb_digest_equal(&key->root, &zero);
    struct tb_catalog_version_view view;
    if (tb_catalog_version_get(d->catalog, &key->uid, &view) && (view.state != TB_VERSION_OPEN || !was_ready))
        return true;
    /* The store lost it, or that it was ready (or is younger): the arena is believed
     * if it was ready there. */
    if (!was_ready) return false;
    return tb_catalog_restore_version(d->catalog, key, TB_VERSION_READY, 0, false) == TB_OK;
}

static void restore_shards(struct tb_copy *copy)
{
    TB_ASSERT(copy->region != NULL);
    struct tb_daemon *d = copy->d;
    const tb_time_ns now = tb_clock_now();
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        const struct tb_place *p = tb_arena_place(copy->region, s);
        if (p == NULL || !tb_arena_place_ready(copy->region, s)) continue;
        const struct tb_catalog_shard info = {p->manifest->root, p->manifest->layout.id,
                                              p->manifest->chunk_count, p->manifest->bytes,
                                              tb_manifest_decoded_bytes(p->manifest)};
        if (tb_catalog_arena_shard(d->catalog, now, &copy->key.uid, s, &info) != TB_OK) continue;
        TB_MOOT(tb_catalog_arena_progress(d->catalog, now, &copy->key.uid, s, tb_place_held_count(p)));
    }
}

/* The catalog knows the version from the store; an ended one leaves the arena by the catalog's
 * EVICT. */
static bool restore_copy(struct tb_daemon *d, struct tb_arena_region *region)
{
    const struct tb_version_key *key = tb_arena_region_key(region);
    if (!restore_known(d, key)) return false;
    struct tb_copy *copy = tb_copy_get(d, key);
    if (copy == NULL) return false;
    TB_ASSERT(copy->region == NULL && copy->life == TB_COPY_RESTS); /* one region has that uid */
    copy->region = region;
    copy->landing_at = tb_clock_now();
    copy->opened_wall_ms = 0;
    if (tb_catalog_arena_reserved(d->catalog, tb_clock_now(), &key->uid) != TB_OK) {
        tb_copy_free(copy);
        return false;
    }
    restore_shards(copy);
    tb_lag_landing_look(&copy->moves.landing, tb_copy_held_bytes(copy), 0);
    struct tb_catalog_version_view view;
    const bool known = tb_catalog_version_get(d->catalog, &key->uid, &view);
    if (known && (view.state == TB_VERSION_READY || view.state == TB_VERSION_KEPT)) {
        tb_copy_serving_step(&copy->serving, TB_COPY_IS_READY);
        copy->key = view.key;
    }
    if (!tb_arena_region_whole(region)) return true;
    tb_copy_life_step(&copy->life, TB_COPY_FILLS);
    copy->whole_at = copy->landing_at;
    tb_anchors_whole(d, &copy->key);
    return true;
}

void tb_copies_restore(struct tb_daemon *d)
{
    TB_ASSERT(d->copies == NULL);
    uint32_t kept = 0, dropped = 0;
    for (struct tb_arena_region *r = tb_arena_region_next(d->arena, NULL), *next; r != NULL; r = next) {
        next = tb_arena_region_next(d->arena, r);
        if (restore_copy(d, r)) {
            kept++;
            continue;
        }
        dropped++;
        if (tb_arena_free(r) != TB_OK) d->fault = true; /* nobody can have pinned it yet */
    }
    /* Incarnation 1: the store is new. With nothing in the arena either, nobody can have been
     * here. */
    if (d->incarnation == 1 && kept + dropped == 0) tb_catalog_first_start(d->catalog, tb_clock_now());
    struct tb_arena_budget budget;
    tb_arena_budget(d->arena, &budget);
    tb_log(TB_LOG_INFO, "arena.open", "regions=%u dropped=%u used_bytes=%llu total_bytes=%llu", kept, dropped,
           (unsigned long long)budget.used_bytes, (unsigned long long)budget.total_bytes);
}

/* ---- the tick ---- */

static void shard_progress(void *user, uint32_t shard, uint32_t held_chunks)
{
    struct tb_copy *copy = user;
    TB_MOOT(tb_catalog_arena_progress(copy->d->catalog, tb_clock_now(), &copy->key.uid, shard, held_chunks));
}

/* Its damaged chunks were fetched again, all of them. */
static void copy_repaired(struct tb_copy *copy, tb_time_ns now)
{
    if (copy->rotted == 0) return;
    copy->d->counters.chunks_repaired += copy->rotted;
    tb_log(TB_LOG_INFO, "copy.repaired", "place=arena model=%s run=%llu number=%llu chunks=%u after_ms=%llu",
           copy->key.model.text, (unsigned long long)copy->key.run_order,
           (unsigned long long)copy->key.number, copy->rotted,
           (unsigned long long)(tb_time_since(copy->rotted_at, now) / TB_MS(1)));
    copy->rotted = 0;
}

/* A copy is whole here once the catalog was told so: nothing tells the catalog of it later. */
static void copy_progress(struct tb_copy *copy, tb_time_ns now)
{
    TB_ASSERT(copy->region != NULL && !tb_copy_is_whole(copy) && !tb_copy_leaves(copy));
    if (!tb_arena_region_tell(copy->region, shard_progress, copy)) return;
    tb_copy_life_step(&copy->life, TB_COPY_FILLS);
    copy->whole_at = now;
    tb_arena_prover_due(copy->d);
    tb_home_landing_done(copy);
    tb_anchors_whole(copy->d, &copy->key);
    copy_repaired(copy, now);
    tb_log(TB_LOG_INFO, "copy.whole", "model=%s run=%llu number=%llu bytes=%llu after_ms=%llu",
           copy->key.model.text, (unsigned long long)copy->key.run_order,
           (unsigned long long)copy->key.number, (unsigned long long)tb_copy_held_bytes(copy),
           (unsigned long long)(tb_time_since(copy->seen_at, now) / TB_MS(1)));
}

void tb_copies_look(struct tb_daemon *d)
{
    const tb_time_ns now = tb_clock_now();
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        if (!tb_copy_is_whole(c) && !tb_copy_leaves(c) && c->region != NULL) copy_progress(c, now);
}

/* The catalog hears of a shard only if a chunk of it was damaged. A chunk that has not landed
 * yet is no damage. The catalog waits for a holder that lost chunks, where others may have read
 * them. */
static void copy_rotted(struct tb_copy *c)
{
    uint32_t chunks = 0;
    for (uint32_t s = 0; c->region != NULL && s < c->key.shard_count; s++) {
        const uint32_t of_shard = tb_arena_place_rotted(c->region, s);
        if (of_shard == 0) continue;
        chunks += of_shard;
        const uint32_t held = tb_place_held_count(tb_arena_place(c->region, s));
        if (tb_catalog_arena_shrunk(c->d->catalog, tb_clock_now(), &c->key.uid, s, held) == TB_OK)
            tb_copy_life_step(&c->life, TB_COPY_SHRINKS); /* until the tick has told that it is again */
    }
    if (chunks == 0) return;
    if (chunks > c->swept_untold) tb_copy_sweep_begin(c);
    c->swept_untold = 0;
    tb_anchors_rotted(c->d, &c->key);
    if (c->rotted == 0) c->rotted_at = tb_clock_now();
    c->rotted += chunks;
    if (!tb_copy_is_whole(c)) tb_home_landing_anew(c, tb_clock_now());
}

void tb_copies_rotted(struct tb_daemon *d)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        copy_rotted(c);
}

/* The catalog spares a base while a crossing rests on it, and a version that is being written to a
 * disk. */
static void copy_base(struct tb_copy *copy, tb_time_ns now)
{
    struct tb_daemon *d = copy->d;
    const bool linked =
        d->links != NULL && !d->links_restarting && tb_links_base_used(d->links, &copy->key.uid);
    const bool used = linked || copy->used_by != 0;
    if (used == copy->base) return;
    copy->base = used;
    TB_MOOT(tb_catalog_base(d->catalog, now, &copy->key.uid, used));
}

/* Before anything is told or asked for which the catalog may evict: a base of the last
 * tick is not one of now. */
static void copies_bases(struct tb_daemon *d, tb_time_ns now)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        copy_base(c, now);
}

bool tb_copies_tick(struct tb_daemon *d)
{
    const tb_time_ns now = tb_clock_now();
    bool busy = false;
    copies_bases(d, now);
    for (struct tb_copy *c = d->copies, *next; c != NULL; c = next) {
        next = c->next;
        if (tb_copy_leaves(c)) {
            (void)evict_finish(c);
            busy = true; /* one that waits for its streams holds up no other (P6) */
            continue;
        }
        if (tb_copy_is_whole(c) || c->region == NULL) continue;
        busy = true;
        copy_progress(c, now);
        if (!tb_copy_is_whole(c)) tb_home_landing_retry(c, now);
    }
    return busy;
}

enum tb_status tb_copies_make_room(struct tb_daemon *d, uint64_t bytes, struct tb_catalog_room *room_out)
{
    const tb_time_ns now = tb_clock_now();
    struct tb_arena_budget budget;
    copies_bases(d, now);
    tb_arena_budget(d->arena, &budget);
    const uint64_t lacking = bytes > budget.largest_free_bytes ? bytes - budget.largest_free_bytes : 1;
    return tb_catalog_make_room(d->catalog, now, lacking, room_out);
}

void tb_copies_free(struct tb_daemon *d)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        tb_home_landing_stop(c);
    while (d->copies != NULL) {
        struct tb_copy *copy = d->copies;
        if (copy->export_id != 0) tb_export_close(d->fabric, copy->export_id, 0);
        copy->export_id = 0;
        tb_copy_shelf_end(copy);
        tb_copy_free(copy);
    }
    TB_ASSERT(d->copies_used.used == 0);
    tb_shelves_close(d->shelves);
    d->shelves = NULL;
}

/* arena_copy.c - the gateway's own copy of a version: what the arena says of it, and what
 * leaves. */
#include "gateway/catalog/arena_copy.h"

#include "base/assert.h"
#include "base/layout/chunk_cut.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/plans.h"
#include "gateway/catalog/rules/retention.h"
#include "gateway/catalog/rules/settle.h"

static void refresh_whole(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    const bool whole =
        tb_version_reserved(v) && v->known_count == v->key.shard_count && v->held_chunks == v->chunk_count;
    if (whole == v->whole) return;
    v->whole = whole;
    if (whole && v->whole_at == 0) v->whole_at = c->now;
}

static bool shard_plausible(const struct tb_catalog_shard *info)
{
    return info->bytes <= TB_SHARD_BYTES_MAX && info->chunk_count <= TB_CHUNKS_MAX;
}

static void learn_shard(struct version *v, uint32_t shard, const struct tb_catalog_shard *info)
{
    TB_ASSERT(!v->shards[shard].known && v->known_count < v->key.shard_count);
    v->shards[shard].info = *info;
    v->shards[shard].known = true;
    v->known_count++;
    v->bytes += info->bytes;
    v->chunk_count += info->chunk_count;
}

enum tb_status tb_catalog_arena_shard(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                      uint32_t shard, const struct tb_catalog_shard *info)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    if (shard >= v->key.shard_count || !shard_plausible(info)) return TB_BAD_ARGUMENT;
    if (v->shards[shard].known)
        return tb_digest_equal(&v->shards[shard].info.root, &info->root) ? TB_DONE_BEFORE : TB_CONFLICT;
    if (info->chunk_count > UINT32_MAX - v->chunk_count) return TB_TOO_LARGE;
    /* A restored row remembers a size; the sizes of its shards replace it. */
    if (v->known_count == 0) v->bytes = 0;
    learn_shard(v, shard, info);
    refresh_whole(c, i);
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_arena_reserved(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    if (tb_version_reserved(v)) return TB_DONE_BEFORE;
    tb_version_copy_moves(v, TB_VERSION_COPY_RESERVED);
    refresh_whole(c, i);
    if (tb_version_status(c, v) != TB_OK) tb_catalog_evict(c, i); /* it ended while the region was made */
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

static void set_shard_held(struct tb_catalog *c, uint32_t version, uint32_t shard, uint32_t held_chunks)
{
    struct version *v = version_at(c, version);
    struct shard *s = &v->shards[shard];
    const bool was_whole = tb_shard_whole(v, shard);
    v->held_chunks += held_chunks - s->held_chunks;
    s->held_chunks = held_chunks;
    TB_ASSERT(held_chunks <= s->info.chunk_count && v->held_chunks <= v->chunk_count);
    refresh_whole(c, version);
    if (tb_shard_whole(v, shard) != was_whole) tb_catalog_touch_version(c, version);
}

/* A request about a shard that is here, or is coming. */
static enum tb_status enter_shard(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                  uint32_t shard, uint32_t held_chunks, uint32_t *version_out)
{
    const struct version *v = tb_version_enter(c, now, uid, version_out);
    if (v == NULL) return TB_NOT_FOUND;
    if (shard >= v->key.shard_count) return TB_BAD_ARGUMENT;
    if (!tb_version_reserved(v) || !v->shards[shard].known) return TB_BAD_STATE;
    if (held_chunks > v->shards[shard].info.chunk_count) return TB_BAD_ARGUMENT;
    return TB_OK;
}

enum tb_status tb_catalog_arena_progress(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                         uint32_t shard, uint32_t held_chunks)
{
    uint32_t i;
    const enum tb_status found = enter_shard(c, now, uid, shard, held_chunks, &i);
    if (found != TB_OK) return found;
    struct version *v = version_at(c, i);
    if (held_chunks <= v->shards[shard].held_chunks) return TB_OK;
    v->moved_at = v->fed_at = c->now;
    set_shard_held(c, i, shard, held_chunks);
    tb_plan_arrival(c, i);
    if (tb_version_here(v)) tb_groups_touch(c, v->model);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_arena_came(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                     uint64_t bytes)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    if (bytes > v->came_bytes) v->came_at = c->now;
    v->came_bytes = bytes;
    return TB_OK;
}

enum tb_status tb_catalog_arena_shrunk(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                       uint32_t shard, uint32_t held_chunks)
{
    uint32_t i;
    const enum tb_status found = enter_shard(c, now, uid, shard, held_chunks, &i);
    if (found != TB_OK) return found;
    struct version *v = version_at(c, i);
    if (tb_shard_whole(v, shard) && held_chunks == v->shards[shard].held_chunks) return TB_DONE_BEFORE;
    if (held_chunks < v->shards[shard].held_chunks) set_shard_held(c, i, shard, held_chunks);
    tb_version_crossing_moves(v, TB_VERSION_CROSSING_SHRINKS);
    v->had_more = true;
    EACH_WORKER(c, version_at(c, i), r) reference_at(c, r)->was_asked = false;
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_evicted(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    if (!tb_version_leaves(v)) return TB_BAD_STATE;
    tb_version_forget_shards(v);
    tb_table_unmark(&c->versions, i, TB_CATALOG_EVICT);
    if (tb_version_lives(v)) {
        tb_version_moves(v, TB_VERSION_IS_EVICTED);
        v->why = "evicted";
        tb_table_mark(&c->versions, i, TB_CATALOG_PERSIST_VERSION);
        tb_groups_version_ended(c, i, TB_SUPERSEDED);
    }
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_base(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid, bool used)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    if (v->base == used) return TB_DONE_BEFORE;
    v->base = used;
    if (!used) tb_catalog_touch_model(c, v->model); /* it may go now */
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_make_room(struct tb_catalog *c, tb_time_ns now, uint64_t bytes_needed,
                                    struct tb_catalog_room *room_out)
{
    tb_catalog_enter(c, now);
    return tb_catalog_settle(c, tb_retention_make_room(c, bytes_needed, room_out));
}

/* arena_tables.c - what must hold of an arena's tables at any time between two calls. A mistake
 * of ours in one of them would otherwise show as a damaged version after some restart. */
#include "base/assert.h"
#include "gateway/arena/arena_inner.h"

#define SMALL_REGIONS 64u /* of more the check would cost more than the calls that it follows */

struct sums {
    uint64_t extent_bytes;
    uint32_t records;
    uint32_t regions;
};

static void check_shard(const struct arena_shard *s, struct sums *sums)
{
    const bool has_space = __atomic_load_n(&s->has_space, __ATOMIC_ACQUIRE) != 0;
    TB_ASSERT(has_space == (s->record != ARENA_NO_RECORD));
    if (!has_space) return;
    sums->records++;
    sums->extent_bytes += s->extent.bytes;
    TB_ASSERT(s->extent.bytes == s->plan.total && s->place.manifest == &s->manifest);
    TB_ASSERT((s->suspect == NULL) <= (s->suspects == 0));
    if (s->suspect == NULL) return;
    TB_ASSERT(tb_bitmap_popcount(s->suspect, s->manifest.chunk_count) == s->suspects);
}

static void check_region(struct tb_arena *arena, const struct tb_arena_region *region, struct sums *sums)
{
    TB_ASSERT(region->arena == arena && !region->damaged);
    TB_ASSERT(region->previous == NULL ? arena->first == region : region->previous->next == region);
    TB_ASSERT(region->previous == NULL || region->previous->made <= region->made);
    TB_ASSERT(tb_arena_region_find(arena, &region->key.uid) == region);
    TB_ASSERT(region->record != ARENA_NO_RECORD && region->made <= arena->made);
    sums->records++;
    sums->regions++;
    for (uint32_t i = 0; i < region->key.shard_count; i++)
        check_shard(&region->shards[i], sums);
}

static void check_all(struct tb_arena *arena)
{
    struct sums sums = {0};
    tb_extents_check(&arena->extents);
    for (const struct tb_arena_region *region = arena->first; region != NULL; region = region->next)
        check_region(arena, region, &sums);
    TB_ASSERT(sums.regions == arena->regions);
    TB_ASSERT(sums.records + arena->slots_free == arena->file.header.record_count);
    TB_ASSERT(sums.extent_bytes + arena->extents.free_bytes == arena->extents.all.bytes);
}

void tb_arena_tables_check(struct tb_arena *arena)
{
    if (TB_CHECK_TURNS && arena->regions <= SMALL_REGIONS) check_all(arena);
}

void tb_arena_assert_tables(struct tb_arena *arena)
{
    struct tb_layouts_counts layouts;
    pthread_mutex_lock(&arena->mutex);
    check_all(arena);
    pthread_mutex_unlock(&arena->mutex);
    tb_layouts_count(arena->layouts, &layouts); /* which checks them */
}

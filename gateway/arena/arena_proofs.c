/* arena_proofs.c - proofs in the manifests of regions, and in the file behind their held bits. */
#include "gateway/arena/arena_proofs.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/arena/arena_inner.h"
#include "gateway/arena/arena_regions.h"

void tb_arena_prove(struct tb_arena *arena, bool (*of)(void *user, const struct tb_name *model), void *user)
{
    TB_ASSERT(arena->proves == NULL && of != NULL);
    pthread_mutex_lock(&arena->mutex);
    arena->proves = of;
    arena->proves_user = user;
    for (struct tb_arena_region *region = arena->first; region != NULL; region = region->next)
        for (uint32_t s = 0; s < region->key.shard_count; s++)
            if (region->shards[s].has_space) tb_arena_shard_proves(region, &region->shards[s]);
    pthread_mutex_unlock(&arena->mutex);
}

bool tb_arena_prove_later(struct tb_arena *arena, bool later)
{
    TB_ASSERT(arena->proves == NULL);
    arena->proves_later = later;
    return true;
}

bool tb_arena_region_proven(const struct tb_arena_region *region)
{
    if (!tb_arena_region_complete(region)) return false;
    for (uint32_t s = 0; s < region->key.shard_count; s++)
        if (!tb_manifest_all_proven(&region->shards[s].manifest)) return false;
    return true;
}

uint64_t tb_arena_region_proven_bytes(const struct tb_arena_region *region)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < region->key.shard_count; s++) {
        if (!tb_arena_place_ready(region, s)) continue;
        const struct tb_manifest *m = &region->shards[s].manifest;
        for (uint32_t k = 0; k < m->chunk_count; k++)
            if (tb_bitmap_test(m->proven, k)) bytes += m->chunks[k].bytes;
    }
    return bytes;
}

struct tb_manifest *tb_arena_manifest(struct tb_arena_region *region, uint32_t shard)
{
    TB_ASSERT(shard < region->key.shard_count && tb_arena_place(region, shard) != NULL);
    return &region->shards[shard].manifest;
}

void tb_arena_proofs_keep(struct tb_arena_region *region)
{
    const struct tb_arena *arena = region->arena;
    for (uint32_t i = 0; i < region->key.shard_count; i++) {
        const struct arena_shard *s = &region->shards[i];
        if (!tb_arena_place_ready(region, i) || s->plan.proofs == 0) continue;
        struct arena_record *r = &arena->file.records[s->record];
        if (r->spare != 0 || !tb_manifest_all_proven(&s->manifest)) continue;
        uint8_t *proofs = arena->file.map + s->extent.offset + s->plan.proofs;
        memcpy(proofs, s->manifest.proofs, s->manifest.chunk_count * sizeof *s->manifest.proofs);
        __atomic_store_n(&r->spare, tb_arena_proofs_check(proofs, s->manifest.chunk_count), __ATOMIC_RELEASE);
    }
}

void tb_arena_proofs_drop(struct tb_arena_region *region)
{
    for (uint32_t i = 0; i < region->key.shard_count; i++) {
        struct arena_shard *s = &region->shards[i];
        if (!s->has_space) continue;
        region->arena->file.records[s->record].spare = 0;
        s->all_proven = false;
        memset(s->manifest.proven, 0, TB_BITMAP_WORDS(s->manifest.chunk_count) * sizeof *s->manifest.proven);
    }
}

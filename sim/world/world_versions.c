/* world_versions.c - what the trainer made: the oracle of every byte. */
#include <string.h>

#include "base/assert.h"
#include "base/layout/version_key.h"
#include "world.h"
#include "world_process.h"
#include "world_versions.h"

/* A step of the training: some chunks stay, some change in a few places, some all over. */
static void piece_step(struct piece *p, const struct piece *before)
{
    memcpy(p->bytes, before->bytes, p->manifest.bytes);
    for (uint32_t k = 0; k < p->manifest.chunk_count; k++) {
        uint32_t bytes;
        uint8_t *at = tb_place_chunk(&p->place, k, &bytes);
        const uint64_t way = world_random(3);
        for (uint32_t i = 0; way > 0 && i < bytes; i++)
            if (way == 2 || world_random(8) == 0) at[i] = (uint8_t)(at[i] + world_random(4));
    }
}

static void piece_begin(struct piece *p)
{
    for (uint32_t i = 0; i < p->manifest.bytes; i++)
        p->bytes[i] =
            (uint8_t)world_random(i % 3 == 0 ? 4 : 256); /* some of it can be encoded in fewer bytes */
}

/* One small tensor of each dtype: the cut closes a chunk where the dtype changes, so chunks are
 * small. */
static void piece_make(struct piece *p, const struct piece *before, uint32_t shard)
{
    static const char *const names[2][15] = {
        {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"},
        {"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O"}};
    struct tb_tensor tensors[15];
    struct tb_layout layout;
    _Alignas(16) uint8_t memory[8192];
    for (uint32_t i = 0; i < 15; i++) {
        const uint64_t count = 8 + i + shard;
        tensors[i] = (struct tb_tensor){.name = names[shard][i],
                                        .dtype = (enum tb_dtype)(i + 1),
                                        .rank = 1,
                                        .full = {count},
                                        .box_count = {count}};
    }
    enum tb_status status = tb_layout_build(tensors, 15, memory, sizeof memory, &layout);
    TB_ASSERT(status == TB_OK);
    status = tb_manifest_build(&layout, NULL, 0, p->memory, sizeof p->memory, &p->manifest);
    TB_ASSERT(status == TB_OK && p->manifest.chunk_count <= CHUNKS_MAX && p->manifest.bytes <= SHARD_BYTES);
    p->place = (struct tb_place){
        .manifest = &p->manifest, .bytes = p->bytes, .held = p->held, .claimed = p->claimed};
    p->held[0] = p->claimed[0] = 0;
    if (before != NULL)
        piece_step(p, before);
    else
        piece_begin(p);
    for (uint32_t k = 0; k < p->manifest.chunk_count; k++) {
        uint32_t bytes;
        const uint8_t *at = tb_place_chunk(&p->place, k, &bytes);
        p->manifest.digests[k] = tb_digest_of(at, bytes);
        (void)tb_bitmap_set(p->held, k);
    }
    p->manifest.root = tb_manifest_root(&p->manifest);
}

uint32_t world_version_before(uint32_t version)
{
    for (uint32_t v = version; v > 0; v--)
        if (the->versions[v - 1].model == the->versions[version].model) return v - 1;
    return NONE;
}

uint32_t world_version_last(uint32_t model)
{
    for (uint32_t v = the->version_count; v > 0; v--)
        if (the->versions[v - 1].model == model) return v - 1;
    return NONE;
}

uint32_t world_version_newer(uint32_t version)
{
    uint32_t newer = 0;
    for (uint32_t v = version + 1; v < the->version_count; v++)
        newer += the->versions[v].model == the->versions[version].model;
    return newer;
}

uint32_t world_version_count(uint32_t model)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < the->version_count; v++)
        count += the->versions[v].model == model;
    return count;
}

uint32_t world_version_make(uint32_t model)
{
    const uint32_t before = world_version_last(model);
    TB_ASSERT(the->version_count < VERSIONS_MAX);
    struct version *v = &the->versions[the->version_count];
    v->key = (struct tb_version_key){.shard_count = the->shard_count};
    v->shard_count = the->shard_count;
    v->model = model;
    for (uint32_t s = 0; s < v->shard_count; s++)
        piece_make(&v->shards[s], before != NONE ? &the->versions[before].shards[s] : NULL, s);
    return the->version_count++;
}

uint32_t world_version_find(const struct tb_id *uid)
{
    for (uint32_t v = 0; v < the->version_count; v++)
        if (!tb_id_is_zero(uid) && tb_id_equal(&the->versions[v].key.uid, uid)) return v;
    return NONE;
}

int world_version_compare(uint32_t a, uint32_t b)
{
    return tb_version_key_compare(&the->versions[a].key, &the->versions[b].key);
}

uint64_t world_version_all(uint32_t version, uint32_t shard)
{
    return the->versions[version].shards[shard].held[0];
}

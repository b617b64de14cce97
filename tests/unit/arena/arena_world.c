#include "arena_world.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "tests/unit/scratch.h"

uint64_t world_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void fill(uint64_t seed, uint8_t *out, uint64_t bytes)
{
    uint64_t x = seed * 0x9E3779B97F4A7C15u | 1;
    for (uint64_t i = 0; i < bytes; i++) {
        if (i % 8 == 0) world_random(&x);
        out[i] = (uint8_t)(x >> (i % 8 * 8));
    }
}

/* Bytes of a chunk depend on the chunk alone, so that one can be landed without the others. */
static uint64_t chunk_seed(const struct version *v, uint32_t shard, uint32_t k)
{
    return (v->seed << 20) + (shard << 10) + k + 1;
}

static void shard_make(struct version *v, uint32_t shard, uint64_t bytes)
{
    struct tb_layout layout;
    const struct tb_tensor tensor = {
        .name = "weights", .dtype = TB_DTYPE_U8, .rank = 1, .full = {bytes}, .box_count = {bytes}};
    const size_t layout_bytes = tb_layout_bytes_for(&tensor, 1);
    void *layout_memory = malloc(layout_bytes);
    assert_int_equal(tb_layout_build(&tensor, 1, layout_memory, layout_bytes, &layout), TB_OK);
    const size_t cap = tb_manifest_bytes_for(&layout, NULL, 0);
    v->memory[shard] = malloc(cap);
    struct tb_manifest *m = &v->manifests[shard];
    assert_int_equal(tb_manifest_build(&layout, NULL, 0, v->memory[shard], cap, m), TB_OK);
    free(layout_memory);
    for (uint32_t k = 0; k < m->chunk_count; k++) {
        uint8_t *chunk = malloc(m->chunks[k].bytes);
        fill(chunk_seed(v, shard, k), chunk, m->chunks[k].bytes);
        m->digests[k] = tb_digest_of(chunk, m->chunks[k].bytes);
        free(chunk);
    }
    m->root = tb_manifest_root(m);
    v->list[shard] = m;
}

void version_make(struct version *v, uint64_t seed, uint32_t shard_count, uint64_t shard_bytes)
{
    TB_ASSERT(shard_count <= WORLD_SHARDS_MAX);
    memset(v, 0, sizeof *v);
    v->seed = seed;
    v->key = (struct tb_version_key){.run_order = 1, .number = seed, .shard_count = shard_count};
    memcpy(v->key.uid.bytes, &seed, sizeof seed);
    v->key.uid.bytes[15] = 1;
    v->key.run.bytes[0] = 7;
    assert_int_equal(tb_name_set(&v->key.model, "policy"), TB_OK);
    for (uint32_t s = 0; s < shard_count; s++)
        shard_make(v, s, shard_bytes);
}

void version_fini(struct version *v)
{
    for (uint32_t s = 0; s < WORLD_SHARDS_MAX; s++)
        free(v->memory[s]);
}

void version_land(const struct version *v, struct tb_place *place, uint32_t shard, uint32_t k)
{
    uint32_t bytes = 0;
    if (!tb_place_claim(place, k)) return;
    uint8_t *at = tb_place_chunk(place, k, &bytes);
    fill(chunk_seed(v, shard, k), at, bytes);
    assert_int_equal(tb_place_finish(place, k), TB_OK);
}

void version_land_all(const struct version *v, struct tb_arena_region *region)
{
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        for (uint32_t k = 0; k < v->manifests[s].chunk_count; k++)
            version_land(v, tb_arena_place(region, s), s, k);
}

static char path[128];

const char *world_path(void)
{
    if (path[0] == '\0') {
        snprintf(path, sizeof path, "%s/arena", scratch_memory());
        tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    }
    unlink(path);
    return path;
}

struct tb_arena *world_open(const char *at, uint64_t bytes)
{
    char error[TB_ARENA_ERROR_BYTES];
    struct tb_arena *arena = NULL;
    const struct tb_arena_options options = {.path = at, .bytes = bytes};
    const enum tb_status status = tb_arena_open(&options, &arena, error);
    if (status != TB_OK) fail_msg("%s: %s", tb_status_name(status), error);
    return arena;
}

void world_file_read(const char *at, uint64_t offset, void *out, size_t count)
{
    const int fd = open(at, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, out, count, (off_t)offset), count);
    close(fd);
}

void world_file_write(const char *at, uint64_t offset, const void *bytes, size_t count)
{
    const int fd = open(at, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, count, (off_t)offset), count);
    close(fd);
}

/* arena_world.h - what the arena's tests share: a file in memory, versions whose
 * bytes follow from a seed. */
#ifndef TB_TEST_ARENA_WORLD_H
#define TB_TEST_ARENA_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"

#define WORLD_SHARDS_MAX 4

/* A made version: shard s has `bytes[s]` bytes of a stream that follows from (seed, s). */
struct version {
    struct tb_version_key key;
    struct tb_manifest manifests[WORLD_SHARDS_MAX];
    const struct tb_manifest *list[WORLD_SHARDS_MAX];
    void *memory[WORLD_SHARDS_MAX];
    uint64_t seed;
};

void version_make(struct version *v, uint64_t seed, uint32_t shard_count, uint64_t shard_bytes);
void version_fini(struct version *v);
/* Fills chunk k of the shard's place and finishes it. */
void version_land(const struct version *v, struct tb_place *place, uint32_t shard, uint32_t k);
void version_land_all(const struct version *v, struct tb_arena_region *region);

/* A path in memory: made once a process, removed at its end. */
const char *world_path(void);
/* Its size in bytes; a new open of a path that must succeed. */
struct tb_arena *world_open(const char *path, uint64_t bytes);
uint64_t world_random(uint64_t *seed);
/* Reads or changes the file behind the arena's back. */
void world_file_read(const char *path, uint64_t offset, void *out, size_t count);
void world_file_write(const char *path, uint64_t offset, const void *bytes, size_t count);

#endif

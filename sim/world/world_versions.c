/* world_versions.c - chance, ids, what the trainer made, and the oracle of its bytes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "world.h"

const char *const fault_names[FAULTS] = {
#define X(name, text) text,
    FAULT_LIST(X)
#undef X
};

uint64_t world_random(struct world *w, uint64_t below)
{
    uint64_t z = (w->random += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

bool world_chance(struct world *w, uint32_t in_thousand)
{
    return w->faulty && world_random(w, 1000) < in_thousand;
}

struct tb_id world_id(struct world *w)
{
    struct tb_id id = {{0}};
    const uint64_t n = ++w->ids;
    memcpy(id.bytes, &n, sizeof n);
    return id;
}

static void hash_line(struct world *w, const char *line)
{
    for (; *line != '\0'; line++)
        w->hash = (w->hash ^ (uint8_t)*line) * UINT64_C(0x100000001b3); /* FNV-1a */
}

void world_say(struct world *w, const char *format, ...)
{
    char line[256];
    va_list args;
    const int n = snprintf(line, sizeof line, "[%6llu] ", (unsigned long long)(w->now / TB_MS(1)));
    va_start(args, format);
    vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    hash_line(w, line);
    if (w->trace) puts(line);
}

void world_fail(struct world *w, const char *format, ...)
{
    va_list args;
    if (w->failed) return; /* the first is the cause */
    w->failed = true;
    va_start(args, format);
    vsnprintf(w->why, sizeof w->why, format, args);
    va_end(args);
    world_say(w, "FAILED: %s", w->why);
}

/* One small tensor of each dtype: the cut closes a chunk where the dtype changes, so chunks are small. */
void world_version_make(struct world *w, uint32_t version)
{
    struct version *v = &w->versions[version];
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                        "i", "j", "k", "l", "m", "n", "o"};
    struct tb_tensor tensors[15];
    struct tb_layout layout;
    _Alignas(16) uint8_t memory[8192];
    for (uint32_t i = 0; i < 15; i++) {
        const uint64_t count = 8 + i;
        tensors[i] = (struct tb_tensor){.name = names[i],
                                        .dtype = (enum tb_dtype)(i + 1),
                                        .rank = 1,
                                        .full = {count},
                                        .box_count = {count}};
    }
    enum tb_status status = tb_layout_build(tensors, 15, memory, sizeof memory, &layout);
    TB_ASSERT(status == TB_OK);
    status = tb_manifest_build(&layout, NULL, 0, v->memory, sizeof v->memory, &v->manifest);
    TB_ASSERT(status == TB_OK && v->manifest.chunk_count <= CHUNKS_MAX && v->manifest.bytes <= SHARD_BYTES);
    world_store_init(w, &v->rank, version);
    for (uint32_t i = 0; i < v->manifest.bytes; i++)
        v->rank.bytes[i] = (uint8_t)world_random(w, 256);
    for (uint32_t k = 0; k < v->manifest.chunk_count; k++) {
        uint32_t bytes;
        const uint8_t *at = tb_place_chunk(&v->rank.place, k, &bytes);
        v->manifest.digests[k] = tb_digest_of(at, bytes);
        tb_bitmap_set(v->rank.held, k);
    }
    v->manifest.root = tb_manifest_root(&v->manifest);
}

uint32_t world_version_find(const struct world *w, const struct tb_id *uid)
{
    uint32_t i = 0;
    while (i < w->published && !tb_id_equal(&w->versions[i].key.uid, uid))
        i++;
    return i < w->published ? i : VERSIONS_MAX;
}

void world_store_init(struct world *w, struct store *s, uint32_t version)
{
    memset(s, 0, sizeof *s);
    s->there = true;
    s->place = (struct tb_place){&w->versions[version].manifest, s->bytes, s->held, s->claimed};
}

/* P1: what is held is what the trainer sealed, compared byte by byte. */
void world_check_bytes(struct world *w, struct store *s, uint32_t version, const char *where)
{
    const struct version *v = &w->versions[version];
    const uint64_t held = s->held[0];
    for (uint32_t k = 0; s->there && held != s->seen && k < v->manifest.chunk_count; k++) {
        uint32_t bytes;
        if (!tb_place_held(&s->place, k)) continue;
        const uint8_t *at = tb_place_chunk(&s->place, k, &bytes);
        if (memcmp(at, tb_place_chunk(&v->rank.place, k, &bytes), bytes) != 0)
            world_fail(w, "P1: v%u chunk %u is held at %s and wrong", version + 1, k, where);
    }
    if (s->there && (s->seen & ~held) != 0)
        world_fail(w, "P3: v%u lost a held chunk at %s", version + 1, where);
    s->seen = held;
}

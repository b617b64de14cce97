#include "intra/client/patch.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/codec.h"
#include "base/fault.h"

enum chunk_state {
    LANDED, /* as it came, in its place; also before it came */
    CODED,  /* in `coded`, on what the buffers held */
    DONE,   /* the buffers hold it */
    FETCH,  /* they do not: it comes whole, and stays so */
};

struct chunk {
    uint8_t state;
    bool stayed; /* whole, in its place */
    struct tb_codec_form form;
    uint32_t bytes;
    uint8_t *coded;
};

struct shard {
    struct tb_patch *patch;
    struct tb_spread spread;
    const struct tb_manifest *manifest;
    uint8_t **memory;
    struct chunk *chunks;
    struct tb_place *place;
    uint64_t first; /* of its chunks in the line of all */
};

/* A codec and room for two chunks: one for each thread that works at the same time. */
struct tool {
    struct tool *next;
    struct tb_codec *codec;
    uint8_t *gathered, *made;
};

struct tb_patch {
    struct tb_patch_target *target;
    uint64_t rests_on; /* target->writes */
    struct shard *shards;
    uint32_t shard_count;
    uint64_t chunk_total;
    uint32_t chunk_bytes_max;
    size_t page_bytes;
    pthread_mutex_t lock; /* of `idle` */
    struct tool *idle;
    _Atomic uint64_t staged_bytes;
};

/* ---- tools ---- */

static void tool_free(struct tool *t)
{
    if (t == NULL) return;
    tb_codec_free(t->codec);
    tb_free(t->gathered);
    tb_free(t->made);
    tb_free(t);
}

static struct tool *tool_new(const struct tb_patch *patch)
{
    struct tool *t = tb_calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->gathered = tb_malloc(patch->chunk_bytes_max + 1u);
    t->made = tb_malloc(tb_codec_bound(TB_CODEC_SPARSE, patch->chunk_bytes_max) + 1u);
    if (t->gathered != NULL && t->made != NULL && tb_codec_new(&t->codec) == TB_OK) return t;
    t->codec = NULL;
    tool_free(t);
    return NULL;
}

/* NULL: no memory. */
static struct tool *tool_take(struct tb_patch *patch)
{
    pthread_mutex_lock(&patch->lock);
    struct tool *t = patch->idle;
    if (t != NULL) patch->idle = t->next;
    pthread_mutex_unlock(&patch->lock);
    return t != NULL ? t : tool_new(patch);
}

static void tool_give(struct tb_patch *patch, struct tool *t)
{
    pthread_mutex_lock(&patch->lock);
    t->next = patch->idle;
    patch->idle = t;
    pthread_mutex_unlock(&patch->lock);
}

/* ---- its life ---- */

void tb_patch_free(struct tb_patch *patch)
{
    if (patch == NULL) return;
    for (uint32_t i = 0; patch->shards != NULL && i < patch->shard_count; i++) {
        struct shard *sh = &patch->shards[i];
        for (uint32_t k = 0; sh->chunks != NULL && k < sh->manifest->chunk_count; k++)
            tb_free(sh->chunks[k].coded);
        tb_free(sh->chunks);
        tb_free(sh->memory);
    }
    while (patch->idle != NULL) {
        struct tool *t = patch->idle;
        patch->idle = t->next;
        tool_free(t);
    }
    tb_free(patch->shards);
    pthread_mutex_destroy(&patch->lock);
    tb_free(patch);
}

static enum tb_status shard_init(struct tb_patch *patch, struct shard *sh)
{
    sh->patch = patch;
    sh->spread = (struct tb_spread){.layout = &sh->manifest->layout, .tensors = sh->memory};
    sh->first = patch->chunk_total;
    patch->chunk_total += sh->manifest->chunk_count;
    for (uint32_t k = 0; k < sh->manifest->chunk_count; k++)
        if (sh->manifest->chunks[k].bytes > patch->chunk_bytes_max)
            patch->chunk_bytes_max = sh->manifest->chunks[k].bytes;
    sh->chunks = tb_calloc((size_t)sh->manifest->chunk_count + 1, sizeof *sh->chunks);
    return sh->chunks == NULL ? TB_SITE_NOMEM : TB_OK;
}

enum tb_status tb_patch_new(struct tb_patch_target *target, const struct tb_patch_shard_of *shards,
                            uint32_t count, struct tb_patch **patch_out)
{
    struct tb_patch *patch = tb_calloc(1, sizeof *patch);
    struct shard *table = tb_calloc((size_t)count + 1, sizeof *table);
    if (patch == NULL || table == NULL) {
        for (uint32_t i = 0; i < count; i++)
            tb_free(shards[i].memory);
        tb_free(table);
        tb_free(patch);
        return TB_SITE_NOMEM;
    }
    pthread_mutex_init(&patch->lock, NULL);
    patch->target = target;
    patch->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    patch->shards = table;
    patch->shard_count = count;
    for (uint32_t i = 0; i < count; i++) {
        table[i].manifest = shards[i].manifest;
        table[i].memory = shards[i].memory;
    }
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < count && status == TB_OK; i++)
        status = shard_init(patch, &table[i]);
    if (status != TB_OK) {
        tb_patch_free(patch);
        return status;
    }
    pthread_rwlock_rdlock(&target->lock);
    patch->rests_on = target->writes;
    pthread_rwlock_unlock(&target->lock);
    *patch_out = patch;
    return TB_OK;
}

uint8_t **tb_patch_memory(struct tb_patch *patch, uint32_t shard)
{
    return patch->shards[shard].memory;
}

uint64_t tb_patch_staged_bytes(const struct tb_patch *patch)
{
    return atomic_load(&patch->staged_bytes);
}

/* ---- as chunks land ---- */

/* Gives back the pages that are this chunk's alone. The bytes that stay. */
static uint64_t drop_pages(const struct tb_patch *patch, const struct tb_place *p, uint32_t k)
{
    uint32_t bytes = 0;
    const uintptr_t at = (uintptr_t)tb_place_chunk(p, k, &bytes);
    const uintptr_t first = (at + patch->page_bytes - 1) / patch->page_bytes * patch->page_bytes;
    const uintptr_t end = (at + bytes) / patch->page_bytes * patch->page_bytes;
    if (end <= first || madvise((void *)first, end - first, MADV_DONTNEED) != 0) return bytes;
    return bytes - (end - first);
}

/* False: it stays as it is. */
static bool encode(struct shard *sh, struct tool *t, const struct tb_place *p, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    uint32_t bytes = 0;
    const struct tb_codec_input in = {.bytes = tb_place_chunk(p, k, &bytes),
                                      .count = chunk->bytes,
                                      .dtype = tb_layout_dtype_at(&sh->manifest->layout, chunk->offset),
                                      .base = tb_spread_gather(&sh->spread, chunk, t->gathered)};
    const struct tb_codec_room room = {t->made, tb_codec_bound(TB_CODEC_SPARSE, chunk->bytes)};
    struct tb_codec_coded coded;
    if (tb_codec_encode(t->codec, (struct tb_codec_form){TB_CODEC_SPARSE, true}, &in, room, &coded) != TB_OK)
        return false;
    if (!coded.form.on_base) return false;
    struct chunk *c = &sh->chunks[k];
    c->coded = tb_malloc(coded.count + 1);
    if (c->coded == NULL) return false;
    memcpy(c->coded, coded.bytes, coded.count);
    c->bytes = (uint32_t)coded.count;
    c->form = coded.form;
    return true;
}

/* By place.h: before the chunk is held. What cannot be encoded stays whole, which costs memory and nothing else. */
static void landed(void *owner, const struct tb_place *p, uint32_t k)
{
    struct shard *sh = owner;
    struct tb_patch *patch = sh->patch;
    struct chunk *c = &sh->chunks[k];
    uint64_t kept = sh->manifest->chunks[k].bytes;
    if (c->state == LANDED && tb_spread_covers(&sh->spread, &sh->manifest->chunks[k])) {
        struct tool *t = tool_take(patch);
        pthread_rwlock_rdlock(&patch->target->lock);
        const bool good = !patch->target->gone && patch->target->writes == patch->rests_on;
        const bool coded = good && t != NULL && encode(sh, t, p, k);
        pthread_rwlock_unlock(&patch->target->lock);
        if (coded) {
            c->state = CODED;
            kept = c->bytes + drop_pages(patch, p, k);
        }
        if (t != NULL) tool_give(patch, t);
    }
    atomic_fetch_add(&patch->staged_bytes, kept);
}

void tb_patch_watch(struct tb_patch *patch, uint32_t shard, struct tb_place *place)
{
    patch->shards[shard].place = place;
    place->landed = landed;
    place->owner = &patch->shards[shard];
}

/* ---- the switch ---- */

struct applying {
    struct tb_patch *patch;
    _Atomic uint64_t copied_bytes, patched_bytes;
    _Atomic uint32_t failed;
    _Atomic int status;
};

static struct shard *shard_of(const struct tb_patch *patch, uint64_t line)
{
    uint32_t low = 0, high = patch->shard_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (patch->shards[middle].first <= line)
            low = middle;
        else
            high = middle;
    }
    return &patch->shards[low];
}

static bool holds(const struct shard *sh, uint32_t k)
{
    const struct tb_digest digest = tb_spread_digest(&sh->spread, &sh->manifest->chunks[k]);
    return tb_digest_equal(&digest, &sh->manifest->digests[k]);
}

static bool decode(struct applying *a, struct shard *sh, struct tool *t, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    const struct chunk *c = &sh->chunks[k];
    const struct tb_codec_coded coded = {c->form, c->coded, c->bytes};
    const struct tb_codec_output out = {t->made, chunk->bytes,
                                        tb_spread_gather(&sh->spread, chunk, t->gathered)};
    if (tb_codec_decode(t->codec, &coded, &out) != TB_OK) return false;
    atomic_fetch_add(&a->patched_bytes, tb_spread_scatter(&sh->spread, chunk, t->made));
    return holds(sh, k);
}

static bool copy(struct applying *a, struct shard *sh, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    uint32_t bytes = 0;
    const uint8_t *from = tb_place_chunk(sh->place, k, &bytes);
    atomic_fetch_add(&a->copied_bytes, tb_spread_scatter(&sh->spread, chunk, from));
    return !tb_spread_covers(&sh->spread, chunk) || holds(sh, k);
}

static void must_come(struct shard *sh, uint32_t k)
{
    struct chunk *c = &sh->chunks[k];
    tb_free(c->coded);
    c->coded = NULL;
    c->state = FETCH;
    (void)tb_bitmap_clear(sh->place->held, k);
}

static void apply(void *user, uint32_t piece, uint32_t slot)
{
    (void)slot;
    struct applying *a = user;
    struct shard *sh = shard_of(a->patch, piece);
    const uint32_t k = (uint32_t)(piece - sh->first);
    struct chunk *c = &sh->chunks[k];
    if (c->state == FETCH && !tb_place_held(sh->place, k)) {
        atomic_fetch_add(&a->failed, 1);
        return;
    }
    if (c->state == CODED) {
        struct tool *t = tool_take(a->patch);
        const bool good = t != NULL && decode(a, sh, t, k);
        if (t != NULL) tool_give(a->patch, t);
        if (!good) {
            must_come(sh, k);
            atomic_fetch_add(&a->failed, 1);
            return;
        }
        tb_free(c->coded);
        c->coded = NULL;
    } else if (c->state != DONE) {
        c->stayed = true;
        if (!copy(a, sh, k)) {
            atomic_store(&a->status, TB_CHUNK_DIGEST);
            return;
        }
    }
    c->state = DONE;
}

/* The buffers were written since: what was encoded on them, or stood in them, is void. */
static void forget(struct tb_patch *patch)
{
    for (uint32_t i = 0; i < patch->shard_count; i++) {
        struct shard *sh = &patch->shards[i];
        for (uint32_t k = 0; k < sh->manifest->chunk_count; k++) {
            struct chunk *c = &sh->chunks[k];
            if (c->state != CODED && c->state != DONE) continue;
            /* What stayed whole is still in its place. */
            if (c->state == DONE && c->stayed)
                c->state = LANDED;
            else
                must_come(sh, k);
        }
    }
}

enum tb_status tb_patch_apply(struct tb_patch *patch, struct tb_crew *crew,
                              struct tb_patch_result *result_out)
{
    struct applying a = {.patch = patch};
    pthread_rwlock_wrlock(&patch->target->lock);
    if (patch->target->writes != patch->rests_on) forget(patch);
    tb_crew_run(crew, (uint32_t)patch->chunk_total, apply, &a);
    patch->rests_on = ++patch->target->writes;
    pthread_rwlock_unlock(&patch->target->lock);
    *result_out = (struct tb_patch_result){.copied_bytes = atomic_load(&a.copied_bytes),
                                           .patched_bytes = atomic_load(&a.patched_bytes),
                                           .failed = atomic_load(&a.failed)};
    return (enum tb_status)atomic_load(&a.status);
}

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
    bool *on_device;
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
        tb_free(sh->on_device);
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
        for (uint32_t i = 0; i < count; i++) {
            tb_free(shards[i].memory);
            tb_free(shards[i].on_device);
        }
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
        table[i].on_device = shards[i].on_device;
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

bool *tb_patch_on_device(struct tb_patch *patch, uint32_t shard)
{
    return patch->shards[shard].on_device;
}

uint64_t tb_patch_staged_bytes(const struct tb_patch *patch)
{
    return atomic_load(&patch->staged_bytes);
}

/* ---- where a chunk stands; under the target's lock ---- */

enum side { ON_HOST, ON_DEVICE, ON_BOTH };

static enum side side_of(const struct shard *sh, const struct tb_chunk *chunk)
{
    const struct tb_layout *layout = &sh->manifest->layout;
    const uint64_t end = chunk->offset + chunk->bytes;
    if (sh->patch->target->gpu == NULL) return ON_HOST;
    bool host = end > layout->bytes, device = false;
    for (uint32_t i = tb_layout_tensor_at(layout, chunk->offset);
         i < layout->tensor_count && layout->tensors[i].offset < end; i++) {
        if (layout->tensors[i].bytes == 0) continue;
        device = device || sh->on_device[i];
        host = host || !sh->on_device[i];
    }
    if (!device) return ON_HOST;
    return host ? ON_BOTH : ON_DEVICE;
}

/* Its stretches that are here, one behind another; counted where `to` is NULL. */
static uint32_t pieces_of(const struct shard *sh, const struct tb_chunk *chunk, struct tb_gpu_piece *to)
{
    uint32_t tensor = tb_layout_tensor_at(&sh->manifest->layout, chunk->offset), count = 0;
    const uint64_t end = chunk->offset + chunk->bytes;
    for (uint64_t at = chunk->offset; at < end;) {
        const struct tb_stretch s = tb_spread_at(&sh->spread, at, end - at, &tensor);
        if (to != NULL) to[count] = (struct tb_gpu_piece){s.at, s.bytes};
        count++;
        at += s.bytes;
    }
    return count;
}

/* Between one range of ours and where the chunk stands, also on a device; what is not here is left out. The bytes moved, or a failure. */
static enum tb_status exchange(const struct shard *sh, const struct tb_chunk *chunk, uint8_t *whole,
                               bool to_tensors, uint64_t *bytes_out)
{
    const uint32_t count = pieces_of(sh, chunk, NULL);
    struct tb_gpu_piece *pieces = tb_calloc((size_t)count + 1, sizeof *pieces);
    struct tb_gpu_rows *moves = tb_calloc((size_t)count + 1, sizeof *moves);
    enum tb_status status = pieces == NULL || moves == NULL ? TB_SITE_NOMEM : TB_OK;
    *bytes_out = 0;
    if (status == TB_OK) {
        uint32_t n = 0;
        (void)pieces_of(sh, chunk, pieces);
        for (uint32_t i = 0; i < count; whole += pieces[i++].bytes) {
            if (pieces[i].at == NULL) continue;
            moves[n++].row = to_tensors ? (struct tb_gpu_move){pieces[i].at, whole, pieces[i].bytes}
                                        : (struct tb_gpu_move){whole, pieces[i].at, pieces[i].bytes};
            *bytes_out += pieces[i].bytes;
        }
        status = tb_gpu_move(sh->patch->target->gpu, moves, n);
    }
    tb_free(moves);
    tb_free(pieces);
    return status;
}

/* What stands there, as one range; NULL: the device refused, or there was no memory. */
static const uint8_t *gathered(const struct shard *sh, struct tool *t, const struct tb_chunk *chunk)
{
    uint64_t bytes;
    if (side_of(sh, chunk) == ON_HOST) return tb_spread_gather(&sh->spread, chunk, t->gathered);
    return exchange(sh, chunk, t->gathered, false, &bytes) == TB_OK ? t->gathered : NULL;
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

static bool keep(struct chunk *c, const struct tb_codec_coded *coded)
{
    uint8_t *copy = tb_malloc(coded->count + 1);
    if (copy == NULL) return false;
    memcpy(copy, coded->bytes, coded->count);
    c->coded = copy;
    c->bytes = (uint32_t)coded->count;
    c->form = coded->form;
    c->state = CODED;
    return true;
}

/* Of the target's lock one reader. */
static bool rests(const struct tb_patch *patch)
{
    return !patch->target->gone && patch->target->writes == patch->rests_on;
}

bool tb_patch_rests(const struct tb_patch *patch)
{
    /* Not to be had: somebody writes, and a step of the model may take seconds to write. */
    if (pthread_rwlock_tryrdlock(&patch->target->lock) != 0) return false;
    const bool yes = rests(patch);
    pthread_rwlock_unlock(&patch->target->lock);
    return yes;
}

/* False: it stays as it is. */
static bool encode(struct shard *sh, struct tool *t, const struct tb_place *p, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    const enum side side = side_of(sh, chunk);
    const bool on_device = side == ON_DEVICE;
    if (side == ON_BOTH || (on_device && !tb_gpu_may_patch(sh->patch->target->gpu))) return false;
    uint32_t bytes = 0;
    const struct tb_codec_input in = {.bytes = tb_place_chunk(p, k, &bytes),
                                      .count = chunk->bytes,
                                      .dtype = tb_layout_dtype_at(&sh->manifest->layout, chunk->offset),
                                      .base = gathered(sh, t, chunk)};
    if (in.base == NULL) return false;
    const struct tb_codec_room room = {t->made, tb_codec_bound(TB_CODEC_SPARSE, chunk->bytes)};
    struct tb_codec_coded coded;
    if (tb_codec_encode(t->codec, (struct tb_codec_form){TB_CODEC_SPARSE, true}, &in, room, &coded) != TB_OK)
        return false;
    if (!coded.form.on_base || (on_device && coded.form.id != TB_CODEC_SPARSE)) return false;
    return keep(&sh->chunks[k], &coded);
}

/* What comes of it when it is decoded on the buffers, which is looked at, and goes. */
static enum tb_status prove(struct shard *sh, struct tool *t, uint32_t k, const struct tb_codec_coded *coded)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    if (side_of(sh, chunk) != ON_HOST) return TB_CHUNK_CODEC;
    const struct tb_codec_output out = {t->made, chunk->bytes,
                                        tb_spread_gather(&sh->spread, chunk, t->gathered)};
    const enum tb_status status = tb_codec_decode(t->codec, coded, &out);
    if (status != TB_OK) return status;
    const struct tb_digest digest = tb_digest_of(out.bytes, out.count);
    return tb_digest_equal(&digest, &sh->manifest->digests[k]) ? TB_OK : TB_CHUNK_DIGEST;
}

/* Another object of a later source may be the right one: only what proves itself is kept. */
enum tb_status tb_patch_take(void *user, uint32_t shard, uint32_t k, const struct tb_codec_coded *coded)
{
    struct tb_patch *patch = user;
    struct shard *sh = &patch->shards[shard];
    struct chunk *c = &sh->chunks[k];
    if (c->state != LANDED || !tb_spread_covers(&sh->spread, &sh->manifest->chunks[k])) return TB_CHUNK_CODEC;
    struct tool *t = tool_take(patch);
    if (t == NULL) return TB_CHUNK_CODEC; /* it comes whole, and is as large */
    pthread_rwlock_rdlock(&patch->target->lock);
    enum tb_status status = rests(patch) ? prove(sh, t, k, coded) : TB_CHUNK_CODEC;
    if (status == TB_OK && !keep(c, coded)) status = TB_CHUNK_CODEC;
    pthread_rwlock_unlock(&patch->target->lock);
    tool_give(patch, t);
    if (status == TB_OK) atomic_fetch_add(&patch->staged_bytes, c->bytes);
    return status;
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
        const bool coded = t != NULL && rests(patch) && encode(sh, t, p, k);
        pthread_rwlock_unlock(&patch->target->lock);
        if (coded) kept = c->bytes + drop_pages(patch, p, k);
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

static bool holds(const struct shard *sh, struct tool *t, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    struct tb_digest digest;
    if (side_of(sh, chunk) == ON_HOST) {
        digest = tb_spread_digest(&sh->spread, chunk);
    } else {
        const uint8_t *bytes = gathered(sh, t, chunk);
        if (bytes == NULL) return false;
        digest = tb_digest_of(bytes, chunk->bytes);
    }
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
    return holds(sh, t, k);
}

static bool copy(struct applying *a, struct shard *sh, struct tool *t, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    uint32_t bytes = 0;
    const uint8_t *from = tb_place_chunk(sh->place, k, &bytes);
    uint64_t written = 0;
    if (side_of(sh, chunk) == ON_HOST)
        written = tb_spread_scatter(&sh->spread, chunk, from);
    else if (exchange(sh, chunk, (uint8_t *)(uintptr_t)from, true, &written) != TB_OK)
        return false;
    atomic_fetch_add(&a->copied_bytes, written);
    return !tb_spread_covers(&sh->spread, chunk) || holds(sh, t, k);
}

static void must_come(struct shard *sh, uint32_t k)
{
    struct chunk *c = &sh->chunks[k];
    tb_free(c->coded);
    c->coded = NULL;
    c->state = FETCH;
    (void)tb_bitmap_clear(sh->place->held, k);
}

static void done(struct chunk *c)
{
    tb_free(c->coded);
    c->coded = NULL;
    c->state = DONE;
}

static void failed(struct applying *a, struct shard *sh, uint32_t k)
{
    must_come(sh, k);
    atomic_fetch_add(&a->failed, 1);
}

static bool device_decodes(const struct shard *sh, uint32_t k)
{
    return sh->chunks[k].state == CODED && side_of(sh, &sh->manifest->chunks[k]) == ON_DEVICE;
}

static void apply(void *user, uint32_t piece, uint32_t slot)
{
    (void)slot;
    struct applying *a = user;
    struct shard *sh = shard_of(a->patch, piece);
    const uint32_t k = (uint32_t)(piece - sh->first);
    struct chunk *c = &sh->chunks[k];
    if (c->state == DONE || device_decodes(sh, k)) return;
    if (c->state == FETCH && !tb_place_held(sh->place, k)) {
        atomic_fetch_add(&a->failed, 1);
        return;
    }
    struct tool *t = tool_take(a->patch);
    if (c->state == CODED) {
        if (t != NULL && decode(a, sh, t, k))
            done(c);
        else
            failed(a, sh, k);
    } else {
        c->stayed = true;
        if (t != NULL && copy(a, sh, t, k))
            done(c);
        else
            atomic_store(&a->status, t == NULL ? TB_SITE_NOMEM : TB_CHUNK_DIGEST);
    }
    if (t != NULL) tool_give(a->patch, t);
}

/* ---- by the device ---- */

/* Chunks that it decodes, in the order of all. */
struct device_steps {
    struct tb_gpu_step *steps;
    struct tb_gpu_piece *pieces;
    uint32_t count, piece_count;
};

static void each_step(const struct tb_patch *patch, struct device_steps *d,
                      void (*fn)(struct device_steps *d, struct shard *sh, uint32_t k, void *user),
                      void *user)
{
    for (uint32_t i = 0; i < patch->shard_count; i++) {
        struct shard *sh = &patch->shards[i];
        for (uint32_t k = 0; k < sh->manifest->chunk_count; k++)
            if (device_decodes(sh, k)) fn(d, sh, k, user);
    }
}

static void count_step(struct device_steps *d, struct shard *sh, uint32_t k, void *user)
{
    (void)user;
    d->count++;
    d->piece_count += pieces_of(sh, &sh->manifest->chunks[k], NULL);
}

static void list_step(struct device_steps *d, struct shard *sh, uint32_t k, void *user)
{
    (void)user;
    struct tb_gpu_piece *pieces = d->pieces + d->piece_count;
    const uint32_t count = pieces_of(sh, &sh->manifest->chunks[k], pieces);
    d->steps[d->count++] = (struct tb_gpu_step){.pieces = pieces,
                                                .piece_count = count,
                                                .bytes = sh->manifest->chunks[k].bytes,
                                                .form_bytes = sh->chunks[k].bytes,
                                                .form = sh->chunks[k].coded};
    d->piece_count += count;
}

static void judge_step(struct device_steps *d, struct shard *sh, uint32_t k, void *user)
{
    struct applying *a = user;
    const struct tb_gpu_step *step = &d->steps[d->count++];
    if (step->patched) atomic_fetch_add(&a->patched_bytes, step->bytes);
    if (step->patched && tb_digest_equal(&step->digest, &sh->manifest->digests[k]))
        done(&sh->chunks[k]);
    else
        failed(a, sh, k);
}

static void apply_by_device(struct applying *a)
{
    struct tb_gpu_memory *gpu = a->patch->target->gpu;
    struct device_steps d = {.count = 0};
    if (gpu == NULL) return;
    each_step(a->patch, &d, count_step, NULL);
    if (d.count == 0) return;
    d.steps = tb_calloc(d.count, sizeof *d.steps);
    d.pieces = tb_calloc(d.piece_count, sizeof *d.pieces);
    const uint32_t count = d.count;
    enum tb_status status = d.steps == NULL || d.pieces == NULL ? TB_BAD_STATE : TB_OK;
    if (status == TB_OK) {
        d.count = d.piece_count = 0;
        each_step(a->patch, &d, list_step, NULL);
        status = tb_gpu_patch(gpu, d.steps, count);
        d.count = 0;
        /* Without room on the device nothing is patched, and all of it comes whole. */
        if (status == TB_OK || status == TB_SITE_NOMEM) each_step(a->patch, &d, judge_step, a);
    }
    if (status != TB_OK && status != TB_SITE_NOMEM)
        atomic_store(&a->status, status == TB_BAD_STATE ? TB_SITE_NOMEM : status);
    tb_free(d.pieces);
    tb_free(d.steps);
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
    apply_by_device(&a);
    patch->rests_on = ++patch->target->writes;
    pthread_rwlock_unlock(&patch->target->lock);
    *result_out = (struct tb_patch_result){.copied_bytes = atomic_load(&a.copied_bytes),
                                           .patched_bytes = atomic_load(&a.patched_bytes),
                                           .failed = atomic_load(&a.failed)};
    return (enum tb_status)atomic_load(&a.status);
}

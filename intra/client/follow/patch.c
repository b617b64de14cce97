#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/chunk_digest.h"
#include "intra/client/follow/patch_inside.h"

/* ---- tools ---- */

static void tool_free(struct tb_patch_tool *t)
{
    if (t == NULL) return;
    tb_codec_free(t->codec);
    tb_free(t->gathered);
    tb_free(t->made);
    tb_free(t);
}

static struct tb_patch_tool *tool_new(const struct tb_patch *patch)
{
    struct tb_patch_tool *t = tb_calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->gathered = tb_malloc(patch->chunk_bytes_max + 1u);
    t->made = tb_malloc(tb_codec_bound(TB_CODEC_SPARSE, patch->chunk_bytes_max) + 1u);
    if (t->gathered != NULL && t->made != NULL && tb_codec_new(&t->codec) == TB_OK) return t;
    t->codec = NULL;
    tool_free(t);
    return NULL;
}

/* NULL: no memory. */
static struct tb_patch_tool *tool_take(struct tb_patch *patch)
{
    pthread_mutex_lock(&patch->lock);
    struct tb_patch_tool *t = patch->idle;
    if (t != NULL) patch->idle = t->next;
    pthread_mutex_unlock(&patch->lock);
    return t != NULL ? t : tool_new(patch);
}

static void tool_give(struct tb_patch *patch, struct tb_patch_tool *t)
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
        struct tb_patch_shard *sh = &patch->shards[i];
        for (uint32_t k = 0; sh->chunks != NULL && k < sh->manifest->chunk_count; k++)
            tb_free(sh->chunks[k].coded);
        tb_free(sh->chunks);
        if (sh->own != sh->memory) tb_free(sh->own);
        tb_free(sh->memory);
        tb_free(sh->on_device);
        tb_free(sh->ties);
    }
    while (patch->idle != NULL) {
        struct tb_patch_tool *t = patch->idle;
        patch->idle = t->next;
        tool_free(t);
    }
    tb_free(patch->shards);
    tb_patch_device_fini(patch);
    pthread_mutex_destroy(&patch->lock);
    tb_free(patch);
}

static enum tb_status shard_init(struct tb_patch *patch, struct tb_patch_shard *sh)
{
    sh->patch = patch;
    sh->spread = (struct tb_spread){.layout = &sh->manifest->layout, .tensors = sh->memory};
    sh->first = patch->chunk_total;
    patch->chunk_total += sh->manifest->chunk_count;
    for (uint32_t k = 0; k < sh->manifest->chunk_count; k++)
        if (sh->manifest->chunks[k].bytes > patch->chunk_bytes_max)
            patch->chunk_bytes_max = sh->manifest->chunks[k].bytes;
    sh->chunks = tb_calloc((size_t)sh->manifest->chunk_count + 1, sizeof *sh->chunks);
    sh->own = sh->memory;
    if (sh->ties != NULL) sh->own = tb_calloc((size_t)sh->manifest->layout.tensor_count + 1, sizeof *sh->own);
    return sh->chunks == NULL || sh->own == NULL ? TB_SITE_NOMEM : TB_OK;
}

enum tb_status tb_patch_new(struct tb_patch_target *target, const struct tb_patch_shard_of *shards,
                            uint32_t count, struct tb_patch **patch_out)
{
    struct tb_patch *patch = tb_calloc(1, sizeof *patch);
    struct tb_patch_shard *table = tb_calloc((size_t)count + 1, sizeof *table);
    if (patch == NULL || table == NULL) {
        for (uint32_t i = 0; i < count; i++) {
            tb_free(shards[i].memory);
            tb_free(shards[i].on_device);
            tb_free(shards[i].ties);
        }
        tb_free(table);
        tb_free(patch);
        return TB_SITE_NOMEM;
    }
    pthread_mutex_init(&patch->lock, NULL);
    tb_patch_device_init(patch);
    patch->target = target;
    patch->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    patch->shards = table;
    patch->shard_count = count;
    for (uint32_t i = 0; i < count; i++) {
        table[i].manifest = shards[i].manifest;
        table[i].memory = shards[i].memory;
        table[i].on_device = shards[i].on_device;
        table[i].ties = shards[i].ties;
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
    TB_ASSERT(shard < patch->shard_count);
    return patch->shards[shard].memory;
}

bool *tb_patch_on_device(struct tb_patch *patch, uint32_t shard)
{
    TB_ASSERT(shard < patch->shard_count);
    return patch->shards[shard].on_device;
}

uint8_t *tb_patch_ties(struct tb_patch *patch, uint32_t shard)
{
    TB_ASSERT(shard < patch->shard_count);
    return patch->shards[shard].ties;
}

uint64_t tb_patch_staged_bytes(const struct tb_patch *patch)
{
    return atomic_load(&patch->staged_bytes);
}

/* The bytes that stand there now, as one range. NULL: the device refused, or there was no
 * memory. */
static const uint8_t *gathered(const struct tb_patch_shard *sh, struct tb_patch_tool *t,
                               const struct tb_chunk *chunk)
{
    uint64_t bytes;
    if (tb_patch_side_of(sh, chunk) == TB_PATCH_ON_HOST)
        return tb_spread_gather(&sh->spread, chunk, t->gathered);
    return tb_patch_exchange(sh, chunk, t->gathered, false, &bytes) == TB_OK ? t->gathered : NULL;
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

static bool keep(struct tb_patch_chunk *c, const struct tb_codec_coded *coded)
{
    TB_ASSERT(c->coded == NULL && c->state == TB_PATCH_LANDED);
    if (c->kept == NULL) {
        c->coded = tb_malloc(coded->count + 1);
        if (c->coded == NULL) return false;
        memcpy(c->coded, coded->bytes, coded->count);
    }
    c->bytes = (uint32_t)coded->count;
    c->form = coded->form;
    c->state = TB_PATCH_CODED;
    return true;
}

/* Of the target's lock one reader. */
static bool rests(const struct tb_patch *patch)
{
    return !patch->target->gone && patch->target->writes == patch->rests_on;
}

/* The buffers hold what the patch rests on, and stay so until their lock is given back. It does not
 * wait for a writer: that may take seconds, a hop closes behind the chunk in hand, and what a
 * writer leaves is no base for this patch. */
bool tb_patch_begin_look(const struct tb_patch *patch)
{
    if (pthread_rwlock_tryrdlock(&patch->target->lock) != 0) return false;
    if (rests(patch)) return true;
    pthread_rwlock_unlock(&patch->target->lock);
    return false;
}

void tb_patch_end_look(const struct tb_patch *patch)
{
    pthread_rwlock_unlock(&patch->target->lock);
}

bool tb_patch_rests(const struct tb_patch *patch)
{
    const bool yes = tb_patch_begin_look(patch);
    if (yes) tb_patch_end_look(patch);
    return yes;
}

static bool encode_by_cores(const struct tb_patch_shard *sh, struct tb_patch_tool *t, uint32_t k,
                            const uint8_t *bytes, struct tb_codec_coded *coded_out)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    const struct tb_codec_input in = {.bytes = bytes,
                                      .count = chunk->bytes,
                                      .dtype = tb_layout_dtype_at(&sh->manifest->layout, chunk->offset),
                                      .base = tb_spread_gather(&sh->spread, chunk, t->gathered)};
    const struct tb_codec_room room = {t->made, tb_codec_bound(TB_CODEC_SPARSE, chunk->bytes)};
    const struct tb_codec_form form = {TB_CODEC_SPARSE, true};
    return tb_codec_encode(t->codec, form, &in, room, coded_out) == TB_OK && coded_out->form.on_base;
}

/* False: it stays as it is. */
static bool encode(struct tb_patch_shard *sh, struct tb_patch_tool *t, const struct tb_place *p, uint32_t k)
{
    const enum tb_patch_side side = tb_patch_side_of(sh, &sh->manifest->chunks[k]);
    uint32_t count = 0;
    const uint8_t *bytes = tb_place_chunk(p, k, &count);
    struct tb_codec_coded coded;
    bool encoded = false;
    if (side == TB_PATCH_ON_HOST)
        encoded = encode_by_cores(sh, t, k, bytes, &coded);
    else if (side == TB_PATCH_ON_DEVICE)
        encoded = tb_patch_encode_by_device(sh, k, bytes, t->made, &coded);
    return encoded && keep(&sh->chunks[k], &coded);
}

static enum tb_status decode_by_cores(const struct tb_patch_shard *sh, struct tb_patch_tool *t,
                                      struct tb_place_look *look, struct tb_digest *digest_out)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[look->chunk];
    const struct tb_codec_output out = {t->made, chunk->bytes,
                                        tb_spread_gather(&sh->spread, chunk, t->gathered)};
    const enum tb_status status = tb_codec_decode(t->codec, look->came.encoded, &out);
    if (status != TB_OK) return status;
    *digest_out = tb_chunk_digest(sh->manifest, look->chunk, out.bytes);
    if (look->came.foreign) look->proof = tb_chunk_proof(sh->manifest, look->chunk, out.bytes);
    return TB_OK;
}

/* Under the target's lock for a moment. The tensors may have gone when they are looked at. */
static enum tb_patch_side side_now(const struct tb_patch_shard *sh, const struct tb_chunk *chunk)
{
    if (!tb_patch_begin_look(sh->patch)) return TB_PATCH_ON_BOTH;
    const enum tb_patch_side side = tb_patch_side_of(sh, chunk);
    tb_patch_end_look(sh->patch);
    return side;
}

/* The delta is decoded on the buffers' bytes, of which only the digest is kept. */
static enum tb_status prove_by_cores(struct tb_patch_shard *sh, struct tb_place_look *look,
                                     struct tb_digest *digest_out)
{
    struct tb_patch_tool *t = tool_take(sh->patch);
    enum tb_status status = TB_CHUNK_CODEC;
    if (t == NULL) return status;
    if (tb_patch_begin_look(sh->patch)) {
        status = decode_by_cores(sh, t, look, digest_out);
        tb_patch_end_look(sh->patch);
    }
    tool_give(sh->patch, t);
    return status;
}

/* By place.h. A refused chunk comes whole: the buffers are no base for it, or were written since,
 * or are a device's that has no kernels for it, or there is no memory. */
static void look(void *user, struct tb_place_look *look)
{
    struct tb_patch_shard *sh = user;
    const uint32_t k = look->chunk;
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    struct tb_digest digest;
    enum tb_status status = TB_CHUNK_CODEC;
    TB_ASSERT(look->came.encoded != NULL); /* nothing of such a place is far */
    const bool may = sh->chunks[k].state == TB_PATCH_LANDED && tb_spread_covers(&sh->spread, chunk) &&
                     tb_patch_tied_of(sh, k) != TB_PATCH_TIED_SOME; /* its rest is written from the whole */
    const enum tb_patch_side side = may ? side_now(sh, chunk) : TB_PATCH_ON_BOTH;
    if (side == TB_PATCH_ON_DEVICE) {
        tb_patch_prove_by_device(sh, look);
        return;
    }
    if (side == TB_PATCH_ON_HOST) status = prove_by_cores(sh, look, &digest);
    tb_place_looked(look, status, &digest);
}

/* A delta that proved itself. Buffers that are written from here on void all of the patch. */
static enum tb_status keep_delta(struct tb_patch_shard *sh, uint32_t k, const struct tb_codec_coded *coded)
{
    struct tb_patch_chunk *c = &sh->chunks[k];
    if (tb_patch_tied_of(sh, k) == TB_PATCH_TIED_ALL)
        c->state = TB_PATCH_NEEDLESS;
    else if (!keep(c, coded))
        return TB_CHUNK_CODEC;
    atomic_fetch_add(&sh->patch->staged_bytes, c->bytes);
    return TB_OK;
}

/* A whole chunk. One that cannot be encoded stays whole: that costs memory and nothing else. */
static void keep_whole(struct tb_patch_shard *sh, const struct tb_place *p, uint32_t k)
{
    struct tb_patch *patch = sh->patch;
    struct tb_patch_chunk *c = &sh->chunks[k];
    uint64_t kept = sh->manifest->chunks[k].bytes;
    const enum tb_patch_tied tied = tb_patch_tied_of(sh, k);
    if (tied == TB_PATCH_TIED_ALL) {
        c->state = TB_PATCH_NEEDLESS;
        kept = drop_pages(patch, p, k);
    } else if (tied == TB_PATCH_TIED_NONE && c->state == TB_PATCH_LANDED &&
               tb_spread_covers(&sh->spread, &sh->manifest->chunks[k])) {
        struct tb_patch_tool *t = tool_take(patch);
        const bool looks = t != NULL && tb_patch_begin_look(patch);
        const bool coded = looks && encode(sh, t, p, k);
        if (looks) tb_patch_end_look(patch);
        if (coded) kept = c->bytes + drop_pages(patch, p, k);
        if (t != NULL) tool_give(patch, t);
    }
    atomic_fetch_add(&patch->staged_bytes, kept);
}

static enum tb_status keep_landed(void *user, const struct tb_place *p, uint32_t k,
                                  const struct tb_place_came *came)
{
    struct tb_patch_shard *sh = user;
    if (came->encoded != NULL) return keep_delta(sh, k, came->encoded);
    keep_whole(sh, p, k);
    return TB_OK;
}

void tb_patch_watch(struct tb_patch *patch, uint32_t shard, struct tb_place *place)
{
    TB_ASSERT(shard < patch->shard_count);
    patch->shards[shard].place = place;
    struct tb_patch_shard *sh = &patch->shards[shard];
    TB_ASSERT(place->owner == NULL && place->far == NULL);
    sh->owner = (struct tb_place_owner){.look = look, .keep = keep_landed, .user = sh};
    place->owner = &sh->owner;
}

/* ---- the switch ---- */

static struct tb_patch_shard *shard_of(const struct tb_patch *patch, uint64_t line)
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

bool tb_patch_holds(const struct tb_patch_shard *sh, struct tb_patch_tool *t, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    struct tb_digest digest;
    if (tb_patch_side_of(sh, chunk) == TB_PATCH_ON_HOST) {
        digest = tb_spread_digest(&sh->spread, chunk);
    } else {
        const uint8_t *bytes = gathered(sh, t, chunk);
        if (bytes == NULL) return false;
        digest = tb_chunk_digest(sh->manifest, k, bytes);
    }
    return tb_chunk_has_digest(sh->manifest, k, &digest);
}

static bool decode(struct tb_patch_applying *a, struct tb_patch_shard *sh, struct tb_patch_tool *t,
                   uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    const struct tb_patch_chunk *c = &sh->chunks[k];
    const struct tb_codec_coded coded = {c->form, c->coded, c->bytes};
    const struct tb_codec_output out = {t->made, chunk->bytes,
                                        tb_spread_gather(&sh->spread, chunk, t->gathered)};
    if (tb_codec_decode(t->codec, &coded, &out) != TB_OK) return false;
    atomic_fetch_add(&a->patched_bytes, tb_spread_scatter(&sh->spread, chunk, t->made));
    return tb_patch_holds(sh, t, k);
}

static bool copy(struct tb_patch_applying *a, struct tb_patch_shard *sh, struct tb_patch_tool *t, uint32_t k)
{
    const struct tb_chunk *chunk = &sh->manifest->chunks[k];
    uint32_t bytes = 0;
    const uint8_t *from = tb_place_chunk(sh->place, k, &bytes);
    uint64_t written = 0;
    const struct tb_spread own = {.layout = &sh->manifest->layout, .tensors = sh->own};
    if (tb_patch_side_of(sh, chunk) == TB_PATCH_ON_HOST)
        written = tb_spread_scatter(&own, chunk, from);
    else if (tb_patch_exchange(sh, chunk, (uint8_t *)(uintptr_t)from, true, &written) != TB_OK)
        return false;
    atomic_fetch_add(&a->copied_bytes, written);
    /* not before all others are written */
    if (tb_patch_tied_of(sh, k) != TB_PATCH_TIED_NONE) return true;
    return !tb_spread_covers(&sh->spread, chunk) || tb_patch_holds(sh, t, k);
}

static void must_come(struct tb_patch_shard *sh, uint32_t k)
{
    struct tb_patch_chunk *c = &sh->chunks[k];
    tb_free(c->coded);
    c->coded = NULL;
    c->kept = NULL;
    c->state = TB_PATCH_FETCH;
    TB_ASSERT(sh->place != NULL);
    (void)tb_bitmap_clear(sh->place->held, k);
}

void tb_patch_done(struct tb_patch_chunk *c)
{
    tb_free(c->coded);
    c->coded = NULL;
    c->kept = NULL;
    c->state = TB_PATCH_DONE;
}

void tb_patch_failed(struct tb_patch_applying *a, struct tb_patch_shard *sh, uint32_t k)
{
    must_come(sh, k);
    atomic_fetch_add(&a->failed, 1);
}

static void apply(void *user, uint32_t piece, uint32_t slot)
{
    (void)slot;
    struct tb_patch_applying *a = user;
    struct tb_patch_shard *sh = shard_of(a->patch, piece);
    const uint32_t k = (uint32_t)(piece - sh->first);
    struct tb_patch_chunk *c = &sh->chunks[k];
    if (c->state == TB_PATCH_DONE || c->state == TB_PATCH_NEEDLESS || tb_patch_device_decodes(sh, k)) return;
    if (c->state == TB_PATCH_FETCH && !tb_place_held(sh->place, k)) {
        atomic_fetch_add(&a->failed, 1);
        return;
    }
    struct tb_patch_tool *t = tool_take(a->patch);
    if (c->state == TB_PATCH_CODED) {
        /* Deltas that the device keeps go with its tensors: the chunk comes whole then. */
        if (t != NULL && c->coded != NULL && decode(a, sh, t, k))
            tb_patch_done(c);
        else
            tb_patch_failed(a, sh, k);
    } else {
        c->stayed = true;
        if (t != NULL && copy(a, sh, t, k))
            tb_patch_done(c);
        else
            atomic_store(&a->status, t == NULL ? TB_SITE_NOMEM : TB_CHUNK_DIGEST);
    }
    if (t != NULL) tool_give(a->patch, t);
}

/* The buffers were written since: what was encoded on them, or stood in them, is void. */
static void forget(struct tb_patch *patch)
{
    for (uint32_t i = 0; i < patch->shard_count; i++) {
        struct tb_patch_shard *sh = &patch->shards[i];
        for (uint32_t k = 0; k < sh->manifest->chunk_count; k++) {
            struct tb_patch_chunk *c = &sh->chunks[k];
            if (c->state != TB_PATCH_CODED && c->state != TB_PATCH_DONE) continue;
            /* A chunk that stayed whole is still in its place. */
            if (c->state == TB_PATCH_DONE && c->stayed)
                c->state = TB_PATCH_LANDED;
            else
                must_come(sh, k);
        }
    }
}

static void look_at_ties(struct tb_patch_applying *a)
{
    struct tb_patch_tool *t = tool_take(a->patch);
    if (t == NULL)
        atomic_store(&a->status, TB_SITE_NOMEM);
    else if (!tb_patch_ties_hold(a->patch, t))
        atomic_store(&a->status, TB_LAYOUT_MISMATCH);
    if (t != NULL) tool_give(a->patch, t);
}

enum tb_status tb_patch_apply(struct tb_patch *patch, struct tb_crew *crew,
                              struct tb_patch_result *result_out)
{
    struct tb_patch_applying a = {.patch = patch};
    pthread_rwlock_wrlock(&patch->target->lock);
    if (patch->target->writes != patch->rests_on) forget(patch);
    tb_patch_own(patch);
    tb_crew_run(crew, (uint32_t)patch->chunk_total, apply, &a);
    tb_patch_apply_by_device(&a);
    if (atomic_load(&a.failed) == 0 && atomic_load(&a.status) == TB_OK) look_at_ties(&a);
    patch->rests_on = ++patch->target->writes;
    pthread_rwlock_unlock(&patch->target->lock);
    *result_out = (struct tb_patch_result){.copied_bytes = atomic_load(&a.copied_bytes),
                                           .patched_bytes = atomic_load(&a.patched_bytes),
                                           .failed = atomic_load(&a.failed)};
    return (enum tb_status)atomic_load(&a.status);
}

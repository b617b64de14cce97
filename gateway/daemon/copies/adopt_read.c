/* adopt_read.c - see adopt_read.h. P1: bytes of files are digested before they are written
 * anywhere, and once more in the arena, by the place. */
#include "gateway/daemon/copies/adopt_read.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/layout/chunk_cut.h"
#include "base/layout/chunk_digest.h"
#include "gateway/arena/arena_regions.h"

#define CHUNK_BYTES_MAX (2 * TB_CHUNK_BYTES_MAX)

/* ---- versions ---- */

static void shard_free(struct tb_adopt_shard *s)
{
    tb_free(s->memory);
    tb_free(s->files);
    tb_free(s->read);
    tb_free(s->matches);
}

static void version_free(struct tb_adopt_version *v)
{
    for (uint32_t s = 0; v->shards != NULL && s < v->key.shard_count; s++)
        shard_free(&v->shards[s]);
    tb_free(v->shards);
    v->shards = NULL;
}

static enum tb_status manifest_copy(struct tb_adopt_shard *to, const struct tb_manifest *from)
{
    const size_t bytes = tb_manifest_bytes_for(&from->layout, from->blobs, from->blob_count);
    to->memory = tb_malloc(bytes + 1);
    if (to->memory == NULL) return TB_SITE_NOMEM;
    const enum tb_status status =
        tb_manifest_build(&from->layout, from->blobs, from->blob_count, to->memory, bytes, &to->manifest);
    if (status != TB_OK) return status;
    memcpy(to->manifest.digests, from->digests, from->chunk_count * sizeof *from->digests);
    to->manifest.root = from->root;
    return TB_OK;
}

static enum tb_status shard_fill(struct tb_adopt_shard *to, const struct tb_manifest *from)
{
    const uint64_t words = TB_BITMAP_WORDS(from->chunk_count) + 1;
    to->files = tb_calloc((size_t)from->chunk_count + 1, sizeof *to->files);
    to->read = tb_calloc(words, sizeof *to->read);
    to->matches = tb_calloc(words, sizeof *to->matches);
    if (to->files == NULL || to->read == NULL || to->matches == NULL) return TB_SITE_NOMEM;
    return manifest_copy(to, from);
}

enum tb_status tb_adopt_version_fill(struct tb_adopt_version *v, const struct tb_manifest *const *manifests)
{
    enum tb_status status = TB_OK;
    TB_ASSERT(v->shards == NULL);
    v->shards = tb_calloc(v->key.shard_count, sizeof *v->shards);
    if (v->shards == NULL) return TB_SITE_NOMEM;
    v->bytes = 0;
    for (uint32_t s = 0; status == TB_OK && s < v->key.shard_count; s++) {
        status = shard_fill(&v->shards[s], manifests[s]);
        v->bytes += manifests[s]->bytes;
    }
    if (status != TB_OK) version_free(v);
    return status;
}

/* ---- comparing ---- */

/* The same tensors in a version looked at before: their bytes are the same bytes of the same
 * files. */
static const struct tb_adopt_shard *read_before(const struct tb_adopt_reading *r, uint32_t version,
                                                const struct tb_adopt_shard *shard)
{
    for (uint32_t v = 0; v < version; v++)
        for (uint32_t s = 0; r->versions[v].shards != NULL && s < r->versions[v].key.shard_count; s++) {
            const struct tb_adopt_shard *other = &r->versions[v].shards[s];
            if (tb_digest_equal(&other->manifest.layout.id, &shard->manifest.layout.id)) return other;
        }
    return NULL;
}

/* Two layouts may have been given one id. */
static bool same_chunk(const struct tb_manifest *a, const struct tb_manifest *b, uint32_t k)
{
    return k < b->chunk_count && a->chunks[k].offset == b->chunks[k].offset &&
           a->chunks[k].bytes == b->chunks[k].bytes;
}

static void chunk_digest(struct tb_adopt_reading *r, struct tb_adopt_shard *s,
                         const struct tb_adopt_shard *before, uint32_t k, uint8_t *scratch)
{
    const struct tb_chunk *chunk = &s->manifest.chunks[k];
    const bool tensor = chunk->offset < s->manifest.layout.bytes;
    if (before != NULL && tensor && same_chunk(&s->manifest, &before->manifest, k)) {
        if (!tb_bitmap_test(before->read, k)) return;
        s->files[k] = before->files[k];
        (void)tb_bitmap_set(s->read, k);
        return;
    }
    atomic_fetch_add(&r->read_bytes, chunk->bytes);
    if (!tb_local_read(r->files, &s->manifest, k, scratch)) return;
    s->files[k] = tb_chunk_digest(&s->manifest, k, scratch);
    (void)tb_bitmap_set(s->read, k);
}

static enum tb_status compare_shard(struct tb_adopt_reading *r, uint32_t version, uint32_t shard,
                                    uint8_t *scratch)
{
    struct tb_adopt_version *v = &r->versions[version];
    struct tb_adopt_shard *s = &v->shards[shard];
    TB_ASSERT(version < r->version_count && shard < v->key.shard_count);
    const struct tb_adopt_shard *before = read_before(r, version, s);
    for (uint32_t k = 0; k < s->manifest.chunk_count; k++) {
        if (atomic_load(&r->stop)) return TB_CANCELLED;
        chunk_digest(r, s, before, k, scratch);
        if (!tb_bitmap_test(s->read, k) || !tb_chunk_has_digest(&s->manifest, k, &s->files[k])) continue;
        (void)tb_bitmap_set(s->matches, k);
        v->matched_bytes += s->manifest.chunks[k].bytes;
    }
    return TB_OK;
}

static enum tb_status compare(struct tb_adopt_reading *r, uint8_t *scratch)
{
    uint64_t total = 0;
    for (uint32_t v = 0; v < r->version_count; v++)
        for (uint32_t s = 0; r->versions[v].shards != NULL && s < r->versions[v].key.shard_count; s++) {
            const struct tb_manifest *m = &r->versions[v].shards[s].manifest;
            const bool again = read_before(r, v, &r->versions[v].shards[s]) != NULL;
            total += again ? m->blob_bytes : m->bytes;
        }
    atomic_store(&r->total_bytes, total);
    enum tb_status status = TB_OK;
    for (uint32_t v = 0; v < r->version_count; v++)
        for (uint32_t s = 0;
             status == TB_OK && r->versions[v].shards != NULL && s < r->versions[v].key.shard_count; s++)
            status = compare_shard(r, v, s, scratch);
    return status;
}

/* ---- claiming ---- */

/* A file may have changed since it was compared: only the bytes that are read now count. */
static void claim_chunk(struct tb_adopt_reading *r, struct tb_adopt_shard *s, struct tb_place *place,
                        uint32_t k, uint8_t *scratch)
{
    const struct tb_place_came came = {.beside = scratch};
    const uint32_t bytes = s->manifest.chunks[k].bytes;
    if (tb_place_held(place, k) || !tb_local_read(r->files, &s->manifest, k, scratch)) return;
    if (!tb_chunk_matches(place->manifest, k, scratch) || !tb_place_claim(place, k)) return;
    if (tb_place_take(place, k, &came) != TB_OK) return; /* memory that does not keep what is written to it */
    atomic_fetch_add(&r->claimed_bytes, bytes);
    atomic_fetch_add(&r->claimed_chunks, 1);
}

static enum tb_status claim(struct tb_adopt_reading *r, uint8_t *scratch)
{
    struct tb_adopt_version *v = &r->versions[r->target];
    TB_ASSERT(r->target < r->version_count && v->shards != NULL && r->region != NULL);
    atomic_store(&r->total_bytes, v->matched_bytes);
    for (uint32_t s = 0; s < v->key.shard_count; s++) {
        struct tb_adopt_shard *shard = &v->shards[s];
        struct tb_place *place = tb_arena_place(r->region, s);
        const uint32_t count = shard->manifest.chunk_count;
        for (uint32_t k = 0; (k = tb_bitmap_next_set(shard->matches, count, k)) < count; k++) {
            if (atomic_load(&r->stop)) return TB_CANCELLED;
            claim_chunk(r, shard, place, k, scratch);
            atomic_fetch_add(&r->read_bytes, shard->manifest.chunks[k].bytes);
        }
    }
    return TB_OK;
}

/* ---- the thread ---- */

static enum tb_status job_do(struct tb_adopt_reading *r)
{
    if (r->job == TB_ADOPT_OPEN) return tb_local_open(&r->given, &r->stop, &r->files, r->error);
    uint8_t *scratch = tb_malloc(CHUNK_BYTES_MAX);
    if (scratch == NULL) return TB_SITE_NOMEM;
    const enum tb_status status = r->job == TB_ADOPT_COMPARE ? compare(r, scratch) : claim(r, scratch);
    tb_free(scratch);
    return status;
}

static void *job_main(void *user)
{
    struct tb_adopt_reading *r = user;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 10); /* this thread alone, on Linux */
    r->status = job_do(r);
    atomic_store(&r->done, true);
    return NULL;
}

enum tb_status tb_adopt_read_start(struct tb_adopt_reading *r, enum tb_adopt_job job)
{
    TB_ASSERT(!r->runs);
    TB_ASSERT((job == TB_ADOPT_OPEN) == (r->files == NULL)); /* they are opened once, and first */
    r->job = job;
    r->error[0] = '\0';
    atomic_store(&r->done, false);
    atomic_store(&r->read_bytes, 0);
    atomic_store(&r->total_bytes, 0);
    r->runs = !tb_fault_hit(TB_FAULT_thread, EAGAIN) && pthread_create(&r->thread, NULL, job_main, r) == 0;
    return r->runs ? TB_OK : TB_SITE_NOMEM;
}

void tb_adopt_read_join(struct tb_adopt_reading *r)
{
    if (r->runs) (void)pthread_join(r->thread, NULL);
    r->runs = false;
}

void tb_adopt_read_fini(struct tb_adopt_reading *r)
{
    TB_ASSERT(!r->runs);
    for (uint32_t v = 0; v < r->version_count; v++)
        version_free(&r->versions[v]);
    r->version_count = 0;
    tb_local_close(r->files);
    r->files = NULL;
    tb_given_close(&r->given);
}

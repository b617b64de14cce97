/* layouts.c - layouts kept by their id. */
#include "base/layout/layouts.h"

#include <pthread.h>
#include <string.h>
#include <sys/queue.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/chunk_cut.h"

/* by the id's first byte; a version has up to 4096 shards, each with a layout of its own */
#define BUCKETS 256u

/* In a bucket, and with idle ones in the order in which they became so. The layout first: a
 * reference is its address. */
struct kept {
    struct tb_layout layout;
    LIST_ENTRY(kept) bucket;
    TAILQ_ENTRY(kept) idle;
    uint32_t refs;
    size_t bytes; /* of all three */
    void *memory;
    uint8_t *encoded;
    struct tb_chunk *cut;
};

struct tb_layouts {
    pthread_mutex_t lock;
    LIST_HEAD(kept_list, kept) buckets[BUCKETS];
    TAILQ_HEAD(kept_line, kept) idle;
    struct tb_layouts_counts counts;
};

struct tb_layouts *tb_layouts_new(void)
{
    struct tb_layouts *l = tb_calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    pthread_mutex_init(&l->lock, NULL);
    TAILQ_INIT(&l->idle);
    return l;
}

static void free_kept(struct kept *k)
{
    if (k == NULL) return;
    tb_free(k->memory);
    tb_free(k->encoded);
    tb_free(k->cut);
    tb_free(k);
}

static void drop_oldest(struct tb_layouts *l)
{
    struct kept *k = TAILQ_FIRST(&l->idle);
    TB_ASSERT(k != NULL && k->refs == 0 && l->counts.idle > 0 && l->counts.idle_bytes >= k->bytes);
    TAILQ_REMOVE(&l->idle, k, idle);
    LIST_REMOVE(k, bucket);
    l->counts.idle--;
    l->counts.idle_bytes -= k->bytes;
    free_kept(k);
}

void tb_layouts_free(struct tb_layouts *l)
{
    if (l == NULL) return;
    while (!TAILQ_EMPTY(&l->idle))
        drop_oldest(l);
    TB_ASSERT(l->counts.used == 0);
    pthread_mutex_destroy(&l->lock);
    tb_free(l);
}

/* ---- one layout ---- */

/* A layout is its encoding, byte for byte; the id says where to look. It has no key, so
 * somebody may have made it equal for two: each has its own table then, and neither is
 * in the other's way. */
static struct kept *find(struct tb_layouts *l, const struct tb_digest *id, const uint8_t *encoded,
                         size_t bytes)
{
    struct kept *k;
    LIST_FOREACH(k, &l->buckets[id->bytes[0] % BUCKETS], bucket)
    if (tb_digest_equal(&k->layout.id, id) && k->layout.encoded_bytes == bytes &&
        memcmp(k->encoded, encoded, bytes) == 0)
        return k;
    return NULL;
}

static void ref(struct tb_layouts *l, struct kept *k)
{
    if (k->refs++ > 0) return;
    TB_ASSERT(l->counts.idle > 0 && l->counts.idle_bytes >= k->bytes);
    TAILQ_REMOVE(&l->idle, k, idle);
    l->counts.idle--;
    l->counts.idle_bytes -= k->bytes;
    l->counts.used++;
}

static void unref(struct tb_layouts *l, struct kept *k)
{
    TB_ASSERT(k->refs > 0);
    if (--k->refs > 0) return;
    TAILQ_INSERT_TAIL(&l->idle, k, idle);
    l->counts.used--;
    l->counts.idle++;
    l->counts.idle_bytes += k->bytes;
    while (l->counts.idle_bytes > TB_LAYOUTS_IDLE_BYTES)
        drop_oldest(l);
    if (l->counts.idle_bytes > l->counts.idle_bytes_most) l->counts.idle_bytes_most = l->counts.idle_bytes;
}

/* With the lock: what lists and counts say of each other. */
static void check(const struct tb_layouts *l)
{
    const struct kept *k;
    uint64_t kept = 0, idle = 0, idle_bytes = 0;
    for (uint32_t i = 0; i < BUCKETS; i++)
        LIST_FOREACH(k, &l->buckets[i], bucket) kept++;
    TAILQ_FOREACH(k, &l->idle, idle)
    {
        TB_ASSERT(k->refs == 0);
        idle++;
        idle_bytes += k->bytes;
    }
    TB_ASSERT(idle == l->counts.idle && idle_bytes == l->counts.idle_bytes);
    TB_ASSERT(idle_bytes <= TB_LAYOUTS_IDLE_BYTES && kept == l->counts.used + idle);
}

/* NULL: not here. */
static struct kept *take_known(struct tb_layouts *l, const struct tb_digest *id, const uint8_t *encoded,
                               size_t bytes)
{
    pthread_mutex_lock(&l->lock);
    struct kept *k = find(l, id, encoded, bytes);
    if (k != NULL) ref(l, k);
    pthread_mutex_unlock(&l->lock);
    return k;
}

/* Enters one that was made without the lock, and gives it or the one that came first. */
static struct kept *enter(struct tb_layouts *l, struct kept *made)
{
    TB_ASSERT(made->refs == 0 && made->layout.encoded == made->encoded);
    pthread_mutex_lock(&l->lock);
    l->counts.taken_apart++;
    struct kept *k = find(l, &made->layout.id, made->encoded, made->layout.encoded_bytes);
    if (k != NULL) {
        ref(l, k);
    } else {
        k = made;
        k->refs = 1;
        l->counts.used++;
        LIST_INSERT_HEAD(&l->buckets[k->layout.id.bytes[0] % BUCKETS], k, bucket);
    }
    pthread_mutex_unlock(&l->lock);
    if (k != made) free_kept(made);
    return k;
}

static struct kept *new_kept(size_t memory_bytes, size_t encoded_bytes)
{
    struct kept *k = tb_calloc(1, sizeof *k);
    if (k == NULL) return NULL;
    k->memory = tb_malloc(memory_bytes);
    k->encoded = tb_malloc(encoded_bytes);
    k->bytes = memory_bytes + encoded_bytes;
    if (k->memory != NULL && k->encoded != NULL) return k;
    free_kept(k);
    return NULL;
}

/* Its encoding and its cut stand beside it from now on. TB_PEER_GARBLED: no manifest can
 * have as many chunks. */
static enum tb_status complete(struct kept *k, size_t encoded_bytes)
{
    struct tb_layout *layout = &k->layout;
    const uint32_t count = tb_cut_count(layout, 0);
    TB_ASSERT(k->cut == NULL && k->encoded != NULL);
    if (count > TB_CHUNKS_MAX) return TB_PEER_GARBLED;
    k->cut = tb_calloc((size_t)count + 1, sizeof *k->cut);
    if (k->cut == NULL) return TB_SITE_NOMEM;
    tb_cut(layout, 0, k->cut);
    k->bytes += (count + 1) * sizeof *k->cut;
    layout->cut = k->cut;
    layout->cut_count = count;
    layout->encoded = k->encoded;
    layout->encoded_bytes = encoded_bytes;
    return TB_OK;
}

static enum tb_status take_encoded(struct tb_layouts *l, const uint8_t *encoded, size_t bytes,
                                   const struct tb_layout **layout_out)
{
    const struct tb_digest id = tb_digest_of(encoded, bytes);
    struct kept *k = take_known(l, &id, encoded, bytes);
    if (k == NULL) {
        const size_t memory_bytes = tb_layout_decode_bytes(encoded, bytes);
        if (memory_bytes == 0) return TB_PEER_GARBLED;
        k = new_kept(memory_bytes, bytes);
        if (k == NULL) return TB_SITE_NOMEM;
        memcpy(k->encoded, encoded, bytes);
        enum tb_status status = tb_layout_decode(encoded, bytes, k->memory, memory_bytes, &k->layout);
        if (status == TB_OK) status = complete(k, bytes);
        if (status != TB_OK) {
            free_kept(k);
            return status;
        }
        k = enter(l, k);
    }
    *layout_out = &k->layout;
    return TB_OK;
}

/* encoded: of `from`. */
static enum tb_status copy_encoded(struct tb_layouts *l, const struct tb_layout *from, const uint8_t *encoded,
                                   size_t bytes, const struct tb_layout **layout_out)
{
    struct kept *k = take_known(l, &from->id, encoded, bytes);
    if (k == NULL) {
        const size_t memory_bytes = tb_layout_copy_bytes(from);
        k = new_kept(memory_bytes > 0 ? memory_bytes : 16, bytes);
        if (k == NULL) return TB_SITE_NOMEM;
        memcpy(k->encoded, encoded, bytes);
        const enum tb_status copied = tb_layout_copy(from, k->memory, memory_bytes, &k->layout);
        TB_ASSERT(copied == TB_OK); /* it has the room that was asked for */
        const enum tb_status status = complete(k, bytes);
        if (status != TB_OK) {
            free_kept(k);
            return status == TB_PEER_GARBLED ? TB_TOO_LARGE : status;
        }
        k = enter(l, k);
    }
    *layout_out = &k->layout;
    return TB_OK;
}

static enum tb_status take_copy(struct tb_layouts *l, const struct tb_layout *from,
                                const struct tb_layout **layout_out)
{
    const size_t bytes = tb_layout_encoded_bytes(from);
    uint8_t *encoded = tb_malloc(bytes);
    if (encoded == NULL) return TB_SITE_NOMEM;
    struct tb_writer w;
    tb_writer_init(&w, encoded, bytes);
    tb_layout_encode(from, &w);
    TB_ASSERT(!w.full && w.used == bytes);
    const enum tb_status status = copy_encoded(l, from, encoded, bytes, layout_out);
    tb_free(encoded);
    return status;
}

static void give(struct tb_layouts *l, const struct tb_layout *layout)
{
    struct kept *k = (struct kept *)(uintptr_t)layout; /* its first member, ours to change */
    pthread_mutex_lock(&l->lock);
    unref(l, k);
    if (TB_CHECK_TURNS) check(l);
    pthread_mutex_unlock(&l->lock);
}

/* ---- manifests ---- */

enum tb_status tb_layouts_decode(struct tb_layouts *l, const void *head, size_t head_bytes,
                                 struct tb_manifest_memory *memory_out, struct tb_manifest *manifest_out)
{
    struct tb_manifest_memory memory = {NULL, NULL};
    size_t encoded_bytes;
    const uint8_t *encoded = tb_manifest_head_layout(head, head_bytes, &encoded_bytes);
    if (encoded == NULL) return TB_PEER_GARBLED;
    enum tb_status status = take_encoded(l, encoded, encoded_bytes, &memory.layout);
    if (status != TB_OK) return status;
    const size_t bytes = tb_manifest_decode_bytes_on(head, head_bytes, memory.layout);
    status = bytes == 0 ? TB_PEER_GARBLED : TB_SITE_NOMEM;
    if (bytes > 0) memory.tables = tb_malloc(bytes);
    if (memory.tables != NULL)
        status =
            tb_manifest_head_decode_on(head, head_bytes, memory.layout, memory.tables, bytes, manifest_out);
    if (status == TB_OK)
        *memory_out = memory;
    else
        tb_layouts_release(l, &memory);
    return status;
}

enum tb_status tb_layouts_build(struct tb_layouts *l, const struct tb_layout *layout,
                                const struct tb_blob *blobs, uint32_t blob_count,
                                struct tb_manifest_memory *memory_out, struct tb_manifest *manifest_out)
{
    struct tb_manifest_memory memory = {NULL, NULL};
    enum tb_status status = take_copy(l, layout, &memory.layout);
    if (status != TB_OK) return status;
    const size_t bytes = tb_manifest_bytes_on(memory.layout, blobs, blob_count);
    memory.tables = tb_malloc(bytes > 0 ? bytes : 16); /* build says what is wrong with the blobs */
    status = memory.tables == NULL
                 ? TB_SITE_NOMEM
                 : tb_manifest_build_on(memory.layout, blobs, blob_count, memory.tables, bytes, manifest_out);
    if (status == TB_OK)
        *memory_out = memory;
    else
        tb_layouts_release(l, &memory);
    return status;
}

void tb_layouts_release(struct tb_layouts *l, struct tb_manifest_memory *memory)
{
    tb_free(memory->tables);
    if (memory->layout != NULL) give(l, memory->layout);
    *memory = (struct tb_manifest_memory){NULL, NULL};
}

void tb_layouts_count(struct tb_layouts *l, struct tb_layouts_counts *counts_out)
{
    pthread_mutex_lock(&l->lock);
    check(l);
    *counts_out = l->counts;
    pthread_mutex_unlock(&l->lock);
}

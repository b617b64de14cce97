/* encoded_chunks_chain.c - chained deltas: kept ones lead from a base that left to a version that
 * is here. The digests of the chunks of both are known. A delta leads from one digest to another,
 * whatever versions lie between. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"
#include "wan/send/base_chunks.h"
#include "wan/send/encoded_chunks_chain.h"
#include "wan/send/encoded_chunks_inside.h"

#define KNOWN_SHARE 4u /* of the budget, at most a quarter: 32 bytes a chunk */

struct tb_known {
    struct tb_known *next; /* older */
    uint32_t refs;         /* the list's own is one */
    uint64_t bytes;
    struct tb_id uid;
    struct tb_name model;
    uint32_t shard_count;
    struct tb_place *places;
};

/* ---- versions that were here ---- */

static void known_unref(struct tb_encoded_chunks *o, struct tb_known *known)
{
    TB_ASSERT(known->refs > 0);
    if (--known->refs > 0) return;
    TB_ASSERT(o->bytes >= known->bytes && o->known_bytes >= known->bytes);
    o->bytes -= known->bytes;
    o->known_bytes -= known->bytes;
    tb_free(known);
}

static struct tb_known *known_find(const struct tb_encoded_chunks *o, const struct tb_id *uid)
{
    struct tb_known *known = o->known;
    while (known != NULL && !tb_id_equal(&known->uid, uid))
        known = known->next;
    return known;
}

static void known_remove(struct tb_encoded_chunks *o, struct tb_known **at)
{
    TB_ASSERT(*at != NULL && o->known_count > 0);
    struct tb_known *known = *at;
    *at = known->next;
    o->known_count--;
    known_unref(o, known);
}

void tb_encoded_chunks_forget(struct tb_encoded_chunks *o, const struct tb_id *uid)
{
    struct tb_known **at = &o->known;
    while (*at != NULL) {
        if (uid == NULL || tb_id_equal(&(*at)->uid, uid))
            known_remove(o, at);
        else
            at = &(*at)->next;
    }
}

static void oldest_forgotten(struct tb_encoded_chunks *o)
{
    TB_ASSERT(o->known != NULL);
    struct tb_known **at = &o->known;
    while ((*at)->next != NULL)
        at = &(*at)->next;
    known_remove(o, at);
}

/* One that somebody still refers to counts until it is given back. */
static bool known_room(struct tb_encoded_chunks *o, uint64_t bytes)
{
    const uint64_t most = o->budget / KNOWN_SHARE;
    if (bytes > most) return false;
    while (o->known_count == TB_ENCODED_CHUNKS_KNOWN_MAX ||
           (o->known_count > 0 && o->known_bytes + bytes > most))
        oldest_forgotten(o);
    return o->known_bytes + bytes <= most && tb_encoded_chunks_room(o, bytes, 0);
}

static uint64_t words_most(const struct tb_place *places, uint32_t shard_count)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < shard_count; s++) {
        const uint64_t words = TB_BITMAP_WORDS(places[s].manifest->chunk_count);
        if (words > most) most = words;
    }
    return most;
}

static uint64_t known_bytes(const struct tb_place *places, uint32_t shard_count)
{
    uint64_t bytes = sizeof(struct tb_known) + words_most(places, shard_count) * sizeof(uint64_t);
    for (uint32_t s = 0; s < shard_count; s++)
        bytes += sizeof(struct tb_place) + sizeof(struct tb_manifest) +
                 places[s].manifest->chunk_count * (sizeof(struct tb_chunk) + sizeof(struct tb_digest));
    return bytes;
}

/* Of a manifest what a base is asked for: its cut and its digests. */
static uint8_t *manifest_copy(const struct tb_manifest *from, struct tb_manifest *to, uint8_t *memory)
{
    TB_ASSERT((uintptr_t)memory % _Alignof(struct tb_chunk) == 0); /* chunks stand there */
    struct tb_chunk *chunks = (struct tb_chunk *)(void *)memory;
    struct tb_digest *digests = (struct tb_digest *)(void *)(chunks + from->chunk_count);
    *to = (struct tb_manifest){.layout = {.bytes = from->layout.bytes, .id = from->layout.id},
                               .chunk_count = from->chunk_count,
                               .chunks = chunks,
                               .digests = digests,
                               .root = from->root,
                               .bytes = from->bytes};
    if (from->chunk_count == 0) return memory;
    memcpy(chunks, from->chunks, from->chunk_count * sizeof *chunks);
    memcpy(digests, from->digests, from->chunk_count * sizeof *digests);
    return (uint8_t *)(digests + from->chunk_count);
}

/* Its places hold nothing: one bitmap of zeros does for all. */
static struct tb_known *known_new(const struct tb_version_key *key, const struct tb_place *places,
                                  uint64_t bytes)
{
    struct tb_known *known = tb_calloc(1, bytes);
    if (known == NULL) return NULL;
    known->places = (struct tb_place *)(void *)(known + 1);
    struct tb_manifest *manifests = (struct tb_manifest *)(void *)(known->places + key->shard_count);
    uint64_t *none = (uint64_t *)(void *)(manifests + key->shard_count);
    uint8_t *memory = (uint8_t *)(none + words_most(places, key->shard_count));
    known->refs = 1;
    known->bytes = bytes;
    known->uid = key->uid;
    known->model = key->model;
    known->shard_count = key->shard_count;
    for (uint32_t s = 0; s < key->shard_count; s++) {
        memory = manifest_copy(places[s].manifest, &manifests[s], memory);
        known->places[s] = (struct tb_place){.manifest = &manifests[s], .held = none, .claimed = none};
    }
    TB_ASSERT(memory == (uint8_t *)known + bytes); /* known_bytes counted the same parts */
    return known;
}

void tb_encoded_chunks_know(struct tb_encoded_chunks *o, const struct tb_version_key *key,
                            const struct tb_place *places)
{
    TB_ASSERT(key->shard_count > 0);
    const uint64_t bytes = known_bytes(places, key->shard_count);
    uv_mutex_lock(&o->lock);
    if (known_find(o, &key->uid) == NULL && known_room(o, bytes)) {
        struct tb_known *known = known_new(key, places, bytes);
        if (known != NULL) {
            known->next = o->known;
            o->known = known;
            o->known_count++;
            o->known_bytes += bytes;
            o->bytes += bytes;
            TB_ASSERT(o->known_count <= TB_ENCODED_CHUNKS_KNOWN_MAX &&
                      o->known_bytes <= o->budget / KNOWN_SHARE);
        }
    }
    uv_mutex_unlock(&o->lock);
}

struct tb_known *tb_encoded_chunks_recall(struct tb_encoded_chunks *o, const struct tb_id *uid,
                                          const struct tb_name *model)
{
    uv_mutex_lock(&o->lock);
    struct tb_known *known = known_find(o, uid);
    if (known != NULL && !tb_name_equal(&known->model, model)) known = NULL;
    if (known != NULL) known->refs++;
    uv_mutex_unlock(&o->lock);
    return known;
}

const struct tb_place *tb_known_places(const struct tb_known *known, uint32_t *shard_count_out)
{
    *shard_count_out = known->shard_count;
    return known->places;
}

void tb_known_unref(struct tb_encoded_chunks *o, struct tb_known *known)
{
    uv_mutex_lock(&o->lock);
    known_unref(o, known);
    uv_mutex_unlock(&o->lock);
}

uint64_t tb_encoded_chunks_known_check(const struct tb_encoded_chunks *o)
{
    uint64_t bytes = 0;
    uint32_t count = 0;
    for (const struct tb_known *k = o->known; k != NULL; k = k->next, count++) {
        TB_ASSERT(k->refs > 0 && k->shard_count > 0 && known_find(o, &k->uid) == k);
        bytes += k->bytes;
    }
    TB_ASSERT(count == o->known_count && count <= TB_ENCODED_CHUNKS_KNOWN_MAX);
    TB_ASSERT(bytes <= o->known_bytes && o->known_bytes <= o->budget / KNOWN_SHARE);
    return bytes;
}

/* ---- what leads from one to the other ---- */

#define NOWHERE UINT64_MAX

struct edge {
    struct tb_encoded_chunk_shelf *shelf;
    struct tb_encoded_chunk *encoded;
    const struct tb_digest *from, *to;
    unsigned deltas;
    uint64_t all_bytes; /* of the least way that ends with it; NOWHERE: none does */
    unsigned all_deltas;
    const struct edge *before; /* on that way; NULL: it begins it */
};

struct way {
    const struct tb_encoded_chunk_name *name;
    const struct tb_known *version;
    const struct tb_digest *from, *to;
    struct edge edges[TB_ENCODED_CHUNKS_PAIRS_MAX];
    unsigned count;
};

/* The chunk's digest in a version of the same model, where it is cut alike; else NULL. */
static const struct tb_digest *digest_in(const struct tb_encoded_chunks *o, const struct way *w,
                                         const struct tb_id *uid)
{
    const struct tb_known *known = known_find(o, uid);
    const uint32_t shard = w->name->shard, chunk = w->name->chunk;
    if (known == NULL || !tb_name_equal(&known->model, &w->version->model)) return NULL;
    if (shard >= known->shard_count || shard >= w->version->shard_count) return NULL;
    const struct tb_manifest *m = known->places[shard].manifest;
    const struct tb_manifest *version = w->version->places[shard].manifest;
    if (chunk >= version->chunk_count || !tb_base_fits(version, m, chunk)) return NULL;
    return &m->digests[chunk];
}

static void edge_add(const struct tb_encoded_chunks *o, struct way *w, struct tb_encoded_chunk_pair *p)
{
    const uint32_t shard = w->name->shard, chunk = w->name->chunk;
    if (shard >= p->shard_count || p->shards[shard].chunks == NULL || chunk >= p->shards[shard].count) return;
    struct tb_encoded_chunk *encoded = p->shards[shard].chunks[chunk];
    if (encoded == NULL) return;
    const struct tb_codec_coded coded = tb_encoded_chunk_coded(encoded);
    struct edge e = {.shelf = &p->shards[shard],
                     .encoded = encoded,
                     .from = digest_in(o, w, &p->base),
                     .to = digest_in(o, w, &p->uid),
                     .deltas = tb_codec_deltas(&coded),
                     .all_bytes = NOWHERE};
    if (e.from == NULL || e.to == NULL || e.deltas == 0) return;
    if (tb_digest_equal(e.from, w->from)) {
        e.all_bytes = e.encoded->count;
        e.all_deltas = e.deltas;
    }
    TB_ASSERT(w->count < TB_ENCODED_CHUNKS_PAIRS_MAX); /* one for each pair */
    w->edges[w->count++] = e;
}

static bool way_begin(const struct tb_encoded_chunks *o, struct way *w,
                      const struct tb_encoded_chunk_name *name)
{
    w->name = name;
    w->count = 0;
    w->version = known_find(o, name->uid);
    if (w->version == NULL) return false;
    w->from = digest_in(o, w, name->base);
    w->to = digest_in(o, w, name->uid);
    if (w->from == NULL || w->to == NULL) return false;
    for (struct tb_encoded_chunk_pair *p = o->pairs; p != NULL; p = p->next)
        edge_add(o, w, p);
    return true;
}

/* Is e sooner reached behind f? */
static bool follows(const struct edge *e, const struct edge *f)
{
    if (f->all_bytes == NOWHERE || !tb_digest_equal(f->to, e->from)) return false;
    return f->all_deltas + e->deltas <= TB_CODEC_CHAINED_MAX &&
           f->all_bytes + e->encoded->count < e->all_bytes;
}

static bool spread_once(struct way *w)
{
    bool changed = false;
    for (unsigned i = 0; i < w->count; i++) {
        struct edge *e = &w->edges[i];
        for (unsigned k = 0; k < w->count; k++) {
            const struct edge *f = &w->edges[k];
            if (!follows(e, f)) continue;
            e->all_bytes = f->all_bytes + e->encoded->count;
            e->all_deltas = f->all_deltas + e->deltas;
            TB_ASSERT(e->all_deltas <= TB_CODEC_CHAINED_MAX);
            e->before = f;
            changed = true;
        }
    }
    return changed;
}

/* The last edge of the way with the fewest bytes; NULL: there is none. */
static const struct edge *way_end(struct way *w)
{
    const struct edge *best = NULL;
    for (unsigned round = 0; round < TB_CODEC_CHAINED_MAX && spread_once(w); round++)
        continue;
    for (unsigned i = 0; i < w->count; i++) {
        const struct edge *e = &w->edges[i];
        if (e->all_bytes == NOWHERE || !tb_digest_equal(e->to, w->to)) continue;
        if (best == NULL || e->all_bytes < best->all_bytes) best = e;
    }
    return best;
}

/* Its edges, the first one first. 0: they are too many after all, as one before the last has found
 * a way of fewer bytes in more deltas. */
static unsigned way_walk(const struct edge *end, const struct edge *edges_out[TB_CODEC_CHAINED_MAX])
{
    unsigned count = 0, deltas = 0;
    for (const struct edge *e = end; e != NULL; e = e->before) {
        deltas += e->deltas;
        if (deltas > TB_CODEC_CHAINED_MAX) return 0;
        count++;
    }
    TB_ASSERT(count <= TB_CODEC_CHAINED_MAX); /* each edge is one or more */
    unsigned at = count;
    for (const struct edge *e = end; e != NULL; e = e->before)
        edges_out[--at] = e;
    return count;
}

static unsigned way_find(struct tb_encoded_chunks *o, struct way *w, const struct tb_encoded_chunk_name *name,
                         const struct edge *edges_out[TB_CODEC_CHAINED_MAX])
{
    return way_begin(o, w, name) ? way_walk(way_end(w), edges_out) : 0;
}

unsigned tb_encoded_chunks_chain(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                                 struct tb_encoded_chunk *encoded_chunks_out[TB_CODEC_CHAINED_MAX])
{
    struct way w;
    const struct edge *edges[TB_CODEC_CHAINED_MAX];
    uv_mutex_lock(&o->lock);
    const unsigned count = way_find(o, &w, name, edges);
    for (unsigned i = 0; i < count; i++) {
        encoded_chunks_out[i] = edges[i]->encoded;
        encoded_chunks_out[i]->refs++;
    }
    TB_ASSERT(count <= TB_CODEC_CHAINED_MAX);
    o->chained += count > 0;
    uv_mutex_unlock(&o->lock);
    return count;
}

void tb_encoded_chunks_chain_wrong(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name)
{
    struct way w;
    const struct edge *edges[TB_CODEC_CHAINED_MAX];
    const unsigned count = way_find(o, &w, name, edges);
    for (unsigned i = 0; i < count; i++)
        (void)tb_encoded_chunks_is_wrong(o, edges[i]->shelf, name->chunk);
}

/* encoded_chunks.c - a few tables of pointers behind one lock. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bitmap.h"
#include "wan/send/encoded_chunks_inside.h"

enum tb_status tb_encoded_chunks_new(uint64_t budget_bytes, struct tb_encoded_chunks **encoded_chunks_out)
{
    struct tb_encoded_chunks *o = tb_calloc(1, sizeof *o);
    if (o == NULL) return TB_SITE_NOMEM;
    if (uv_mutex_init(&o->lock) != 0) {
        tb_free(o);
        return TB_SITE_NOMEM;
    }
    o->budget = budget_bytes;
    *encoded_chunks_out = o;
    return TB_OK;
}

static uint64_t encoded_bytes(const struct tb_encoded_chunk *encoded)
{
    return sizeof *encoded + encoded->count;
}

static void encoded_unref(struct tb_encoded_chunks *o, struct tb_encoded_chunk *encoded)
{
    TB_ASSERT(encoded->refs > 0);
    if (--encoded->refs > 0) return;
    TB_ASSERT(o->bytes >= encoded_bytes(encoded) && o->count > 0);
    o->bytes -= encoded_bytes(encoded);
    o->count--;
    tb_free(encoded);
}

static uint64_t pair_bytes(uint32_t shard_count)
{
    return sizeof(struct tb_encoded_chunk_pair) + shard_count * sizeof(struct tb_encoded_chunk_shelf);
}

static uint64_t shelf_bytes(uint32_t chunk_count)
{
    return chunk_count * sizeof(struct tb_encoded_chunk *) + TB_BITMAP_WORDS(chunk_count) * sizeof(uint64_t);
}

static void shelf_free(struct tb_encoded_chunks *o, struct tb_encoded_chunk_shelf *shelf)
{
    for (uint32_t k = 0; k < shelf->count; k++)
        if (shelf->chunks[k] != NULL) encoded_unref(o, shelf->chunks[k]);
    TB_ASSERT(o->bytes >= shelf_bytes(shelf->count));
    o->bytes -= shelf_bytes(shelf->count);
    tb_free(shelf->chunks);
}

static void pair_free(struct tb_encoded_chunks *o, struct tb_encoded_chunk_pair **at)
{
    struct tb_encoded_chunk_pair *p = *at;
    *at = p->next;
    for (uint32_t s = 0; s < p->shard_count; s++)
        if (p->shards[s].chunks != NULL) shelf_free(o, &p->shards[s]);
    TB_ASSERT(o->bytes >= pair_bytes(p->shard_count) && o->pair_count > 0);
    o->bytes -= pair_bytes(p->shard_count);
    o->pair_count--;
    tb_free(p);
}

void tb_encoded_chunks_free(struct tb_encoded_chunks *o)
{
    if (o == NULL) return;
    while (o->pairs != NULL)
        pair_free(o, &o->pairs);
    tb_encoded_chunks_forget(o, NULL);
    TB_ASSERT(o->count == 0 && o->known_count == 0);
    uv_mutex_destroy(&o->lock);
    tb_free(o);
}

static struct tb_encoded_chunk_pair *pair_find(struct tb_encoded_chunks *o,
                                               const struct tb_encoded_chunk_name *name)
{
    struct tb_encoded_chunk_pair *p = o->pairs;
    while (p != NULL && !(tb_id_equal(&p->uid, name->uid) && tb_id_equal(&p->base, name->base)))
        p = p->next;
    return p;
}

static struct tb_encoded_chunk_shelf *shelf_of(struct tb_encoded_chunks *o,
                                               const struct tb_encoded_chunk_name *name)
{
    struct tb_encoded_chunk_pair *p = pair_find(o, name);
    TB_ASSERT(p == NULL || name->shard < p->shard_count);
    struct tb_encoded_chunk_shelf *shelf =
        p != NULL && p->shards[name->shard].chunks != NULL ? &p->shards[name->shard] : NULL;
    TB_ASSERT(shelf == NULL || name->chunk < shelf->count);
    return shelf;
}

/* The oldest pair goes. */
static void make_room(struct tb_encoded_chunks *o)
{
    TB_ASSERT(o->pairs != NULL && o->pair_count > 0);
    struct tb_encoded_chunk_pair **at = &o->pairs;
    while ((*at)->next != NULL)
        at = &(*at)->next;
    pair_free(o, at);
}

bool tb_encoded_chunks_room(struct tb_encoded_chunks *o, uint64_t bytes, uint32_t least)
{
    if (bytes > o->budget) return false;
    while (o->bytes + bytes > o->budget && o->pair_count > least)
        make_room(o);
    return o->bytes + bytes <= o->budget;
}

static struct tb_encoded_chunk_pair *pair_new(struct tb_encoded_chunks *o,
                                              const struct tb_encoded_chunk_name *name)
{
    TB_ASSERT(name->shard_count > 0);
    const uint64_t bytes = pair_bytes(name->shard_count);
    if (o->pair_count == TB_ENCODED_CHUNKS_PAIRS_MAX) make_room(o);
    if (!tb_encoded_chunks_room(o, bytes, 0)) return NULL;
    struct tb_encoded_chunk_pair *p = tb_calloc(1, bytes);
    if (p == NULL) return NULL;
    *p = (struct tb_encoded_chunk_pair){
        .next = o->pairs, .uid = *name->uid, .base = *name->base, .shard_count = name->shard_count};
    o->pairs = p;
    o->pair_count++;
    o->bytes += bytes;
    TB_ASSERT(o->pair_count <= TB_ENCODED_CHUNKS_PAIRS_MAX && o->bytes <= o->budget);
    return p;
}

/* Makes it where there is none; NULL: no room. */
static struct tb_encoded_chunk_shelf *shelf_get(struct tb_encoded_chunks *o,
                                                const struct tb_encoded_chunk_name *name)
{
    TB_ASSERT(name->shard < name->shard_count);
    struct tb_encoded_chunk_shelf *shelf = shelf_of(o, name);
    if (shelf != NULL) return shelf;
    struct tb_encoded_chunk_pair *p = pair_find(o, name);
    if (p == NULL) p = pair_new(o, name);
    const uint64_t bytes = shelf_bytes(name->chunk_count);
    if (p == NULL || !tb_encoded_chunks_room(o, bytes, 1)) return NULL;
    p = pair_find(o, name); /* it may have been the oldest */
    if (p == NULL) return NULL;
    shelf = &p->shards[name->shard];
    shelf->chunks = tb_calloc(1, bytes);
    if (shelf->chunks == NULL) return NULL;
    shelf->known = (uint64_t *)(void *)(shelf->chunks + name->chunk_count);
    shelf->count = name->chunk_count;
    TB_ASSERT(name->chunk < shelf->count);
    o->bytes += bytes;
    return shelf;
}

static struct tb_encoded_chunk *encoded_new(struct tb_encoded_chunks *o,
                                            const struct tb_encoded_chunk_news *news)
{
    TB_ASSERT(news->coded->form.on_base); /* forms on no base are not kept */
    TB_ASSERT(news->coded->count <= UINT32_MAX);
    const struct tb_codec_coded *coded = news->coded;
    struct tb_encoded_chunk *encoded = tb_malloc(sizeof *encoded + coded->count);
    if (encoded == NULL) return NULL;
    *encoded = (struct tb_encoded_chunk){.refs = 1,
                                         .from = news->from,
                                         .form = coded->form,
                                         .digest = tb_digest_of(coded->bytes, coded->count),
                                         .count = (uint32_t)coded->count};
    memcpy(encoded->bytes, coded->bytes, coded->count);
    o->bytes += encoded_bytes(encoded);
    o->count++;
    return encoded;
}

static void put_locked(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                       const struct tb_encoded_chunk_news *news)
{
    const struct tb_codec_coded *coded = news->coded;
    struct tb_encoded_chunk_shelf *shelf = shelf_get(o, name);
    if (shelf == NULL || shelf->chunks[name->chunk] != NULL) return;
    if (news->from == TB_ENCODED_CHUNK_OF_RANK) { /* what we make ourselves is no sign of it */
        shelf->news_at = news->now;
        shelf->came += !tb_bitmap_test(shelf->known, name->chunk);
    }
    (void)tb_bitmap_set(shelf->known, name->chunk);
    if (coded == NULL || !tb_encoded_chunks_room(o, sizeof(struct tb_encoded_chunk) + coded->count, 1))
        return;
    shelf = shelf_of(o, name); /* its pair may have been the oldest */
    if (shelf != NULL) shelf->chunks[name->chunk] = encoded_new(o, news);
}

void tb_encoded_chunks_put(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                           const struct tb_encoded_chunk_news *news)
{
    TB_ASSERT(news->from < TB_ENCODED_CHUNK_FROMS);
    TB_ASSERT(name->shard < name->shard_count && name->chunk < name->chunk_count);
    TB_ASSERT(news->coded == NULL || news->coded->form.on_base);
    uv_mutex_lock(&o->lock);
    if (news->coded != NULL) {
        o->from[news->from].count++;
        o->from[news->from].bytes += news->coded->count;
    }
    put_locked(o, name, news);
    uv_mutex_unlock(&o->lock);
}

static bool is_damaged(const struct tb_encoded_chunk *encoded)
{
    const struct tb_digest digest = tb_digest_of(encoded->bytes, encoded->count);
    return !tb_digest_equal(&digest, &encoded->digest);
}

bool tb_encoded_chunks_is_wrong(struct tb_encoded_chunks *o, struct tb_encoded_chunk_shelf *shelf,
                                uint32_t chunk)
{
    struct tb_encoded_chunk *encoded = shelf != NULL ? shelf->chunks[chunk] : NULL;
    if (encoded == NULL) return false;
    TB_ASSERT(chunk < shelf->count && encoded->refs > 0);
    const bool damaged = is_damaged(encoded);
    if (encoded->from == TB_ENCODED_CHUNK_MADE_HERE && !damaged) return true;
    o->damaged += damaged;
    shelf->chunks[chunk] = NULL;
    encoded_unref(o, encoded);
    o->bad++;
    return true;
}

void tb_encoded_chunks_bad(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name)
{
    uv_mutex_lock(&o->lock);
    if (!tb_encoded_chunks_is_wrong(o, shelf_of(o, name), name->chunk))
        tb_encoded_chunks_chain_wrong(o, name);
    uv_mutex_unlock(&o->lock);
}

struct tb_encoded_chunk *tb_encoded_chunks_find(struct tb_encoded_chunks *o,
                                                const struct tb_encoded_chunk_name *name)
{
    uv_mutex_lock(&o->lock);
    const struct tb_encoded_chunk_shelf *shelf = shelf_of(o, name);
    struct tb_encoded_chunk *encoded = shelf != NULL ? shelf->chunks[name->chunk] : NULL;
    if (encoded != NULL) {
        /* each one here is known */
        TB_ASSERT(encoded->refs > 0 && tb_bitmap_test(shelf->known, name->chunk));
        encoded->refs++;
        o->used++;
    }
    uv_mutex_unlock(&o->lock);
    return encoded;
}

/* ---- on their way ---- */

void tb_encoded_chunks_coming(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                              bool coming, tb_time_ns now)
{
    if (name->chunk_count == 0) return;
    uv_mutex_lock(&o->lock);
    struct tb_encoded_chunk_shelf *shelf = coming ? shelf_get(o, name) : shelf_of(o, name);
    if (shelf != NULL) {
        if (coming && !shelf->began) shelf->began_at = now; /* to say it again does not begin anew */
        shelf->began |= coming;
        shelf->coming = coming;
        shelf->news_at = now;
    }
    uv_mutex_unlock(&o->lock);
}

static void unknown(const struct tb_encoded_chunk_shelf *shelf, uint64_t *words_out)
{
    TB_ASSERT(shelf->count > 0);
    const uint64_t words = TB_BITMAP_WORDS(shelf->count);
    for (uint64_t w = 0; w < words; w++)
        words_out[w] = ~shelf->known[w];
    if (shelf->count % 64 != 0) words_out[words - 1] &= (UINT64_C(1) << (shelf->count % 64)) - 1;
}

/* P7: a rank that shows one now and then does not set everybody's pace. */
static bool keeps_up(const struct tb_encoded_chunk_shelf *shelf, tb_time_ns now)
{
    return tb_time_since(shelf->began_at, now) <
           TB_ENCODED_CHUNKS_PATIENCE_WHOLE + shelf->came * TB_ENCODED_CHUNKS_PATIENCE_EACH;
}

/* More of it are on their way, by all that is known. */
static bool comes(const struct tb_encoded_chunk_shelf *shelf, tb_time_ns now)
{
    if (shelf == NULL || !keeps_up(shelf, now)) return false;
    return shelf != NULL && shelf->coming && tb_time_since(shelf->news_at, now) < TB_ENCODED_CHUNKS_PATIENCE;
}

bool tb_encoded_chunks_awaited(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                               tb_time_ns now, uint64_t *words_out)
{
    uv_mutex_lock(&o->lock);
    const struct tb_encoded_chunk_shelf *shelf = shelf_of(o, name);
    const bool awaited = comes(shelf, now);
    if (awaited) unknown(shelf, words_out);
    uv_mutex_unlock(&o->lock);
    return awaited;
}

bool tb_encoded_chunks_awaits(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                              tb_time_ns now)
{
    uv_mutex_lock(&o->lock);
    const struct tb_encoded_chunk_shelf *shelf = shelf_of(o, name);
    const bool awaits = comes(shelf, now) && !tb_bitmap_test(shelf->known, name->chunk);
    uv_mutex_unlock(&o->lock);
    return awaits;
}

void tb_encoded_chunks_drop(struct tb_encoded_chunks *o, const struct tb_id *uid)
{
    uv_mutex_lock(&o->lock);
    struct tb_encoded_chunk_pair **at = &o->pairs;
    while (*at != NULL) {
        if (tb_id_equal(&(*at)->uid, uid))
            pair_free(o, at);
        else
            at = &(*at)->next;
    }
    tb_encoded_chunks_forget(o, uid);
    uv_mutex_unlock(&o->lock);
}

struct tb_codec_coded tb_encoded_chunk_coded(const struct tb_encoded_chunk *encoded)
{
    return (struct tb_codec_coded){encoded->form, encoded->bytes, encoded->count};
}

enum tb_encoded_chunk_from tb_encoded_chunk_from(const struct tb_encoded_chunk *encoded)
{
    return encoded->from;
}

void tb_encoded_chunk_unref(struct tb_encoded_chunks *o, struct tb_encoded_chunk *encoded)
{
    uv_mutex_lock(&o->lock);
    encoded_unref(o, encoded);
    uv_mutex_unlock(&o->lock);
}

/* ---- what holds between two calls ---- */

static void shelf_check(const struct tb_encoded_chunk_shelf *shelf, uint64_t *bytes, uint64_t *count)
{
    *bytes += shelf_bytes(shelf->count);
    for (uint32_t k = 0; k < shelf->count; k++) {
        const struct tb_encoded_chunk *encoded = shelf->chunks[k];
        if (encoded == NULL) continue;
        TB_ASSERT(encoded->refs > 0 && encoded->form.on_base && encoded->from < TB_ENCODED_CHUNK_FROMS);
        TB_ASSERT(tb_bitmap_test(shelf->known, k));
        *bytes += encoded_bytes(encoded);
        ++*count;
    }
    TB_ASSERT(shelf->began || !shelf->coming);
}

/* Encoded chunks and versions that left, and that a caller still refers to, count until they are
 * given back. So the sums may be above those of the tables. */
void tb_encoded_chunks_check(struct tb_encoded_chunks *o)
{
    uint64_t bytes = 0, count = 0;
    uint32_t pairs = 0;
    uv_mutex_lock(&o->lock);
    for (const struct tb_encoded_chunk_pair *p = o->pairs; p != NULL; p = p->next, pairs++) {
        bytes += pair_bytes(p->shard_count);
        for (uint32_t s = 0; s < p->shard_count; s++)
            if (p->shards[s].chunks != NULL) shelf_check(&p->shards[s], &bytes, &count);
    }
    TB_ASSERT(pairs == o->pair_count && pairs <= TB_ENCODED_CHUNKS_PAIRS_MAX);
    TB_ASSERT(count <= o->count);
    TB_ASSERT(bytes + tb_encoded_chunks_known_check(o) <= o->bytes && o->bytes <= o->budget);
    uv_mutex_unlock(&o->lock);
}

bool tb_encoded_chunks_are_few(struct tb_encoded_chunks *o)
{
    uv_mutex_lock(&o->lock);
    const bool few = o->count + o->pair_count <= TB_ENCODED_CHUNKS_FEW;
    uv_mutex_unlock(&o->lock);
    return few;
}

void tb_encoded_chunks_stats(struct tb_encoded_chunks *o, struct tb_encoded_chunks_stats *stats_out)
{
    *stats_out = (struct tb_encoded_chunks_stats){0};
    if (o == NULL) return;
    uv_mutex_lock(&o->lock);
    if (o->bytes > o->most_bytes) o->most_bytes = o->bytes;
    *stats_out = (struct tb_encoded_chunks_stats){.bytes = o->bytes,
                                                  .most_bytes = o->most_bytes,
                                                  .budget_bytes = o->budget,
                                                  .count = o->count,
                                                  .pairs = o->pair_count,
                                                  .used = o->used,
                                                  .chained = o->chained,
                                                  .known = o->known_count,
                                                  .bad = o->bad,
                                                  .damaged = o->damaged};
    memcpy(stats_out->from, o->from, sizeof o->from);
    TB_ASSERT(o->bytes <= o->budget && o->most_bytes <= o->budget);
    uv_mutex_unlock(&o->lock);
}

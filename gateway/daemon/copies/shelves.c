#include "gateway/daemon/copies/shelves.h"

#include <pthread.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/scratch_memory.h"

#define LOOK_AGAIN TB_MS(2) /* while chunks are still to land */

struct tb_shelf_work {
    struct tb_shelf_work *next; /* older */
    struct tb_shelves *shelves;
    struct tb_shelf_task task;
    uint32_t shard, chunk, line; /* where to look next */
    uint32_t left;               /* chunks without an entry */
    const struct tb_place *places[];
};

struct tb_shelves {
    pthread_t thread;
    pthread_mutex_t lock; /* of all below but the codec and its room, which are the thread's */
    pthread_cond_t changed;
    struct tb_shelf_work *works; /* the newest first */
    struct tb_shelf_work *in_hand;
    struct tb_shelves_stats stats;
    bool stopping;
    struct tb_codec *codec;
    struct tb_room room;
};

/* ---- one chunk: without the lock, as the work is in hand ---- */

/* One run of gaps: of all forms the fastest to decode, and readers of a chain all decode. */
static bool encode(struct tb_shelves *s, const struct tb_shelf_work *w, struct tb_codec_coded *coded_out)
{
    const struct tb_place *place = w->task.places[w->shard], *base = w->task.bases[w->shard];
    const struct tb_manifest *m = place->manifest;
    uint32_t bytes = 0, base_bytes = 0;
    const uint8_t *chunk = tb_place_chunk(place, w->chunk, &bytes);
    const struct tb_codec_input in = {.bytes = chunk,
                                      .count = bytes,
                                      .dtype = tb_layout_dtype_at(&m->layout, m->chunks[w->chunk].offset),
                                      .base = tb_place_chunk(base, w->chunk, &base_bytes),
                                      .classes = 1};
    const size_t bound = tb_codec_bound(TB_CODEC_SPARSE, bytes);
    TB_ASSERT(base_bytes == bytes);
    if (!tb_room_for(&s->room, bound)) return false;
    const struct tb_codec_form form = {.id = TB_CODEC_SPARSE, .on_base = true};
    const struct tb_codec_room room = {s->room.bytes, s->room.cap};
    if (tb_codec_encode(s->codec, form, &in, room, coded_out) != TB_OK) return false;
    return coded_out->form.on_base && TB_SHELF_GAINS(bytes, coded_out->count);
}

static struct tb_encoded_chunk_name name_of(const struct tb_shelf_work *w)
{
    return (struct tb_encoded_chunk_name){.uid = &w->task.uid,
                                          .base = &w->task.base,
                                          .shard = w->shard,
                                          .chunk = w->chunk,
                                          .shard_count = w->task.shard_count,
                                          .chunk_count = w->task.places[w->shard]->manifest->chunk_count};
}

/* Its publisher, or a link, encoded it already. */
static struct tb_encoded_chunk *find_encoded(const struct tb_shelf_work *w)
{
    const struct tb_encoded_chunk_name name = name_of(w);
    return w->task.encoded_chunks != NULL ? tb_encoded_chunks_find(w->task.encoded_chunks, &name) : NULL;
}

/* A rank or a link made it, and it is small enough to go on as it is. */
static bool forward(struct tb_shelf_work *w, struct tb_shelves_stats *more)
{
    struct tb_encoded_chunk *encoded = find_encoded(w);
    if (encoded == NULL) return false;
    const struct tb_codec_coded coded = tb_encoded_chunk_coded(encoded);
    const bool good = TB_SHELF_GAINS(w->task.places[w->shard]->manifest->chunks[w->chunk].bytes, coded.count);
    if (good) tb_shelf_put(w->task.shelf, w->line, &coded);
    tb_encoded_chunk_unref(w->task.encoded_chunks, encoded);
    more->bytes = good ? coded.count : 0;
    return good;
}

static void put(struct tb_shelves *s, struct tb_shelf_work *w, struct tb_shelves_stats *more)
{
    TB_ASSERT(w->line < w->task.shelf->count && !tb_shelf_has(w->task.shelf, w->line));
    struct tb_codec_coded coded = {.count = 0};
    more->forwarded = forward(w, more);
    const bool made = more->forwarded == 0 && encode(s, w, &coded);
    if (more->forwarded == 0) tb_shelf_put(w->task.shelf, w->line, made ? &coded : NULL);
    if (made) more->bytes = coded.count;
    more->chunks = made + more->forwarded;
    more->without = !more->chunks;
    more->raw_bytes = more->chunks * w->task.places[w->shard]->manifest->chunks[w->chunk].bytes;
}

/* ---- which ---- */

static void step(struct tb_shelf_work *w)
{
    TB_ASSERT(w->shard < w->task.shard_count && w->line < w->task.shelf->count);
    w->line++;
    w->chunk++;
    while (w->shard < w->task.shard_count && w->chunk >= w->task.places[w->shard]->manifest->chunk_count) {
        w->shard++;
        w->chunk = 0;
    }
    if (w->shard < w->task.shard_count) return;
    w->line = w->shard = w->chunk = 0;
    while (w->task.places[w->shard]->manifest->chunk_count == 0)
        w->shard++; /* the line is not empty, so one has chunks */
}

/* A rank or a link is about to encode it. */
static bool awaited(const struct tb_shelf_work *w, tb_time_ns now)
{
    const struct tb_encoded_chunk_name name = name_of(w);
    return w->task.encoded_chunks != NULL && tb_encoded_chunks_awaits(w->task.encoded_chunks, &name, now);
}

/* The next chunk that is here and has no entry; false: none now. */
static bool find(struct tb_shelf_work *w)
{
    const tb_time_ns now = tb_clock_now();
    for (uint32_t looked = 0; w->left > 0 && looked < w->task.shelf->count; looked++) {
        if (!tb_shelf_has(w->task.shelf, w->line) && tb_place_held(w->task.places[w->shard], w->chunk) &&
            !awaited(w, now))
            return true;
        step(w);
    }
    return false;
}

/* Under the lock, which is let go meanwhile. False: there was nothing to do. */
static bool work_once(struct tb_shelves *s, struct tb_shelf_work *w)
{
    struct tb_shelves_stats more = {0};
    if (!find(w)) return false;
    s->in_hand = w;
    pthread_mutex_unlock(&s->lock);
    put(s, w, &more);
    pthread_mutex_lock(&s->lock);
    TB_ASSERT(s->in_hand == w && w->left > 0);
    s->in_hand = NULL;
    s->stats.chunks += more.chunks;
    s->stats.without += more.without;
    s->stats.forwarded += more.forwarded;
    s->stats.bytes += more.bytes;
    s->stats.raw_bytes += more.raw_bytes;
    if (--w->left == 0) tb_shelf_close(w->task.shelf);
    pthread_cond_broadcast(&s->changed);
    return true;
}

static void rest(struct tb_shelves *s)
{
    bool unfinished = false;
    for (const struct tb_shelf_work *w = s->works; w != NULL; w = w->next)
        unfinished = unfinished || w->left > 0;
    if (!unfinished) {
        pthread_cond_wait(&s->changed, &s->lock);
        return;
    }
    const tb_time_ns at = tb_clock_now() + LOOK_AGAIN;
    const struct timespec until = {.tv_sec = (time_t)(at / TB_SECONDS(1)),
                                   .tv_nsec = (long)(at % TB_SECONDS(1))};
    (void)pthread_cond_timedwait(&s->changed, &s->lock, &until);
}

static void *run(void *user)
{
    struct tb_shelves *s = user;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        bool worked = false;
        for (struct tb_shelf_work *w = s->works; w != NULL && !worked; w = w->next)
            worked = work_once(s, w);
        if (!worked) rest(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the owner's calls ---- */

static bool condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0) return false;
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    const bool made = pthread_cond_init(condition, &monotonic) == 0;
    (void)pthread_condattr_destroy(&monotonic);
    return made;
}

enum tb_status tb_shelves_open(struct tb_shelves **shelves_out)
{
    struct tb_shelves *s = tb_calloc(1, sizeof *s);
    if (s == NULL) return TB_SITE_NOMEM;
    if (tb_codec_new(&s->codec) != TB_OK) goto undo_memory;
    if (!condition_init(&s->changed)) goto undo_codec;
    if (pthread_mutex_init(&s->lock, NULL) != 0) goto undo_condition;
    if (pthread_create(&s->thread, NULL, run, s) != 0) goto undo_lock;
    *shelves_out = s;
    return TB_OK;

undo_lock:
    pthread_mutex_destroy(&s->lock);
undo_condition:
    pthread_cond_destroy(&s->changed);
undo_codec:
    tb_codec_free(s->codec);
undo_memory:
    tb_free(s);
    return TB_SITE_NOMEM;
}

void tb_shelves_close(struct tb_shelves *s)
{
    if (s == NULL) return;
    TB_ASSERT(s->works == NULL);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    tb_codec_free(s->codec);
    tb_room_free(&s->room);
    tb_free(s);
}

enum tb_status tb_shelves_work_begin(struct tb_shelves *s, const struct tb_shelf_task *task,
                                     struct tb_shelf_work **work_out)
{
    const uint32_t n = task->shard_count;
    struct tb_shelf_work *w = tb_calloc(1, sizeof *w + 2 * n * sizeof w->places[0]);
    if (w == NULL) return TB_SITE_NOMEM;
    w->shelves = s;
    w->task = *task;
    memcpy(w->places, task->places, n * sizeof w->places[0]);
    memcpy(w->places + n, task->bases, n * sizeof w->places[0]);
    w->task.places = w->places;
    w->task.bases = w->places + n;
    w->left = task->shelf->count;
    TB_ASSERT(w->left > 0);
    while (w->task.places[w->shard]->manifest->chunk_count == 0)
        w->shard++;
    tb_shelf_open(task->shelf, &task->base);
    pthread_mutex_lock(&s->lock);
    w->next = s->works;
    s->works = w;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    *work_out = w;
    return TB_OK;
}

void tb_shelves_work_end(struct tb_shelf_work *w)
{
    if (w == NULL) return;
    struct tb_shelves *s = w->shelves;
    pthread_mutex_lock(&s->lock);
    struct tb_shelf_work **at = &s->works;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    while (s->in_hand == w)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    tb_shelf_close(w->task.shelf);
    tb_free(w);
}

void tb_shelves_stats(struct tb_shelves *s, struct tb_shelves_stats *stats_out)
{
    *stats_out = (struct tb_shelves_stats){0};
    if (s == NULL) return;
    pthread_mutex_lock(&s->lock);
    *stats_out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

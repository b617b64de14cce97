#include "intra/client/publish/encode_jobs.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/codec/codec.h"
#include "base/scratch_memory.h"

#define BATCH_EACH  4u  /* chunks of a thread in a batch: after it other tasks have their turn */
#define HOPELESS_AT 32u /* of so many chunks none got much smaller: neither will the others */

struct tool {
    struct tb_codec *codec;
    struct tb_room room;
};

struct tb_encoding {
    struct tb_crew *crew;
    struct tb_encoding_task task;
    uint32_t next; /* chunk of the next batch */
    atomic_uint tried, gained;
    atomic_bool stop;
    pthread_mutex_t lock; /* of the two below */
    pthread_cond_t changed;
    bool in_hand; /* a thread works on a batch */
    bool queued;  /* the crew has it */
    uint32_t slots;
    struct tool tools[];
};

/* ---- a chunk ---- */

static bool encode(struct tool *t, const struct tb_encoding_task *task, uint32_t k,
                   struct tb_codec_coded *coded_out)
{
    const struct tb_manifest *m = task->manifest;
    const struct tb_chunk *chunk = &m->chunks[k];
    const struct tb_codec_input in = {.bytes = task->bytes + chunk->offset,
                                      .count = chunk->bytes,
                                      .dtype = tb_layout_dtype_at(&m->layout, chunk->offset),
                                      .base = task->base + chunk->offset,
                                      .classes = task->classes};
    const struct tb_codec_form form = {.id = TB_CODEC_SPARSE, .on_base = true};
    const size_t bound = tb_codec_bound(form.id, in.count);
    if (t->codec == NULL && tb_codec_new(&t->codec) != TB_OK) return false;
    if (!tb_room_for(&t->room, bound)) return false;
    const struct tb_codec_room room = {t->room.bytes, t->room.cap};
    if (tb_codec_encode(t->codec, form, &in, room, coded_out) != TB_OK) return false;
    return coded_out->form.on_base && TB_SHELF_GAINS(in.count, coded_out->count);
}

static void encode_piece(void *user, uint32_t piece, uint32_t slot)
{
    struct tb_encoding *e = user;
    struct tb_codec_coded coded;
    if (atomic_load_explicit(&e->stop, memory_order_relaxed)) return;
    const bool good = encode(&e->tools[slot], &e->task, e->next + piece, &coded);
    tb_shelf_put(e->task.shelf, e->next + piece, good ? &coded : NULL);
    atomic_fetch_add_explicit(&e->tried, 1, memory_order_relaxed);
    if (good) atomic_fetch_add_explicit(&e->gained, 1, memory_order_relaxed);
}

/* ---- batches ---- */

static void encoding_free(struct tb_encoding *e)
{
    for (uint32_t i = 0; i < e->slots; i++) {
        tb_codec_free(e->tools[i].codec);
        tb_room_free(&e->tools[i].room);
    }
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    tb_free(e);
}

static bool more_to_do(const struct tb_encoding *e)
{
    if (atomic_load(&e->stop) || e->next == e->task.manifest->chunk_count) return false;
    return atomic_load(&e->gained) > 0 || atomic_load(&e->tried) < HOPELESS_AT;
}

static void batch(struct tb_encoding *e)
{
    const uint32_t left = e->task.manifest->chunk_count - e->next, most = BATCH_EACH * e->slots;
    const uint32_t count = left < most ? left : most;
    e->next += tb_crew_run_between(e->crew, count, encode_piece, e); /* a pass goes first */
    TB_ASSERT(e->next <= e->task.manifest->chunk_count);
}

/* On a thread of the crew. Its owner may have ended it while it stood in line: then it goes. */
static void turn(void *user, uint32_t piece, uint32_t slot)
{
    (void)piece, (void)slot;
    struct tb_encoding *e = user;
    pthread_mutex_lock(&e->lock);
    e->queued = false;
    e->in_hand = !atomic_load(&e->stop);
    const bool ours = e->in_hand;
    pthread_mutex_unlock(&e->lock);
    if (!ours) {
        encoding_free(e);
        return;
    }
    batch(e);
    pthread_mutex_lock(&e->lock);
    /* it begins behind the lock */
    e->queued = more_to_do(e) && tb_crew_submit(e->crew, turn, e) == TB_OK;
    if (!e->queued) tb_shelf_close(e->task.shelf);
    e->in_hand = false;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock); /* from here on it may be gone */
}

/* ---- the owner's ---- */

enum tb_status tb_encoding_begin(struct tb_crew *crew, const struct tb_encoding_task *task,
                                 struct tb_encoding **encoding_out)
{
    TB_ASSERT(task->shelf != NULL && task->classes > 0);
    const uint32_t slots = tb_crew_slots(crew);
    struct tb_encoding *e = tb_calloc(1, sizeof *e + slots * sizeof e->tools[0]);
    if (e == NULL) goto fail;
    e->crew = crew;
    e->task = *task;
    e->slots = slots;
    e->queued = true;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    if (task->manifest->chunk_count == 0 || tb_crew_submit(crew, turn, e) != TB_OK) goto undo;
    *encoding_out = e;
    return TB_OK;

undo:
    encoding_free(e);
fail:
    tb_shelf_close(task->shelf);
    return TB_SITE_NOMEM;
}

void tb_encoding_end(struct tb_encoding *e)
{
    if (e == NULL) return;
    struct tb_shelf *shelf = e->task.shelf;
    pthread_mutex_lock(&e->lock);
    atomic_store(&e->stop, true);
    while (e->in_hand)
        pthread_cond_wait(&e->changed, &e->lock);
    const bool queued = e->queued;
    pthread_mutex_unlock(&e->lock);
    if (!queued) encoding_free(e); /* else its turn does */
    tb_shelf_close(shelf);
}

/* world_shelves.c - gateway/daemon/copies/shelves.h in virtual time: its thread encodes a chunk a
 * step, now and then none. */
#include "gateway/daemon/copies/shelves.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "world.h"
#include "world_machine.h"
#include "world_process.h"

struct tb_shelf_work {
    struct tb_shelf_work *next; /* older */
    struct tb_shelves *shelves;
    struct tb_shelf_task task;
    const struct tb_place *places[SHARDS_MAX], *bases[SHARDS_MAX];
    uint32_t left; /* chunks without an entry */
};

struct tb_shelves {
    struct tb_shelf_work *works; /* the newest first */
    struct tb_shelves_stats stats;
    struct tb_codec *codec;
};

enum tb_status tb_shelves_open(struct tb_shelves **shelves_out)
{
    struct tb_shelves *s = tb_calloc(1, sizeof *s);
    const enum tb_status status = tb_codec_new(&s->codec);
    TB_ASSERT(status == TB_OK && the->current->shelves == NULL);
    the->current->shelves = s;
    *shelves_out = s;
    return TB_OK;
}

void tb_shelves_close(struct tb_shelves *s)
{
    if (s == NULL) return;
    the->current->shelves = NULL;
    tb_codec_free(s->codec);
    tb_free(s);
}

enum tb_status tb_shelves_work_begin(struct tb_shelves *s, const struct tb_shelf_task *task,
                                     struct tb_shelf_work **work_out)
{
    struct tb_shelf_work *w = tb_calloc(1, sizeof *w);
    TB_ASSERT(task->shard_count <= SHARDS_MAX && task->shelf->count > 0);
    w->shelves = s;
    w->task = *task;
    memcpy(w->places, task->places, task->shard_count * sizeof w->places[0]);
    memcpy(w->bases, task->bases, task->shard_count * sizeof w->bases[0]);
    w->left = task->shelf->count;
    w->next = s->works;
    s->works = w;
    tb_shelf_open(task->shelf, &task->base);
    *work_out = w;
    return TB_OK;
}

void tb_shelves_work_end(struct tb_shelf_work *w)
{
    if (w == NULL) return;
    struct tb_shelf_work **at = &w->shelves->works;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    tb_shelf_close(w->task.shelf);
    tb_free(w);
}

void tb_shelves_stats(struct tb_shelves *s, struct tb_shelves_stats *stats_out)
{
    *stats_out = s != NULL ? s->stats : (struct tb_shelves_stats){0};
}

static bool encode(struct tb_shelves *s, const struct tb_shelf_work *w, uint32_t shard, uint32_t k,
                   struct tb_codec_coded *coded_out)
{
    static uint8_t room[4 * SHARD_BYTES];
    const struct tb_manifest *m = w->places[shard]->manifest;
    uint32_t bytes = 0, base_bytes = 0;
    const uint8_t *chunk = tb_place_chunk(w->places[shard], k, &bytes);
    const struct tb_codec_input in = {.bytes = chunk,
                                      .count = bytes,
                                      .dtype = tb_layout_dtype_at(&m->layout, m->chunks[k].offset),
                                      .base = tb_place_chunk(w->bases[shard], k, &base_bytes),
                                      .classes = 1};
    const struct tb_codec_form form = {.id = TB_CODEC_SPARSE, .on_base = true};
    TB_ASSERT(base_bytes == bytes && tb_codec_bound(TB_CODEC_SPARSE, bytes) <= sizeof room);
    if (tb_codec_encode(s->codec, form, &in, (struct tb_codec_room){room, sizeof room}, coded_out) != TB_OK)
        return false;
    return coded_out->form.on_base && TB_SHELF_GAINS(bytes, coded_out->count);
}

static struct tb_encoded_chunk_name name_of(const struct tb_shelf_work *w, uint32_t shard, uint32_t k)
{
    return (struct tb_encoded_chunk_name){.uid = &w->task.uid,
                                          .base = &w->task.base,
                                          .shard = shard,
                                          .chunk = k,
                                          .shard_count = w->task.shard_count,
                                          .chunk_count = w->places[shard]->manifest->chunk_count};
}

static bool awaited(const struct tb_shelf_work *w, uint32_t shard, uint32_t k)
{
    const struct tb_encoded_chunk_name name = name_of(w, shard, k);
    return w->task.encoded_chunks != NULL &&
           tb_encoded_chunks_awaits(w->task.encoded_chunks, &name, the->now);
}

/* As it came from a rank or over a link. */
static bool forward(struct tb_shelf_work *w, uint32_t shard, uint32_t k, uint32_t line)
{
    const struct tb_encoded_chunk_name name = name_of(w, shard, k);
    struct tb_encoded_chunk *encoded =
        w->task.encoded_chunks != NULL ? tb_encoded_chunks_find(w->task.encoded_chunks, &name) : NULL;
    if (encoded == NULL) return false;
    const struct tb_codec_coded coded = tb_encoded_chunk_coded(encoded);
    tb_shelf_put(w->task.shelf, line, &coded);
    tb_encoded_chunk_unref(w->task.encoded_chunks, encoded);
    return true;
}

/* The first chunk that is here, has no entry, and is encoded by nobody else. */
static bool work_once(struct tb_shelves *s, struct tb_shelf_work *w)
{
    for (uint32_t shard = 0, line = 0; shard < w->task.shard_count; shard++) {
        for (uint32_t k = 0; k < w->places[shard]->manifest->chunk_count; k++, line++) {
            struct tb_codec_coded coded = {.count = 0};
            if (tb_shelf_has(w->task.shelf, line) || !tb_place_held(w->places[shard], k)) continue;
            if (awaited(w, shard, k)) continue;
            const bool forwarded = forward(w, shard, k, line);
            const bool good = forwarded || encode(s, w, shard, k, &coded);
            if (!forwarded) tb_shelf_put(w->task.shelf, line, good ? &coded : NULL);
            s->stats.chunks += good;
            s->stats.forwarded += forwarded;
            s->stats.without += !good;
            if (--w->left == 0) tb_shelf_close(w->task.shelf);
            return true;
        }
    }
    return false;
}

void world_shelves_run(struct process *p)
{
    if (p->shelves == NULL || world_random(3) == 0) return;
    the->current = p;
    for (struct tb_shelf_work *w = p->shelves->works; w != NULL; w = w->next)
        if (work_once(p->shelves, w)) break;
    the->current = NULL;
}

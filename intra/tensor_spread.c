#include "intra/tensor_spread.h"

#include <string.h>

#include "base/assert.h"

struct tb_stretch tb_spread_at(const struct tb_spread *s, uint64_t offset, uint64_t most, uint32_t *tensor_io)
{
    const struct tb_layout *layout = s->layout;
    if (offset >= layout->bytes)
        return (struct tb_stretch){s->blobs == NULL ? NULL : s->blobs + (offset - layout->bytes), most};
    while (layout->tensors[*tensor_io].offset + layout->tensors[*tensor_io].bytes <= offset)
        ++*tensor_io;
    const struct tb_tensor *t = &layout->tensors[*tensor_io];
    uint64_t at = offset - t->offset, left = t->bytes - at;
    if (s->rows != NULL && s->rows[*tensor_io].run < t->bytes) {
        const struct tb_spread_rows *rows = &s->rows[*tensor_io];
        left = rows->run - at % rows->run;
        at = at / rows->run * rows->stride + at % rows->run;
    }
    uint8_t *tensor = s->tensors[*tensor_io];
    return (struct tb_stretch){tensor == NULL ? NULL : tensor + at, left < most ? left : most};
}

struct tb_stretch_rows tb_spread_rows_at(const struct tb_spread *s, uint64_t offset, uint64_t most,
                                         uint32_t *tensor_io)
{
    const struct tb_stretch first = tb_spread_at(s, offset, most, tensor_io);
    struct tb_stretch_rows rows = {.at = first.at, .bytes = first.bytes, .rows = 1, .stride = first.bytes};
    if (s->rows == NULL || offset >= s->layout->bytes || first.bytes != s->rows[*tensor_io].run) return rows;
    const struct tb_tensor *t = &s->layout->tensors[*tensor_io];
    const uint64_t left = t->offset + t->bytes - offset;
    rows.rows = (left < most ? left : most) / first.bytes;
    rows.stride = s->rows[*tensor_io].stride;
    return rows;
}

/* The stretches of one chunk, one after another. */
struct walk {
    const struct tb_spread *spread;
    uint64_t at, end;
    uint32_t tensor;
};

static struct walk walk_of(const struct tb_spread *s, const struct tb_chunk *chunk)
{
    TB_ASSERT(chunk->bytes > 0);
    return (struct walk){s, chunk->offset, chunk->offset + chunk->bytes,
                         tb_layout_tensor_at(s->layout, chunk->offset)};
}

static bool walk_next(struct walk *w, struct tb_stretch *stretch_out)
{
    if (w->at >= w->end) return false;
    *stretch_out = tb_spread_at(w->spread, w->at, w->end - w->at, &w->tensor);
    TB_ASSERT(stretch_out->bytes > 0); /* or it would never end */
    w->at += stretch_out->bytes;
    return true;
}

bool tb_spread_covers(const struct tb_spread *s, const struct tb_chunk *chunk)
{
    struct walk w = walk_of(s, chunk);
    struct tb_stretch stretch;
    while (walk_next(&w, &stretch))
        if (stretch.at == NULL) return false;
    return true;
}

const uint8_t *tb_spread_gather(const struct tb_spread *s, const struct tb_chunk *chunk, uint8_t *room)
{
    struct walk w = walk_of(s, chunk);
    struct tb_stretch stretch;
    uint64_t done = 0;
    while (walk_next(&w, &stretch)) {
        if (stretch.bytes == chunk->bytes) return stretch.at;
        memcpy(room + done, stretch.at, stretch.bytes);
        done += stretch.bytes;
    }
    return room;
}

uint64_t tb_spread_scatter(const struct tb_spread *s, const struct tb_chunk *chunk, const uint8_t *from)
{
    struct walk w = walk_of(s, chunk);
    struct tb_stretch stretch;
    uint64_t written = 0;
    while (walk_next(&w, &stretch)) {
        if (stretch.at != NULL) {
            memcpy(stretch.at, from, stretch.bytes);
            written += stretch.bytes;
        }
        from += stretch.bytes;
    }
    return written;
}

struct tb_digest tb_spread_digest(const struct tb_spread *s, const struct tb_chunk *chunk)
{
    struct walk w = walk_of(s, chunk);
    struct tb_stretch stretch;
    struct tb_digest_state state;
    tb_digest_begin(&state);
    while (walk_next(&w, &stretch))
        tb_digest_update(&state, stretch.at, stretch.bytes);
    return tb_digest_end(&state);
}

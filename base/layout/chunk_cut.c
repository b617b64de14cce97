/* chunk_cut.c - the one function that cuts a layout into chunks. docs/protocol.md repeats the
 * rule; both ends of every link and hop must agree on it to the byte, so a change here is a
 * new protocol version. */
#include "base/layout/layout.h"

#include <string.h>

#include "base/assert.h"

#define PIECE_ALIGN 4096u

uint64_t tb_cut_target_bytes(uint64_t tensor_bytes)
{
    uint64_t target = TB_CHUNK_BYTES_MIN;
    while (target < TB_CHUNK_BYTES_MAX && target * 2 <= tensor_bytes / 4096)
        target *= 2;
    TB_ASSERT(target >= TB_CHUNK_BYTES_MIN && target <= TB_CHUNK_BYTES_MAX);
    return target;
}

/* Where chunks go: counted always, written where there is a table. */
struct cutter {
    struct tb_chunk *chunks; /* NULL to count only */
    uint32_t count;
    uint64_t target;
    uint64_t at;          /* packed bytes already given to chunks */
    uint64_t group_bytes; /* of the open group behind `at` */
};

static void emit(struct cutter *c, uint64_t bytes)
{
    TB_ASSERT(bytes > 0 && bytes <= 2 * TB_CHUNK_BYTES_MAX);
    if (c->chunks != NULL) c->chunks[c->count] = (struct tb_chunk){c->at, (uint32_t)bytes};
    c->count++;
    c->at += bytes;
}

static void close_group(struct cutter *c)
{
    if (c->group_bytes > 0) emit(c, c->group_bytes);
    c->group_bytes = 0;
}

/* floor(i x bytes / n), rounded down to PIECE_ALIGN. The product is below 2^64: with 16 MiB pieces
 * n is at most 2^20 for 2^44 bytes, and smaller pieces are for shards below 2^36 bytes and for
 * blobs, at most 2^37. */
static uint64_t piece_start(uint64_t i, uint64_t bytes, uint64_t n)
{
    TB_ASSERT(i <= n && n > 0);
    if (i == n) return bytes;
    const uint64_t start = i * bytes / n;
    return start - start % PIECE_ALIGN;
}

static void cut_large(struct cutter *c, uint64_t bytes)
{
    const uint64_t n = (bytes + c->target - 1) / c->target;
    TB_ASSERT(bytes > 0 && c->target >= TB_CHUNK_BYTES_MIN && c->target <= TB_CHUNK_BYTES_MAX);
    close_group(c);
    for (uint64_t i = 0; i < n; i++)
        emit(c, piece_start(i + 1, bytes, n) - piece_start(i, bytes, n));
}

static void cut_small(struct cutter *c, uint64_t bytes)
{
    if (c->group_bytes + bytes > c->target) close_group(c);
    c->group_bytes += bytes;
}

static void cut_tensors(struct cutter *c, const struct tb_layout *layout)
{
    const struct tb_tensor *before = NULL;
    uint16_t group_part = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct tb_tensor *t = &layout->tensors[i];
        if (t->bytes == 0) continue;
        if (t->part != group_part) close_group(c);
        group_part = t->part;
        if (before == NULL || !tb_tensor_dtype_equal(before, t)) close_group(c);
        before = t;
        if (t->bytes > c->target) {
            cut_large(c, t->bytes);
        } else {
            cut_small(c, t->bytes);
        }
    }
    close_group(c);
}

/* An earlier cut of this layout, which its owner keeps. */
static void copy_cut(struct cutter *c, const struct tb_layout *layout)
{
    if (c->chunks != NULL && layout->cut_count > 0)
        memcpy(c->chunks, layout->cut, layout->cut_count * sizeof *c->chunks);
    TB_ASSERT(layout->cut_count > 0 || layout->bytes == 0);
    c->count = layout->cut_count;
    c->at = layout->bytes;
}

static uint32_t cut(const struct tb_layout *layout, uint64_t blob_bytes, struct tb_chunk *chunks_out)
{
    TB_ASSERT(layout->bytes <= TB_SHARD_BYTES_MAX);
    TB_ASSERT(blob_bytes <= (uint64_t)1 << 37); /* 1024 blobs of 100 MiB */
    struct cutter c = {.chunks = chunks_out, .target = tb_cut_target_bytes(layout->bytes)};
    if (layout->cut != NULL)
        copy_cut(&c, layout);
    else
        cut_tensors(&c, layout);
    TB_ASSERT(c.at == layout->bytes);
    if (blob_bytes > 0) cut_large(&c, blob_bytes);
    return c.count;
}

uint32_t tb_cut_count(const struct tb_layout *layout, uint64_t blob_bytes)
{
    return cut(layout, blob_bytes, NULL);
}

void tb_cut(const struct tb_layout *layout, uint64_t blob_bytes, struct tb_chunk *chunks_out)
{
    if (chunks_out != NULL) cut(layout, blob_bytes, chunks_out);
}

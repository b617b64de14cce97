/* live_digest.c - see live_digest.h. */
#include "intra/client/live/live_digest.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/cuda_part_looks.h"

/* ---- which digest ---- */

struct tb_live_sum tb_live_sum_of(const struct tb_manifest *manifest, uint32_t k)
{
    TB_ASSERT(k < manifest->chunk_count);
    struct tb_live_sum sum = {.digest = manifest->digests[k]};
    sum.proof = tb_manifest_proof(manifest, k, &sum.blake3);
    return sum;
}

bool tb_live_sum_equal(const struct tb_live_sum *a, const struct tb_live_sum *b)
{
    TB_ASSERT(a->proof == b->proof);
    return a->proof ? tb_blake3_equal(&a->blake3, &b->blake3) : tb_digest_equal(&a->digest, &b->digest);
}

struct tb_live_sum tb_live_sum_bytes(bool kind, const void *bytes, uint64_t count)
{
    struct tb_live_sum sum = {.proof = kind};
    if (kind)
        sum.blake3 = tb_blake3_of(bytes, count);
    else
        sum.digest = tb_digest_of(bytes, count);
    return sum;
}

/* ---- on cores ---- */

struct hash {
    bool proof;
    struct tb_digest_state digest;
    struct tb_blake3_state blake3;
};

static void hash_begin(struct hash *h, bool kind)
{
    h->proof = kind;
    if (kind)
        tb_blake3_begin(&h->blake3);
    else
        tb_digest_begin(&h->digest);
}

static void hash_update(struct hash *h, const void *bytes, uint64_t count)
{
    if (h->proof)
        tb_blake3_update(&h->blake3, bytes, count);
    else
        tb_digest_update(&h->digest, bytes, count);
}

static struct tb_live_sum hash_end(struct hash *h)
{
    struct tb_live_sum sum = {.proof = h->proof};
    if (h->proof)
        sum.blake3 = tb_blake3_end(&h->blake3);
    else
        sum.digest = tb_digest_end(&h->digest);
    return sum;
}

/* From one call of `between` to the next. */
#define STRIDE_BYTES ((uint64_t)256 << 10)

struct walk {
    const struct tb_live_bytes *from;
    struct hash hash;
    uint64_t done, stride; /* of all; since `between` was called */
};

static bool take(struct walk *w, const uint8_t *at, uint64_t bytes)
{
    while (bytes > 0) {
        const uint64_t room = STRIDE_BYTES - w->stride;
        const uint64_t count = bytes < room ? bytes : room;
        hash_update(&w->hash, at, count);
        at += count;
        bytes -= count;
        w->done += count;
        w->stride += count;
        if (w->stride < STRIDE_BYTES) continue;
        w->stride = 0;
        if (w->done < w->from->bytes && w->from->between != NULL && !w->from->between(w->from->user))
            return false;
    }
    return true;
}

static enum tb_status sum_on_host(const struct tb_live_bytes *from, bool kind, struct tb_live_sum *sum_out)
{
    struct walk w = {.from = from};
    hash_begin(&w.hash, kind);
    for (uint32_t i = 0; i < from->count; i++) {
        const struct tb_live_piece *p = &from->pieces[i];
        const uint8_t *at = from->memory[p->want] + p->to;
        for (uint64_t row = 0; row < p->rows; row++)
            if (!take(&w, at + row * p->stride, p->run)) return TB_CANCELLED;
    }
    TB_ASSERT(w.done == from->bytes);
    *sum_out = hash_end(&w.hash);
    return TB_OK;
}

/* ---- on a device ---- */

static bool on_host(const struct tb_live_bytes *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        if (from->pieces[i].on_device) return false;
    return true;
}

static bool on_device(const struct tb_live_bytes *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        if (!from->pieces[i].on_device) return false;
    return true;
}

/* No kernels, or the pieces stand on both sides: the bytes come to the host. */
static enum tb_status sum_gathered(const struct tb_live_bytes *from, bool kind, struct tb_live_sum *sum_out)
{
    uint8_t *room = tb_malloc(from->bytes);
    struct tb_gpu_rows *moves = tb_calloc((size_t)from->count + 1, sizeof *moves);
    uint8_t *to = room;
    enum tb_status status = room != NULL && moves != NULL ? TB_OK : TB_SITE_NOMEM;
    for (uint32_t i = 0; i < from->count && status == TB_OK; i++) {
        const struct tb_live_piece *p = &from->pieces[i];
        moves[i] = (struct tb_gpu_rows){.row = {to, from->memory[p->want] + p->to, p->run},
                                        .rows = p->rows,
                                        .to_stride = p->run,
                                        .from_stride = p->stride};
        to += p->run * p->rows;
    }
    if (status == TB_OK) status = tb_gpu_move(from->gpu, moves, from->count);
    if (status == TB_OK) *sum_out = tb_live_sum_bytes(kind, room, from->bytes);
    tb_free(moves);
    tb_free(room);
    return status;
}

static enum tb_status sum_on_device(const struct tb_live_bytes *from, bool kind, struct tb_live_sum *sum_out)
{
    struct tb_stretch_rows *rows = tb_calloc((size_t)from->count + 1, sizeof *rows);
    if (rows == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < from->count; i++) {
        const struct tb_live_piece *p = &from->pieces[i];
        rows[i] = (struct tb_stretch_rows){
            .at = from->memory[p->want] + p->to, .bytes = p->run, .rows = p->rows, .stride = p->stride};
    }
    struct tb_gpu_look look = {
        .pieces = rows, .piece_count = from->count, .bytes = (uint32_t)from->bytes, .prove = kind};
    const enum tb_status status = tb_gpu_look(from->gpu, &look);
    *sum_out = (struct tb_live_sum){.proof = kind, .digest = look.digest, .blake3 = look.proof};
    tb_free(rows);
    return status;
}

enum tb_status tb_live_sum_pieces(const struct tb_live_bytes *from, bool kind, struct tb_live_sum *sum_out)
{
    TB_ASSERT(from->count > 0 && from->bytes > 0);
    if (on_host(from)) return sum_on_host(from, kind, sum_out);
    TB_ASSERT(from->gpu != NULL);
    if (from->bytes <= 2 * TB_CHUNK_BYTES_MAX && on_device(from)) {
        const enum tb_status status = sum_on_device(from, kind, sum_out);
        if (status != TB_NOT_FOUND) return status;
    }
    return sum_gathered(from, kind, sum_out);
}

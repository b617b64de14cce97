/* cuda_encode.c - chunks of host memory, encoded by a device as deltas against its own bytes:
 * batches go by turns over the two lanes; while one is uploaded, the one before is encoded.
 *
 * Bytes touched per byte of a chunk: it goes up over the bus once, and its form comes down; on the
 * device the base is gathered (read and written once) unless it stands in one piece, and the kernel
 * reads both some times over. */
#include <string.h>

#include "base/assert.h"
#include "intra/cuda/cuda_deltas.h"
#include "intra/cuda/cuda_lanes.h"
#include "intra/cuda/cuda_moves.h"

struct run {
    struct tb_gpu_memory *m;
    struct tb_gpu_new_delta *list;
    uint32_t count, next;
    enum tb_status status; /* of what came down */
};

/* A base that stands in one piece, on the borders that kernels want, is read there. */
static bool is_in_place(const struct tb_gpu_new_delta *d)
{
    return d->piece_count == 1 && (uintptr_t)d->pieces[0].at % 16 == 0;
}

/* As many as a lane carries: as many bytes of bases, and fewer of forms. */
static struct tb_cuda_batch batch_next(void *user)
{
    struct run *run = user;
    struct tb_cuda_batch b = {.first = run->next};
    uint64_t bytes = 0, moves = 0;
    for (; run->next < run->count && b.count < TB_CUDA_BATCH_CHUNKS; run->next++, b.count++) {
        const struct tb_gpu_new_delta *d = &run->list[run->next];
        bytes += tb_cuda_aligned(d->bytes);
        moves += d->piece_count;
        if (b.count > 0 && (bytes > TB_CUDA_BATCH_BYTES || moves > TB_CUDA_MOVES_MAX)) break;
    }
    TB_ASSERT(b.count > 0 || run->next == run->count); /* else the rest would be passed over */
    return b;
}

/* Where the i-th of the batch stands in each of the three: chunks, bases and forms. */
static uint64_t place_of(const struct run *run, const struct tb_cuda_batch *b, uint32_t i)
{
    TB_ASSERT(i <= b->count);
    uint64_t at = 0;
    for (uint32_t k = 0; k < i; k++)
        at += tb_cuda_aligned(run->list[b->first + k].bytes);
    return at;
}

/* The chunks go up as one piece, and bases are gathered; the jobs are written. */
static enum tb_status upload(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    TB_ASSERT(b->count <= TB_CUDA_BATCH_CHUNKS && b->first + b->count <= run->count);
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    uint8_t *chunks = (uint8_t *)(uintptr_t)l->chunks, *bases = (uint8_t *)(uintptr_t)l->bases;
    uint8_t *forms = (uint8_t *)(uintptr_t)l->forms;
    enum tb_status status = TB_OK;
    uint64_t at = 0;
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const struct tb_gpu_new_delta *d = &run->list[b->first + i];
        TB_ASSERT(d->piece_count > 0 && d->bytes > 0);
        memcpy(l->host_forms + at, d->chunk, d->bytes);
        const bool in_place = is_in_place(d);
        l->host->encodes[i] = (struct tb_encode_job){.base = in_place ? d->pieces[0].at : bases + at,
                                                     .bytes = chunks + at,
                                                     .count = d->bytes,
                                                     .kind = d->kind,
                                                     .classes_max = d->classes,
                                                     .out = forms + at,
                                                     .cap = d->bytes};
        if (!in_place)
            status =
                tb_cuda_exchange(run->m, lane, TB_CUDA_FROM_TENSORS, d->pieces, d->piece_count, bases + at);
        at += tb_cuda_aligned(d->bytes);
    }
    TB_ASSERT(at <= TB_CUDA_BATCH_BYTES); /* what a lane has room for */
    if (status == TB_OK) status = tb_cuda_moves_run(run->m, lane);
    if (status == TB_OK) status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){chunks, l->host_forms, at});
    return status;
}

static enum tb_status batch_begin(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    const uint64_t bytes = b->count * sizeof host->encodes[0];
    enum tb_status status = upload(run, b, lane);
    if (status != TB_OK) return status;
    status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){slate->encodes, host->encodes, bytes});
    if (status != TB_OK) return status;
    status = tb_cuda_run_kernel(run->m, lane, TB_CUDA_ENCODE, slate->encodes, b->count);
    if (status != TB_OK) return status;
    return tb_cuda_copy(run->m, lane, (struct tb_gpu_move){host->encodes, slate->encodes, bytes});
}

/* How long the forms are is known now, and they come down. */
static enum tb_status download(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    TB_ASSERT(b->first + b->count <= run->count && run->status == TB_OK);
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    const uint8_t *forms = (const uint8_t *)(uintptr_t)l->forms;
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const uint64_t at = place_of(run, b, i);
        status = tb_cuda_copy(run->m, lane,
                              (struct tb_gpu_move){l->host_forms + at, forms + at, l->host->encodes[i].used});
    }
    if (status == TB_OK) status = tb_cuda_mark(run->m, lane);
    return status == TB_OK ? tb_cuda_wait(run->m, lane) : status;
}

static void batch_end(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    if (run->status == TB_OK) run->status = download(run, b, lane);
    for (uint32_t i = 0; i < b->count && run->status == TB_OK; i++) {
        struct tb_gpu_new_delta *d = &run->list[b->first + i];
        d->form_bytes = (uint32_t)l->host->encodes[i].used;
        memcpy(d->form, l->host_forms + place_of(run, b, i), d->form_bytes);
    }
}

enum tb_status tb_gpu_encode(struct tb_gpu_memory *m, struct tb_gpu_new_delta *deltas, uint32_t count)
{
    static const struct tb_cuda_turns turns = {batch_next, batch_begin, batch_end};
    struct run run = {.m = m, .list = deltas, .count = count};
    enum tb_status status = tb_cuda_job_begin(m);
    if (status != TB_OK) return status;
    status = tb_cuda_may_patch(m) ? tb_cuda_by_turns(m, &turns, &run) : TB_SITE_NOMEM;
    TB_ASSERT(status != TB_OK || run.next == count); /* all of them were on a lane */
    return tb_cuda_job_end(m, status == TB_OK ? run.status : status);
}

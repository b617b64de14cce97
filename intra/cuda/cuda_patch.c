/* cuda_patch.c - deltas decoded over tensors on a device, by the device, or only proved: batches of
 * chunks go by turns over the two lanes; while one is uploaded, the one before is patched.
 *
 * A chunk that stands in one piece, as most of a large tensor's do, is patched and digested where
 * it is, and a lane's load is what its forms come to: a block works on a chunk, and needs many
 * others beside it. Any other is gathered, patched, scattered, gathered again and digested (3 reads
 * and 3 writes of the device's memory beside the kernels'): digested is what the tensors hold, not
 * what was meant to get there (P1). Over the bus go the deltas alone. */
#include <string.h>

#include "base/assert.h"
#include "intra/cuda/cuda_memory.h"

struct run {
    struct tb_gpu_memory *m;
    struct tb_gpu_delta *deltas;
    uint32_t count, next;
    bool writes; /* else what would be there is digested */
};

/* On the borders that kernels want. */
static bool is_in_place(const struct run *run, const struct tb_gpu_delta *delta)
{
    return run->writes && delta->piece_count == 1 && (uintptr_t)delta->pieces[0].at % 16 == 0 &&
           delta->bytes >= TB_KERNEL_DIGEST_MIN;
}

/* As many as a lane carries of both, chunks and forms. */
static struct tb_cuda_batch batch_next(void *user)
{
    struct run *run = user;
    struct tb_cuda_batch b = {.first = run->next};
    uint64_t bytes = 0, forms = 0, moves = 0;
    for (; run->next < run->count && b.count < TB_CUDA_BATCH_CHUNKS; run->next++, b.count++) {
        const struct tb_gpu_delta *delta = &run->deltas[run->next];
        forms += tb_cuda_aligned(delta->form_bytes);
        if (!is_in_place(run, delta)) {
            bytes += tb_cuda_aligned(delta->bytes);
            moves += 3 * (uint64_t)delta->piece_count; /* out, in, and out again */
        }
        if (b.count == 0) continue;
        if (bytes > TB_CUDA_BATCH_BYTES || forms > TB_CUDA_BATCH_BYTES || moves > TB_CUDA_MOVES_MAX) break;
    }
    TB_ASSERT(b.count > 0 || run->next == run->count); /* else the rest would be passed over */
    return b;
}

/* Forms go up as one piece; all jobs of the batch are written. */
static enum tb_status upload(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    TB_ASSERT(b->count <= TB_CUDA_BATCH_CHUNKS && b->first + b->count <= run->count);
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    uint8_t *at = (uint8_t *)(uintptr_t)l->chunks, *forms = (uint8_t *)(uintptr_t)l->forms;
    uint64_t used = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct tb_gpu_delta *delta = &run->deltas[b->first + i];
        const bool is_small = delta->bytes < TB_KERNEL_DIGEST_MIN, in_place = is_in_place(run, delta);
        TB_ASSERT(delta->piece_count > 0 && delta->bytes > 0);
        uint8_t *bytes = in_place ? delta->pieces[0].at : at;
        memcpy(l->host_forms + used, delta->form, delta->form_bytes);
        host->patches[i] = (struct tb_patch_job){
            .form = forms + used, .form_count = delta->form_bytes, .bytes = bytes, .count = delta->bytes};
        host->jobs[i] = (struct tb_digest_job){
            .bytes = bytes, .count = is_small ? 0 : delta->bytes, .digest = slate->digests[i].bytes};
        used += tb_cuda_aligned(delta->form_bytes);
        at += in_place ? 0 : tb_cuda_aligned(delta->bytes);
    }
    const enum tb_status status =
        tb_cuda_copy(run->m, lane, (struct tb_gpu_move){forms, l->host_forms, used});
    return status == TB_OK ? tb_cuda_copy(run->m, lane,
                                          (struct tb_gpu_move){slate->patches, host->patches,
                                                               b->count * sizeof host->patches[0]})
                           : status;
}

/* Moves the chunks of the batch that are not patched in place, to their tensors or from them. */
static enum tb_status exchange(struct run *run, const struct tb_cuda_batch *b, uint32_t lane,
                               enum tb_cuda_way way)
{
    const struct tb_cuda_slate *host = run->m->lanes[lane].host;
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const struct tb_gpu_delta *delta = &run->deltas[b->first + i];
        if (is_in_place(run, delta)) continue;
        status =
            tb_cuda_exchange(run->m, lane, way, delta->pieces, delta->piece_count, host->patches[i].bytes);
    }
    return status == TB_OK ? tb_cuda_moves_run(run->m, lane) : status;
}

/* Patched chunks go to their tensors, and come again from there to be digested. */
static enum tb_status write_and_look(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct tb_cuda_slate *host = run->m->lanes[lane].host;
    enum tb_status status = TB_OK;
    if (run->writes) status = exchange(run, b, lane, TB_CUDA_TO_TENSORS);
    if (run->writes && status == TB_OK) status = exchange(run, b, lane, TB_CUDA_FROM_TENSORS);
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const struct tb_gpu_delta *delta = &run->deltas[b->first + i];
        if (delta->bytes < TB_KERNEL_DIGEST_MIN)
            status = tb_cuda_copy(run->m, lane,
                                  (struct tb_gpu_move){host->small[i], host->patches[i].bytes, delta->bytes});
    }
    return status == TB_OK ? tb_cuda_digest(run->m, lane, b->count) : status;
}

static enum tb_status batch_begin(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    enum tb_status status = upload(run, b, lane);
    if (status == TB_OK) status = exchange(run, b, lane, TB_CUDA_FROM_TENSORS);
    if (status == TB_OK) status = tb_cuda_run_kernel(run->m, lane, TB_CUDA_PATCH, slate->patches, b->count);
    if (status == TB_OK)
        status = tb_cuda_copy(
            run->m, lane,
            (struct tb_gpu_move){host->patches, slate->patches, b->count * sizeof host->patches[0]});
    return status == TB_OK ? write_and_look(run, b, lane) : status;
}

static void batch_end(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    const struct tb_cuda_slate *host = run->m->lanes[lane].host;
    for (uint32_t i = 0; i < b->count; i++) {
        struct tb_gpu_delta *delta = &run->deltas[b->first + i];
        delta->patched = host->patches[i].ok != 0;
        delta->digest =
            host->jobs[i].count > 0 ? host->digests[i] : tb_digest_of(host->small[i], delta->bytes);
    }
}

bool tb_gpu_may_patch(const struct tb_gpu_memory *m)
{
    return m->device->module != NULL && !atomic_load(&m->no_patch_room);
}

static enum tb_status run_all(struct run *run)
{
    static const struct tb_cuda_turns turns = {batch_next, batch_begin, batch_end};
    enum tb_status status = tb_cuda_job_begin(run->m);
    if (status != TB_OK) return status;
    status = tb_cuda_may_patch(run->m) ? tb_cuda_by_turns(run->m, &turns, run) : TB_SITE_NOMEM;
    TB_ASSERT(status != TB_OK || run->next == run->count); /* all of them were on a lane */
    return tb_cuda_job_end(run->m, status);
}

enum tb_status tb_gpu_patch(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count)
{
    struct run run = {.m = m, .deltas = deltas, .count = count, .writes = true};
    return run_all(&run);
}

enum tb_status tb_gpu_prove(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count)
{
    struct run run = {.m = m, .deltas = deltas, .count = count};
    return run_all(&run);
}

/* cuda_patch.c - a step written over tensors that stand on a device, by the device: batches of chunks go by turns over the two lanes;
 * while one is uploaded, the one before is patched.
 *
 * Bytes touched per byte of the buffers, all on the device: a chunk is gathered, patched, scattered, gathered again and digested (3 reads and
 * 3 writes beside the kernels'); over the bus goes the step alone. The second gathering is what P1 asks for: digested is what the
 * tensors hold, not what was meant to get there. */
#include <string.h>

#include "intra/cuda/cuda_memory.h"

struct run {
    struct tb_gpu_memory *m;
    struct tb_gpu_step *steps;
    uint32_t count, next;
};

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + TB_CUDA_CHUNK_ALIGN - 1) / TB_CUDA_CHUNK_ALIGN * TB_CUDA_CHUNK_ALIGN;
}

/* As many as a lane carries; a form is smaller than its chunk, so they fit where the chunks do. */
static struct tb_cuda_batch batch_next(void *user)
{
    struct run *run = user;
    struct tb_cuda_batch b = {.first = run->next};
    uint64_t bytes = 0;
    for (; run->next < run->count && b.count < TB_CUDA_BATCH_CHUNKS; run->next++, b.count++) {
        const uint64_t more = aligned(run->steps[run->next].bytes);
        if (b.count > 0 && bytes + more > TB_CUDA_BATCH_BYTES) break;
        bytes += more;
    }
    return b;
}

/* Between the chunk's tensors and one piece of the device's memory, in either direction. */
static enum tb_status exchange(struct tb_gpu_memory *m, uint32_t lane, const struct tb_gpu_step *step,
                               uint8_t *whole, bool to_tensors)
{
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < step->piece_count && status == TB_OK; i++) {
        const struct tb_gpu_piece *p = &step->pieces[i];
        status = tb_cuda_copy(m, lane,
                              to_tensors ? (struct tb_gpu_move){p->at, whole, p->bytes}
                                         : (struct tb_gpu_move){whole, p->at, p->bytes});
        whole += p->bytes;
    }
    return status;
}

static enum tb_status launch(struct tb_gpu_memory *m, uint32_t lane, enum tb_cuda_kernel kernel,
                             const void *jobs, uint32_t count)
{
    const struct tb_cuda_launch l = {.kernel = kernel,
                                     .jobs = (CUdeviceptr)(uintptr_t)jobs,
                                     .count = count,
                                     .blocks = kernel == TB_CUDA_PATCH ? TB_CUDA_PATCH_BLOCKS : count,
                                     .scratch = m->lanes[lane].blocks};
    return tb_cuda_launch(m->gpu, m->device, m->lanes[lane].stream, &l);
}

/* Forms go up as one piece, and the chunks' bytes are gathered; all jobs of the batch are written. */
static enum tb_status upload(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    uint8_t *at = (uint8_t *)(uintptr_t)l->chunks, *forms = (uint8_t *)(uintptr_t)l->forms;
    uint64_t used = 0;
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const struct tb_gpu_step *step = &run->steps[b->first + i];
        memcpy(l->host_forms + used, step->form, step->form_bytes);
        host->patches[i] = (struct tb_patch_job){
            .form = forms + used, .form_count = step->form_bytes, .bytes = at, .count = step->bytes};
        const bool is_small = step->bytes < TB_KERNEL_DIGEST_MIN;
        host->jobs[i] = (struct tb_digest_job){
            .bytes = at, .count = is_small ? 0 : step->bytes, .digest = slate->digests[i].bytes};
        used += aligned(step->form_bytes);
        status = exchange(run->m, lane, step, at, false);
        at += aligned(step->bytes);
    }
    if (status == TB_OK)
        status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){forms, l->host_forms, used});
    if (status == TB_OK)
        status = tb_cuda_copy(run->m, lane,
                              (struct tb_gpu_move){slate->jobs, host->jobs, b->count * sizeof host->jobs[0]});
    if (status == TB_OK)
        status = tb_cuda_copy(
            run->m, lane,
            (struct tb_gpu_move){slate->patches, host->patches, b->count * sizeof host->patches[0]});
    return status;
}

/* What was patched goes where it stands, and comes again from there. */
static enum tb_status write_and_look(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    uint8_t *at = (uint8_t *)(uintptr_t)l->chunks;
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const struct tb_gpu_step *step = &run->steps[b->first + i];
        status = exchange(run->m, lane, step, at, true);
        if (status == TB_OK) status = exchange(run->m, lane, step, at, false);
        if (status == TB_OK && step->bytes < TB_KERNEL_DIGEST_MIN)
            status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){l->host->small[i], at, step->bytes});
        at += aligned(step->bytes);
    }
    return status;
}

static enum tb_status batch_begin(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    enum tb_status status = upload(run, b, lane);
    if (status == TB_OK) status = launch(run->m, lane, TB_CUDA_PATCH, slate->patches, b->count);
    if (status == TB_OK) status = write_and_look(run, b, lane);
    if (status == TB_OK) status = launch(run->m, lane, TB_CUDA_DIGEST, slate->jobs, b->count);
    if (status == TB_OK)
        status = tb_cuda_copy(
            run->m, lane,
            (struct tb_gpu_move){host->patches, slate->patches, b->count * sizeof host->patches[0]});
    if (status == TB_OK)
        status = tb_cuda_copy(
            run->m, lane,
            (struct tb_gpu_move){host->digests, slate->digests, b->count * sizeof host->digests[0]});
    return status;
}

static void batch_end(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    const struct tb_cuda_slate *host = run->m->lanes[lane].host;
    for (uint32_t i = 0; i < b->count; i++) {
        struct tb_gpu_step *step = &run->steps[b->first + i];
        step->patched = host->patches[i].ok != 0;
        step->digest = host->jobs[i].count > 0 ? host->digests[i] : tb_digest_of(host->small[i], step->bytes);
    }
}

bool tb_gpu_may_patch(const struct tb_gpu_memory *m)
{
    return m->device->module != NULL && !atomic_load(&m->no_patch_room);
}

enum tb_status tb_gpu_patch(struct tb_gpu_memory *m, struct tb_gpu_step *steps, uint32_t count)
{
    static const struct tb_cuda_turns turns = {batch_next, batch_begin, batch_end};
    struct run run = {.m = m, .steps = steps, .count = count};
    enum tb_status status = tb_cuda_job_begin(m);
    if (status != TB_OK) return status;
    status = tb_cuda_may_patch(m) ? tb_cuda_by_turns(m, &turns, &run) : TB_SITE_NOMEM;
    return tb_cuda_job_end(m, status);
}

/* cuda_patch.c - deltas decoded over tensors on a device, by the device, or beside them: batches of
 * chunks go by turns over the two lanes; while one is uploaded, the one before is patched.
 *
 * A chunk that stands in one piece, as most of a large tensor's do, is patched and digested where
 * it is, and a lane's load is what its forms come to: a block works on a chunk, and needs many
 * others beside it. Any other is gathered, patched, scattered, gathered again and digested (3 reads
 * and 3 writes of the device's memory beside the kernels'): digested is what the tensors hold, not
 * what was meant to get there (P1). Over the bus go the deltas alone, and of those that a proof
 * kept on the device nothing. */
#include <string.h>

#include "base/assert.h"
#include "intra/cuda/cuda_deltas.h"
#include "intra/cuda/cuda_lanes.h"
#include "intra/cuda/cuda_moves.h"

/* On the borders that kernels want. */
static bool is_in_place(const struct tb_gpu_delta *delta, bool writes)
{
    return writes && delta->piece_count == 1 && (uintptr_t)delta->pieces[0].at % 16 == 0 &&
           delta->bytes >= TB_KERNEL_DIGEST_MIN;
}

bool tb_cuda_load_add(const struct tb_gpu_memory *m, struct tb_cuda_load *load,
                      const struct tb_gpu_delta *delta, bool writes)
{
    load->count++;
    load->forms += delta->kept == NULL ? tb_cuda_aligned(delta->form_bytes) : 0;
    if (!is_in_place(delta, writes)) {
        load->bytes += tb_cuda_aligned(delta->bytes);
        load->moves += 3 * (uint64_t)delta->piece_count; /* out, in, and out again */
    }
    if (load->count == 1) return true;
    return load->count <= TB_CUDA_BATCH_CHUNKS && load->bytes <= m->batch_bytes &&
           load->forms <= m->batch_bytes && load->moves <= TB_CUDA_MOVES_MAX;
}

uint64_t tb_cuda_forms_bytes(const struct tb_cuda_deltas *b)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->count; i++)
        bytes += b->list[i]->kept == NULL ? tb_cuda_aligned(b->list[i]->form_bytes) : 0;
    return bytes;
}

/* ---- a batch ---- */

/* Where the form stands for the kernel. One that is not kept goes into what is uploaded. */
static const uint8_t *form_of(struct tb_cuda_deltas *b, const struct tb_cuda_lane *l,
                              struct tb_gpu_delta *delta, uint64_t *used)
{
    if (delta->kept != NULL) return delta->kept;
    const uint8_t *form = (b->keep != NULL ? b->keep : (uint8_t *)(uintptr_t)l->forms) + *used;
    memcpy(l->host_forms + *used, delta->form, delta->form_bytes);
    *used += tb_cuda_aligned(delta->form_bytes);
    if (b->keep != NULL) delta->kept = form;
    return form;
}

/* Forms go up as one piece; all jobs of the batch are written. */
static enum tb_status upload(struct tb_gpu_memory *m, uint32_t lane, struct tb_cuda_deltas *b)
{
    TB_ASSERT(b->count > 0 && b->count <= TB_CUDA_BATCH_CHUNKS);
    const struct tb_cuda_lane *l = &m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    uint8_t *at = (uint8_t *)(uintptr_t)l->chunks;
    uint8_t *forms = b->keep != NULL ? b->keep : (uint8_t *)(uintptr_t)l->forms;
    uint64_t used = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        struct tb_gpu_delta *delta = b->list[i];
        const bool is_small = delta->bytes < TB_KERNEL_DIGEST_MIN, in_place = is_in_place(delta, b->writes);
        TB_ASSERT(delta->piece_count > 0 && delta->bytes > 0);
        uint8_t *bytes = in_place ? delta->pieces[0].at : at;
        host->patches[i] = (struct tb_patch_job){.form = form_of(b, l, delta, &used),
                                                 .form_count = delta->form_bytes,
                                                 .bytes = bytes,
                                                 .count = delta->bytes};
        host->jobs[i] = (struct tb_digest_job){
            .bytes = bytes, .count = is_small ? 0 : delta->bytes, .digest = slate->digests[i].bytes};
        if (delta->foreign) tb_cuda_prove(m, lane, i);
        at += in_place ? 0 : tb_cuda_aligned(delta->bytes);
    }
    const enum tb_status status = tb_cuda_copy(m, lane, (struct tb_gpu_move){forms, l->host_forms, used});
    if (status != TB_OK) return status;
    return tb_cuda_copy(
        m, lane, (struct tb_gpu_move){slate->patches, host->patches, b->count * sizeof host->patches[0]});
}

/* Moves the chunks of the batch that are not patched in place, to their tensors or from them. */
static enum tb_status exchange(struct tb_gpu_memory *m, uint32_t lane, const struct tb_cuda_deltas *b,
                               enum tb_cuda_way way)
{
    const struct tb_cuda_slate *host = m->lanes[lane].host;
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const struct tb_gpu_delta *delta = b->list[i];
        if (is_in_place(delta, b->writes)) continue;
        status = tb_cuda_exchange(m, lane, way, delta->pieces, delta->piece_count, host->patches[i].bytes);
    }
    return status == TB_OK ? tb_cuda_moves_run(m, lane) : status;
}

/* Patched chunks go to their tensors, and come again from there to be digested. */
static enum tb_status write_and_look(struct tb_gpu_memory *m, uint32_t lane, const struct tb_cuda_deltas *b)
{
    struct tb_cuda_slate *host = m->lanes[lane].host;
    enum tb_status status = TB_OK;
    if (b->writes) status = exchange(m, lane, b, TB_CUDA_TO_TENSORS);
    if (b->writes && status == TB_OK) status = exchange(m, lane, b, TB_CUDA_FROM_TENSORS);
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const uint32_t bytes = b->list[i]->bytes;
        if (bytes < TB_KERNEL_DIGEST_MIN)
            status =
                tb_cuda_copy(m, lane, (struct tb_gpu_move){host->small[i], host->patches[i].bytes, bytes});
    }
    return status == TB_OK ? tb_cuda_digest(m, lane, b->count) : status;
}

enum tb_status tb_cuda_deltas_begin(struct tb_gpu_memory *m, uint32_t lane, struct tb_cuda_deltas *b)
{
    const struct tb_cuda_lane *l = &m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    enum tb_status status = upload(m, lane, b);
    if (status != TB_OK) return status;
    status = exchange(m, lane, b, TB_CUDA_FROM_TENSORS);
    if (status != TB_OK) return status;
    status = tb_cuda_run_kernel(m, lane, TB_CUDA_PATCH, slate->patches, b->count);
    if (status != TB_OK) return status;
    status = tb_cuda_copy(
        m, lane, (struct tb_gpu_move){host->patches, slate->patches, b->count * sizeof host->patches[0]});
    return status == TB_OK ? write_and_look(m, lane, b) : status;
}

void tb_cuda_deltas_end(const struct tb_gpu_memory *m, uint32_t lane, struct tb_cuda_deltas *b)
{
    const struct tb_cuda_slate *host = m->lanes[lane].host;
    for (uint32_t i = 0; i < b->count; i++) {
        struct tb_gpu_delta *delta = b->list[i];
        delta->patched = host->patches[i].ok != 0;
        delta->digest =
            host->jobs[i].count > 0 ? host->digests[i] : tb_digest_of(host->small[i], delta->bytes);
        if (delta->foreign) delta->proof = tb_cuda_proof(m, lane, i, delta->bytes);
    }
}

/* ---- the switch ---- */

struct run {
    struct tb_gpu_memory *m;
    struct tb_gpu_delta *deltas;
    uint32_t count, next;
    struct tb_cuda_deltas on[TB_CUDA_LANES];
};

/* As many as a lane carries. */
static struct tb_cuda_batch batch_next(void *user)
{
    struct run *run = user;
    struct tb_cuda_batch b = {.first = run->next};
    struct tb_cuda_load load = {.count = 0};
    while (run->next < run->count && tb_cuda_load_add(run->m, &load, &run->deltas[run->next], true)) {
        run->next++;
        b.count++;
    }
    TB_ASSERT(b.count > 0 || run->next == run->count); /* else the rest would be passed over */
    return b;
}

static enum tb_status batch_begin(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    struct tb_cuda_deltas *on = &run->on[lane];
    TB_ASSERT(b->first + b->count <= run->count);
    *on = (struct tb_cuda_deltas){.count = b->count, .writes = true};
    for (uint32_t i = 0; i < b->count; i++)
        on->list[i] = &run->deltas[b->first + i];
    return tb_cuda_deltas_begin(run->m, lane, on);
}

static void batch_end(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    TB_ASSERT(run->on[lane].count == b->count);
    tb_cuda_deltas_end(run->m, lane, &run->on[lane]);
}

bool tb_gpu_may_patch(const struct tb_gpu_memory *m)
{
    return m->device->module != NULL && !atomic_load(&m->no_patch_room);
}

enum tb_status tb_gpu_patch(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count)
{
    static const struct tb_cuda_turns turns = {batch_next, batch_begin, batch_end};
    struct run run = {.m = m, .deltas = deltas, .count = count};
    enum tb_status status = tb_cuda_job_begin(m);
    if (status != TB_OK) return status;
    status = tb_cuda_may_patch(m) ? tb_cuda_by_turns(m, &turns, &run) : TB_SITE_NOMEM;
    TB_ASSERT(status != TB_OK || run.next == run.count); /* all of them were on a lane */
    return tb_cuda_job_end(m, status);
}

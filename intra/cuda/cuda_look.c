/* cuda_look.c - bytes of tensors, digested by the device and nothing else: they are gathered to a
 * lane's scratch, and the kernels digest them there. */
#include "base/assert.h"
#include "intra/cuda/cuda_lanes.h"
#include "intra/cuda/cuda_moves.h"
#include "intra/cuda_part_looks.h"

struct run {
    struct tb_gpu_memory *m;
    struct tb_gpu_look *look;
    bool begun;
};

static struct tb_cuda_batch batch_next(void *user)
{
    struct run *run = user;
    const struct tb_cuda_batch b = {.count = run->begun ? 0 : 1};
    run->begun = true;
    return b;
}

static enum tb_status gather(const struct run *run, uint32_t lane, uint8_t *to)
{
    enum tb_status status = TB_OK;
    uint64_t done = 0;
    for (uint32_t i = 0; i < run->look->piece_count && status == TB_OK; i++) {
        const struct tb_stretch_rows *p = &run->look->pieces[i];
        const struct tb_gpu_rows rows = {.row = {to + done, p->at, p->bytes},
                                         .rows = p->rows,
                                         .to_stride = p->bytes,
                                         .from_stride = p->stride};
        done += p->bytes * p->rows;
        TB_ASSERT(p->rows > 0 && done <= run->look->bytes);
        status = p->rows == 1 ? tb_cuda_move_inside(run->m, lane, rows.row)
                              : tb_cuda_copy_rows(run->m, lane, &rows);
    }
    TB_ASSERT(status != TB_OK || done == run->look->bytes);
    return status == TB_OK ? tb_cuda_moves_run(run->m, lane) : status;
}

static enum tb_status batch_begin(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    (void)b;
    const struct run *run = user;
    const struct tb_cuda_lane *l = &run->m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    uint8_t *at = (uint8_t *)(uintptr_t)l->chunks;
    const uint32_t bytes = run->look->bytes;
    const bool is_small = bytes < TB_KERNEL_DIGEST_MIN;
    enum tb_status status = gather(run, lane, at);
    host->jobs[0] =
        (struct tb_digest_job){.bytes = at, .count = is_small ? 0 : bytes, .digest = slate->digests[0].bytes};
    if (status == TB_OK && is_small)
        status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){host->small[0], at, bytes});
    if (status == TB_OK && run->look->prove) tb_cuda_prove(run->m, lane, 0);
    return status == TB_OK ? tb_cuda_digest(run->m, lane, 1) : status;
}

static void batch_end(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    (void)b;
    const struct run *run = user;
    const struct tb_cuda_slate *host = run->m->lanes[lane].host;
    struct tb_gpu_look *look = run->look;
    look->digest = host->jobs[0].count > 0 ? host->digests[0] : tb_digest_of(host->small[0], look->bytes);
    if (look->prove) look->proof = tb_cuda_proof(run->m, lane, 0, look->bytes);
}

enum tb_status tb_gpu_look(struct tb_gpu_memory *m, struct tb_gpu_look *look)
{
    TB_ASSERT(look->bytes > 0 && look->bytes <= TB_CUDA_BATCH_BYTES && look->piece_count > 0);
    static const struct tb_cuda_turns turns = {batch_next, batch_begin, batch_end};
    struct run run = {.m = m, .look = look};
    enum tb_status status = tb_cuda_job_begin(m);
    if (status != TB_OK) return status;
    const bool may = tb_cuda_may_digest(m);
    if (may) status = tb_cuda_by_turns(m, &turns, &run);
    status = tb_cuda_job_end(m, status);
    return may || status != TB_OK ? status : TB_NOT_FOUND;
}

/* cuda_lanes.c - see cuda_lanes.h. */
#include "intra/cuda/cuda_lanes.h"

#include "base/assert.h"

/* ---- copies ---- */

enum tb_status tb_cuda_copy(struct tb_gpu_memory *m, uint32_t lane, struct tb_gpu_move move)
{
    TB_ASSERT(m->in_job && lane < TB_CUDA_LANES);
    if (move.bytes == 0) return TB_OK;
    const CUresult result =
        m->gpu->driver.copy_async((CUdeviceptr)(uintptr_t)move.to, (CUdeviceptr)(uintptr_t)move.from,
                                  (size_t)move.bytes, m->lanes[lane].stream);
    return result == CUDA_SUCCESS ? TB_OK : tb_cuda_failed(m->gpu, m->device, "cuMemcpyAsync", result);
}

/* Which of both is whose the driver finds out, as it does for a copy of one row. */
static CUresult copy_at_once(struct tb_gpu_memory *m, uint32_t lane, const struct tb_gpu_rows *r)
{
    TB_ASSERT(r->rows > 1 && r->row.bytes > 0);
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = (CUdeviceptr)(uintptr_t)r->row.from,
                                .srcPitch = (size_t)r->from_stride,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = (CUdeviceptr)(uintptr_t)r->row.to,
                                .dstPitch = (size_t)r->to_stride,
                                .WidthInBytes = (size_t)r->row.bytes,
                                .Height = (size_t)r->rows};
    return m->gpu->driver.copy_rows_async(&rows, m->lanes[lane].stream);
}

static enum tb_status copy_one_by_one(struct tb_gpu_memory *m, uint32_t lane, const struct tb_gpu_rows *r)
{
    enum tb_status status = TB_OK;
    struct tb_gpu_move row = r->row;
    for (uint64_t i = 0; i < r->rows && status == TB_OK; i++) {
        status = tb_cuda_copy(m, lane, row);
        row.to = (uint8_t *)row.to + r->to_stride;
        row.from = (const uint8_t *)row.from + r->from_stride;
    }
    return status;
}

/* The driver refuses a call whose host memory is pinned here and not there, as where a reader of
 * slices wants rows that are chunks apart, and may refuse rows of a device that it copies to
 * itself, at strides that it has not chosen. One row meets neither. */
enum tb_status tb_cuda_copy_rows(struct tb_gpu_memory *m, uint32_t lane, const struct tb_gpu_rows *r)
{
    TB_ASSERT(m->in_job && lane < TB_CUDA_LANES);
    const uint64_t most = m->device->pitch_max;
    if (r->rows <= 1 || r->row.bytes == 0) return tb_cuda_copy(m, lane, r->row);
    if (r->to_stride > most || r->from_stride > most) return copy_one_by_one(m, lane, r);
    const CUresult result = copy_at_once(m, lane, r);
    if (result == CUDA_SUCCESS) return TB_OK;
    if (result == CUDA_ERROR_INVALID_VALUE) return copy_one_by_one(m, lane, r);
    return tb_cuda_failed(m->gpu, m->device, "cuMemcpy2DAsync", result);
}

/* ---- what is on a lane ---- */

enum tb_status tb_cuda_mark(struct tb_gpu_memory *m, uint32_t lane)
{
    TB_ASSERT(m->in_job && lane < TB_CUDA_LANES);
    const CUresult result = m->gpu->driver.event_record(m->lanes[lane].event, m->lanes[lane].stream);
    return result == CUDA_SUCCESS ? TB_OK : tb_cuda_failed(m->gpu, m->device, "cuEventRecord", result);
}

enum tb_status tb_cuda_wait(struct tb_gpu_memory *m, uint32_t lane)
{
    TB_ASSERT(m->in_job && lane < TB_CUDA_LANES);
    const CUresult result = m->gpu->driver.event_synchronize(m->lanes[lane].event);
    return result == CUDA_SUCCESS ? TB_OK : tb_cuda_failed(m->gpu, m->device, "cuEventSynchronize", result);
}

bool tb_cuda_is_done(const struct tb_gpu_memory *m, uint32_t lane)
{
    TB_ASSERT(m->in_job && lane < TB_CUDA_LANES);
    return m->gpu->driver.event_query(m->lanes[lane].event) != CUDA_ERROR_NOT_READY;
}

enum tb_status tb_cuda_run_kernel(struct tb_gpu_memory *m, uint32_t lane, enum tb_cuda_kernel kernel,
                                  const void *jobs, uint32_t count)
{
    TB_ASSERT(m->in_job && m->device->module != NULL);
    TB_ASSERT(lane < TB_CUDA_LANES && (unsigned)kernel < TB_CUDA_KERNELS);
    const bool needs_scratch = kernel == TB_CUDA_ENCODE || kernel == TB_CUDA_PATCH;
    TB_ASSERT(count > 0 && (!needs_scratch || m->lanes[lane].blocks != 0));
    const struct tb_cuda_launch l = {.kernel = kernel,
                                     .jobs = (CUdeviceptr)(uintptr_t)jobs,
                                     .count = count,
                                     .blocks = needs_scratch ? m->patch_blocks : count,
                                     .scratch = m->lanes[lane].blocks};
    return tb_cuda_launch(m->gpu, m->device, m->lanes[lane].stream, &l);
}

/* ---- digests and proofs ---- */

static enum tb_status run_proofs(struct tb_gpu_memory *m, uint32_t lane, uint32_t count)
{
    const struct tb_cuda_lane *l = &m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    const uint32_t jobs = l->proofs_listed;
    if (jobs == 0) return TB_OK;
    enum tb_status status = tb_cuda_copy(
        m, lane,
        (struct tb_gpu_move){slate->proof_jobs, host->proof_jobs, jobs * sizeof host->proof_jobs[0]});
    if (status == TB_OK) status = tb_cuda_run_kernel(m, lane, TB_CUDA_BLAKE3, slate->proof_jobs, jobs);
    if (status != TB_OK) return status;
    return tb_cuda_copy(m, lane,
                        (struct tb_gpu_move){host->proofs, slate->proofs, count * sizeof host->proofs[0]});
}

enum tb_status tb_cuda_digest(struct tb_gpu_memory *m, uint32_t lane, uint32_t count)
{
    TB_ASSERT(m->in_job && lane < TB_CUDA_LANES);
    TB_ASSERT(count > 0 && count <= TB_CUDA_BATCH_CHUNKS && m->lanes[lane].host != NULL);
    const struct tb_cuda_lane *l = &m->lanes[lane];
    struct tb_cuda_slate *host = l->host, *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    enum tb_status status =
        tb_cuda_copy(m, lane, (struct tb_gpu_move){slate->jobs, host->jobs, count * sizeof host->jobs[0]});
    if (status == TB_OK) status = tb_cuda_run_kernel(m, lane, TB_CUDA_DIGEST, slate->jobs, count);
    if (status == TB_OK)
        status = tb_cuda_copy(
            m, lane, (struct tb_gpu_move){host->digests, slate->digests, count * sizeof host->digests[0]});
    return status == TB_OK ? run_proofs(m, lane, count) : status;
}

void tb_cuda_prove(struct tb_gpu_memory *m, uint32_t lane, uint32_t i)
{
    struct tb_cuda_lane *l = &m->lanes[lane];
    struct tb_cuda_slate *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    const struct tb_digest_job *job = &l->host->jobs[i];
    TB_ASSERT(i < TB_CUDA_BATCH_CHUNKS && l->proofs_listed < TB_CUDA_BATCH_CHUNKS);
    if (job->count == 0) return; /* in `small` */
    l->host->proof_jobs[l->proofs_listed++] =
        (struct tb_blake3_job){.bytes = job->bytes, .count = job->count, .digest = slate->proofs[i].bytes};
}

struct tb_blake3 tb_cuda_proof(const struct tb_gpu_memory *m, uint32_t lane, uint32_t i, uint64_t bytes)
{
    const struct tb_cuda_slate *host = m->lanes[lane].host;
    TB_ASSERT(i < TB_CUDA_BATCH_CHUNKS && (host->jobs[i].count > 0 || bytes <= sizeof host->small[i]));
    return host->jobs[i].count > 0 ? host->proofs[i] : tb_blake3_of(host->small[i], bytes);
}

/* ---- one lane behind the other ---- */

static enum tb_status begin_batch(struct tb_gpu_memory *m, const struct tb_cuda_turns *turns, void *run,
                                  const struct tb_cuda_batch *b, uint32_t lane)
{
    TB_ASSERT(b->count > 0 && b->count <= TB_CUDA_MOVES_MAX);
    m->lanes[lane].moves_listed = m->lanes[lane].moves_run = 0; /* what was on the lane is done */
    m->lanes[lane].proofs_listed = 0;
    const enum tb_status status = turns->begin(run, b, lane);
    return status == TB_OK ? tb_cuda_mark(m, lane) : status;
}

static enum tb_status end_batch(struct tb_gpu_memory *m, const struct tb_cuda_turns *turns, void *run,
                                const struct tb_cuda_batch *b, uint32_t lane)
{
    TB_ASSERT(m->lanes[lane].moves_run == m->lanes[lane].moves_listed); /* none was only listed */
    const enum tb_status status = tb_cuda_wait(m, lane);
    if (status == TB_OK) turns->end(run, b, lane);
    return status;
}

enum tb_status tb_cuda_by_turns(struct tb_gpu_memory *m, const struct tb_cuda_turns *turns, void *run)
{
    TB_ASSERT(m->in_job);
    enum tb_status status = TB_OK;
    struct tb_cuda_batch before = {.count = 0};
    for (uint32_t lane = 0; status == TB_OK; lane = (lane + 1) % TB_CUDA_LANES) {
        const struct tb_cuda_batch now = turns->next(run);
        if (now.count > 0) status = begin_batch(m, turns, run, &now, lane);
        if (before.count > 0 && status == TB_OK)
            status = end_batch(m, turns, run, &before, (lane + TB_CUDA_LANES - 1) % TB_CUDA_LANES);
        if (now.count == 0) break;
        before = now;
    }
    return status;
}

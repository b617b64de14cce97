/* cuda_stage.c - device memory of ours in which a version lands, chunk by chunk, from host memory
 * or by a NIC, and is digested where it then stands.
 *
 * Promise P1: what a NIC has written is made visible to the device behind the end of its READ and
 * before the digest (tb_cuda_job_begin), and what came from the host is digested from the device's
 * memory, not from where it was.
 *
 * One block digests one chunk, so threads that come while a job runs wait, and the next job has all
 * of them (intra/coalesce.h). Bytes touched per byte of the version, on the device: written once,
 * read once; of a chunk that stands off the kernel's border once more each. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/cuda/cuda_memory.h"

#define BLOCK_BYTES  ((uint64_t)2 << 20) /* a driver's: dma-bufs are of whole pages */
#define KERNEL_ALIGN 16u

struct tb_gpu_stage {
    struct tb_gpu_memory *m; /* over `base` */
    struct tb_gpu *gpu;
    struct tb_cuda_device *device;
    CUdeviceptr base;
    atomic_bool failed;
    struct tb_together takes;
};

/* ---- a job ---- */

struct run {
    struct tb_gpu_memory *m;
    struct tb_gpu_landing *const *led;
    uint32_t count, next;
};

/* As many as a lane carries: a lane's scratch takes them all, if it has to. */
static struct tb_cuda_batch batch_next(void *user)
{
    struct run *run = user;
    struct tb_cuda_batch b = {.first = run->next};
    uint64_t bytes = 0;
    for (; run->next < run->count; run->next++, b.count++) {
        bytes += tb_cuda_aligned(run->led[run->next]->bytes);
        if (b.count > 0 && bytes > TB_CUDA_BATCH_BYTES) break;
    }
    TB_ASSERT(b.count > 0 || run->next == run->count); /* else the rest would be passed over */
    return b;
}

/* To where it stands; from there, and from nowhere else, to what digests it. */
static enum tb_status land(struct run *run, uint32_t lane, const struct tb_gpu_landing *landing, uint32_t i,
                           uint8_t *scratch)
{
    TB_ASSERT(i < TB_CUDA_BATCH_CHUNKS && landing->bytes > 0);
    TB_ASSERT(tb_cuda_is_tensors(run->m, landing->at)); /* the stage's own memory */
    struct tb_cuda_slate *host = run->m->lanes[lane].host;
    struct tb_cuda_slate *slate = (struct tb_cuda_slate *)(uintptr_t)run->m->lanes[lane].slate;
    const uint64_t bytes = landing->bytes;
    const bool is_small = bytes < TB_KERNEL_DIGEST_MIN;
    const bool is_off = !is_small && (uintptr_t)landing->at % KERNEL_ALIGN != 0;
    enum tb_status status = TB_OK;
    if (landing->from != NULL)
        status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){landing->at, landing->from, bytes});
    if (status == TB_OK && is_small)
        status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){host->small[i], landing->at, bytes});
    if (status == TB_OK && is_off)
        status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){scratch, landing->at, bytes});
    host->jobs[i] = (struct tb_digest_job){.bytes = is_off ? scratch : landing->at,
                                           .count = is_small ? 0 : bytes,
                                           .digest = slate->digests[i].bytes};
    return status;
}

static enum tb_status batch_begin(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    uint8_t *scratch = (uint8_t *)(uintptr_t)run->m->lanes[lane].chunks;
    TB_ASSERT(b->count <= TB_CUDA_BATCH_CHUNKS && b->first + b->count <= run->count);
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const struct tb_gpu_landing *landing = run->led[b->first + i];
        status = land(run, lane, landing, i, scratch);
        scratch += tb_cuda_aligned(landing->bytes);
    }
    return status == TB_OK ? tb_cuda_digest(run->m, lane, b->count) : status;
}

static void batch_end(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    const struct tb_cuda_slate *host = run->m->lanes[lane].host;
    for (uint32_t i = 0; i < b->count; i++) {
        struct tb_gpu_landing *landing = run->led[b->first + i];
        landing->digest =
            host->jobs[i].count > 0 ? host->digests[i] : tb_digest_of(host->small[i], landing->bytes);
    }
}

/* Those that come meanwhile have not begun when the job makes a NIC's writes visible: they
 * are of the next one. */
static enum tb_status job(void *user, struct tb_asked *const *all, uint32_t count)
{
    TB_ASSERT(count > 0 && count <= TB_TOGETHER_MAX);
    static const struct tb_cuda_turns turns = {batch_next, batch_begin, batch_end};
    struct tb_gpu_stage *s = user;
    struct tb_gpu_landing *led[TB_TOGETHER_MAX];
    for (uint32_t i = 0; i < count; i++)
        led[i] = (struct tb_gpu_landing *)all[i]; /* its first member */
    struct run run = {.m = s->m, .led = led, .count = count};
    enum tb_status status = tb_cuda_job_begin(s->m);
    if (status == TB_OK) status = tb_cuda_job_end(s->m, tb_cuda_by_turns(s->m, &turns, &run));
    TB_ASSERT(status != TB_OK || run.next == count);
    if (status != TB_OK) atomic_store(&s->failed, true);
    return status;
}

enum tb_status tb_gpu_stage_take(struct tb_gpu_stage *s, struct tb_gpu_landing *landing)
{
    return tb_together_ask(&s->takes, &landing->asked);
}

bool tb_gpu_stage_failed(const struct tb_gpu_stage *s)
{
    return atomic_load(&s->failed);
}

uint8_t *tb_gpu_stage_base(const struct tb_gpu_stage *s)
{
    return (uint8_t *)(uintptr_t)s->base;
}

bool tb_gpu_stage_device(struct tb_gpu_stage *s, const void *at, uint64_t bytes,
                         struct tb_export_device *device_out)
{
    return s->device->nic_writes != TB_CUDA_NIC_WRITES_UNSEEN &&
           tb_gpu_memory_device(s->m, at, bytes, device_out);
}

/* ---- beginning and end ---- */

static void free_base(const struct tb_gpu_stage *s)
{
    TB_ASSERT(s->base != 0);
    if (tb_cuda_enter(s->gpu, s->device) != TB_OK) return;
    const CUresult result = s->gpu->driver.mem_free(s->base);
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(s->gpu, s->device, "cuMemFree", result);
    tb_cuda_leave(s->gpu);
}

/* That there is no room is not the driver's fault: the caller says it. */
static enum tb_status new_base(struct tb_gpu_stage *s, uint64_t count, char *why)
{
    const enum tb_status status = tb_cuda_enter(s->gpu, s->device);
    if (status != TB_OK) return status;
    const CUresult result = s->gpu->driver.mem_alloc(&s->base, (size_t)count);
    tb_cuda_leave(s->gpu);
    if (result == CUDA_SUCCESS) return TB_OK;
    snprintf(why, TB_GPU_WHY_BYTES, "the GPU has no room for %llu bytes: %s", (unsigned long long)count,
             tb_cuda_error_name(&s->gpu->driver, result));
    return TB_SITE_NOMEM;
}

static enum tb_status new_scratch(struct tb_gpu_stage *s, char *why)
{
    enum tb_status status = tb_cuda_job_begin(s->m);
    if (status != TB_OK) return status;
    if (!tb_cuda_has_scratch(s->m)) {
        snprintf(why, TB_GPU_WHY_BYTES, "the GPU has no room to digest what lands there");
        status = TB_SITE_NOMEM;
    }
    return tb_cuda_job_end(s->m, status);
}

static enum tb_status begin(struct tb_gpu_stage *s, uint64_t bytes, char *why)
{
    const uint64_t count = (bytes / BLOCK_BYTES + 1) * BLOCK_BYTES;
    enum tb_status status = new_base(s, count, why);
    if (status != TB_OK) return status;
    const struct tb_cuda_range range = {.base = s->base, .bytes = count};
    status = tb_cuda_memory_of_ours(s->gpu, s->device, range, &s->m);
    if (status != TB_OK) goto undo_base;
    status = new_scratch(s, why);
    if (status == TB_OK) return TB_OK;
    tb_gpu_memory_close(s->m);
undo_base:
    free_base(s);
    return status;
}

enum tb_status tb_gpu_stage_open(struct tb_gpu_memory *beside, uint64_t bytes,
                                 struct tb_gpu_stage **stage_out, char *why)
{
    if (beside->device->module == NULL) {
        snprintf(why, TB_GPU_WHY_BYTES, "the GPU would not digest it: %s", beside->device->why_cores);
        return TB_NOT_FOUND;
    }
    snprintf(why, TB_GPU_WHY_BYTES, "the driver refused: see gpu.failed in the log");
    struct tb_gpu_stage *s = tb_calloc(1, sizeof *s);
    if (s == NULL) return TB_SITE_NOMEM;
    s->gpu = beside->gpu;
    s->device = beside->device;
    const enum tb_status status = begin(s, bytes, why);
    if (status != TB_OK) {
        tb_free(s);
        return status;
    }
    TB_ASSERT(s->m != NULL && s->base != 0);
    tb_together_init(&s->takes, job, s);
    *stage_out = s;
    return TB_OK;
}

void tb_gpu_stage_close(struct tb_gpu_stage *s)
{
    if (s == NULL) return;
    tb_together_fini(&s->takes);
    tb_gpu_memory_close(s->m);
    free_base(s);
    tb_free(s);
}

/* cuda_stage.c - device memory of ours in which a version lands, chunk by chunk, from host memory
 * or by a NIC, and is digested where it then stands.
 *
 * Promise P1: the writes of a NIC are made visible to the device behind the end of its READ and
 * before the digest (cuda_queue.h), and what came from the host is digested from the device's
 * memory, not from where it was.
 *
 * One block digests one chunk, so chunks go in batches. From the host they come by a ring of pinned
 * memory: out of any other the driver copies by its own thread, and one chunk at a time. Bytes
 * touched per byte of the version, on the device: written once, read once; of a chunk that stands
 * off the kernel's border once more each. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "intra/cuda/cuda_lanes.h"
#include "intra/cuda/cuda_queue.h"
#include "intra/cuda_part_stage.h"

#define BLOCK_BYTES  ((uint64_t)2 << 20) /* a driver's: dma-bufs are of whole pages */
#define KERNEL_ALIGN 16u
#define BATCH_BYTES  ((uint64_t)48 << 20)  /* 0.9 ms of PCIe 5 */
#define RING_BYTES   ((uint64_t)128 << 20) /* two batches under way, and another that lands */
#define RING_PARTS   256u
#define BURST_MAX    64u /* batches. Nobody else has these lanes */

struct tb_gpu_stage {
    struct tb_gpu_memory *m; /* over `base` */
    struct tb_gpu *gpu;
    struct tb_cuda_device *device;
    CUdeviceptr base;
    atomic_bool failed;
    struct tb_cuda_queue *queue;
    struct { /* the batch that is gathered */
        uint64_t bytes, off_bytes;
        uint32_t chunks;
    } load;

    pthread_mutex_t ring_lock; /* of `unlent` */
    uint8_t *ring;             /* pinned; NULL: none */
    uint32_t part_bytes, part_count;
    /* The parts that are there, in the order in which they are lent: chunks that land one behind
     * the other go up as one. */
    uint32_t unlent[RING_PARTS], unlent_first, unlent_count;
};

/* ---- a batch ---- */

static struct tb_gpu_landing *landing_of(struct tb_gpu_ask *ask)
{
    return (struct tb_gpu_landing *)ask; /* its first member */
}

static bool is_off(const struct tb_gpu_landing *l)
{
    return l->bytes >= TB_KERNEL_DIGEST_MIN && (uintptr_t)l->at % KERNEL_ALIGN != 0;
}

/* A lane's scratch takes all that stand off the kernel's border. */
static bool fits(void *user, const struct tb_gpu_ask *ask, bool first)
{
    struct tb_gpu_stage *s = user;
    const struct tb_gpu_landing *l = (const struct tb_gpu_landing *)ask;
    if (first) s->load.bytes = s->load.off_bytes = s->load.chunks = 0;
    s->load.bytes += l->bytes;
    s->load.off_bytes += is_off(l) ? tb_cuda_aligned(l->bytes) : 0;
    s->load.chunks++;
    return first || (s->load.chunks <= TB_CUDA_BATCH_CHUNKS && s->load.bytes <= BATCH_BYTES &&
                     s->load.off_bytes <= s->m->batch_bytes);
}

static int by_place(const void *a, const void *b)
{
    const struct tb_gpu_landing *x = *(struct tb_gpu_landing *const *)a,
                                *y = *(struct tb_gpu_landing *const *)b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* To where they stand. Those that stand side by side, here and there, go up as one: each copy costs
 * the bus some microseconds. */
static enum tb_status bring_up(struct tb_gpu_stage *s, uint32_t lane, struct tb_gpu_ask *asked,
                               uint32_t count)
{
    struct tb_gpu_landing *list[TB_CUDA_BATCH_CHUNKS] = {NULL};
    uint32_t i = 0;
    for (struct tb_gpu_ask *a = asked; a != NULL; a = a->next)
        list[i++] = landing_of(a);
    TB_ASSERT(i == count);
    qsort(list, count, sizeof(struct tb_gpu_landing *), by_place);
    enum tb_status status = TB_OK;
    for (i = 0; i < count && status == TB_OK;) {
        const struct tb_gpu_landing *first = list[i];
        uint64_t bytes = first->bytes;
        for (i++; i < count && first->from != NULL && list[i]->from == first->from + bytes; i++) {
            if (list[i]->at != first->at + bytes) break;
            bytes += list[i]->bytes;
        }
        if (first->from != NULL)
            status = tb_cuda_copy(s->m, lane, (struct tb_gpu_move){first->at, first->from, bytes});
    }
    return status;
}

/* From where it stands, and from nowhere else, to what digests it. */
static enum tb_status look(struct tb_gpu_stage *s, uint32_t lane, const struct tb_gpu_landing *landing,
                           uint32_t i, uint8_t *scratch)
{
    TB_ASSERT(i < TB_CUDA_BATCH_CHUNKS && landing->bytes > 0);
    TB_ASSERT(tb_cuda_is_tensors(s->m, landing->at)); /* the stage's own memory */
    struct tb_cuda_slate *host = s->m->lanes[lane].host;
    struct tb_cuda_slate *slate = (struct tb_cuda_slate *)(uintptr_t)s->m->lanes[lane].slate;
    const uint64_t bytes = landing->bytes;
    const bool is_small = bytes < TB_KERNEL_DIGEST_MIN;
    enum tb_status status = TB_OK;
    if (is_small) status = tb_cuda_copy(s->m, lane, (struct tb_gpu_move){host->small[i], landing->at, bytes});
    if (status == TB_OK && is_off(landing))
        status = tb_cuda_copy(s->m, lane, (struct tb_gpu_move){scratch, landing->at, bytes});
    host->jobs[i] = (struct tb_digest_job){.bytes = is_off(landing) ? scratch : landing->at,
                                           .count = is_small ? 0 : bytes,
                                           .digest = slate->digests[i].bytes};
    if (landing->foreign) tb_cuda_prove(s->m, lane, i);
    return status;
}

static enum tb_status begin_batch(void *user, struct tb_gpu_ask *first, uint32_t count, uint32_t lane)
{
    struct tb_gpu_stage *s = user;
    uint8_t *scratch = (uint8_t *)(uintptr_t)s->m->lanes[lane].chunks;
    TB_ASSERT(count > 0 && count <= TB_CUDA_BATCH_CHUNKS);
    enum tb_status status = bring_up(s, lane, first, count);
    uint32_t i = 0;
    for (struct tb_gpu_ask *a = first; a != NULL && status == TB_OK; a = a->next) {
        const struct tb_gpu_landing *landing = landing_of(a);
        status = look(s, lane, landing, i++, scratch);
        scratch += is_off(landing) ? tb_cuda_aligned(landing->bytes) : 0;
    }
    return status == TB_OK ? tb_cuda_digest(s->m, lane, count) : status;
}

static void end_batch(void *user, struct tb_gpu_ask *first, uint32_t count, uint32_t lane)
{
    const struct tb_gpu_stage *s = user;
    const struct tb_cuda_slate *host = s->m->lanes[lane].host;
    uint32_t i = 0;
    for (struct tb_gpu_ask *a = first; a != NULL; a = a->next, i++) {
        struct tb_gpu_landing *landing = landing_of(a);
        landing->digest =
            host->jobs[i].count > 0 ? host->digests[i] : tb_digest_of(host->small[i], landing->bytes);
        if (landing->foreign) landing->proof = tb_cuda_proof(s->m, lane, i, landing->bytes);
    }
    TB_ASSERT(i == count);
}

static void close_burst(void *user, enum tb_status status)
{
    struct tb_gpu_stage *s = user;
    if (status != TB_OK) atomic_store(&s->failed, true);
}

void tb_gpu_stage_take(struct tb_gpu_stage *s, struct tb_gpu_landing *landing)
{
    tb_cuda_queue_ask(s->queue, &landing->asked);
}

bool tb_gpu_stage_failed(const struct tb_gpu_stage *s)
{
    return atomic_load(&s->failed);
}

/* ---- the ring ---- */

uint8_t *tb_gpu_stage_lend(struct tb_gpu_stage *s, uint32_t bytes)
{
    TB_ASSERT(s->ring == NULL || bytes <= s->part_bytes);
    uint8_t *part = NULL;
    pthread_mutex_lock(&s->ring_lock);
    if (s->unlent_count > 0) {
        part = s->ring + (uint64_t)s->unlent[s->unlent_first] * s->part_bytes;
        s->unlent_first = (s->unlent_first + 1) % s->part_count;
        s->unlent_count--;
    }
    pthread_mutex_unlock(&s->ring_lock);
    return part;
}

void tb_gpu_stage_give(struct tb_gpu_stage *s, uint8_t *lent)
{
    const uint64_t at = (uint64_t)(lent - s->ring);
    TB_ASSERT(s->ring != NULL && at % s->part_bytes == 0 && at / s->part_bytes < s->part_count);
    pthread_mutex_lock(&s->ring_lock);
    TB_ASSERT(s->unlent_count < s->part_count);
    s->unlent[(s->unlent_first + s->unlent_count++) % s->part_count] = (uint32_t)(at / s->part_bytes);
    pthread_mutex_unlock(&s->ring_lock);
}

void tb_gpu_stage_facts(struct tb_gpu_stage *s, struct tb_gpu_stage_facts *facts_out)
{
    *facts_out = (struct tb_gpu_stage_facts){.ring_bytes = (uint64_t)s->part_bytes * s->part_count,
                                             .queue = tb_cuda_queue_counts(s->queue)};
}

/* No more than the version has. Without it copies are slower, and the same otherwise. */
static void new_ring(struct tb_gpu_stage *s, const struct tb_gpu_stage_size *size)
{
    const uint64_t part = tb_cuda_aligned(size->chunk_bytes > 0 ? size->chunk_bytes : 1);
    uint64_t count = RING_BYTES / part;
    if (count < 2) count = 2;
    if (count > RING_PARTS) count = RING_PARTS;
    if (count > size->bytes / part + 1) count = size->bytes / part + 1;
    void *ring = NULL;
    if (tb_cuda_enter(s->gpu, s->device) != TB_OK) return;
    const CUresult result = s->gpu->driver.host_alloc(&ring, (size_t)(part * count), 0);
    tb_cuda_leave(s->gpu);
    if (result != CUDA_SUCCESS) {
        tb_log(TB_LOG_WARN, "gpu.unpinned", "bytes=%llu error=%s action=slower_copies",
               (unsigned long long)part * count, tb_cuda_error_name(&s->gpu->driver, result));
        return;
    }
    s->ring = ring;
    s->part_bytes = (uint32_t)part;
    s->part_count = s->unlent_count = (uint32_t)count;
    for (uint32_t i = 0; i < s->part_count; i++)
        s->unlent[i] = i;
}

static void free_ring(struct tb_gpu_stage *s)
{
    TB_ASSERT(s->unlent_count == s->part_count); /* all of it is back */
    if (s->ring == NULL || tb_cuda_enter(s->gpu, s->device) != TB_OK) return;
    const CUresult result = s->gpu->driver.host_free(s->ring);
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(s->gpu, s->device, "cuMemFreeHost", result);
    tb_cuda_leave(s->gpu);
}

/* ---- for NICs ---- */

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

static enum tb_status new_queue(struct tb_gpu_stage *s)
{
    const struct tb_cuda_queue_user user = {.close = close_burst,
                                            .fits = fits,
                                            .begin = begin_batch,
                                            .end = end_batch,
                                            .burst_max = BURST_MAX,
                                            .user = s};
    return tb_cuda_queue_new(s->m, &user, &s->queue);
}

static enum tb_status begin(struct tb_gpu_stage *s, const struct tb_gpu_stage_size *size, char *why)
{
    const uint64_t count = (size->bytes / BLOCK_BYTES + 1) * BLOCK_BYTES;
    enum tb_status status = new_base(s, count, why);
    if (status != TB_OK) return status;
    const struct tb_cuda_range range = {.base = s->base, .bytes = count};
    status = tb_cuda_memory_of_ours(s->gpu, s->device, range, &s->m);
    if (status != TB_OK) goto undo_base;
    status = new_scratch(s, why);
    if (status == TB_OK) status = new_queue(s);
    if (status != TB_OK) goto undo_memory;
    pthread_mutex_init(&s->ring_lock, NULL);
    new_ring(s, size);
    return TB_OK;
undo_memory:
    tb_gpu_memory_close(s->m);
undo_base:
    free_base(s);
    return status;
}

enum tb_status tb_gpu_stage_open(struct tb_gpu_memory *beside, const struct tb_gpu_stage_size *size,
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
    const enum tb_status status = begin(s, size, why);
    if (status != TB_OK) {
        tb_free(s);
        return status;
    }
    TB_ASSERT(s->m != NULL && s->base != 0 && s->queue != NULL);
    *stage_out = s;
    return TB_OK;
}

void tb_gpu_stage_close(struct tb_gpu_stage *s)
{
    if (s == NULL) return;
    tb_cuda_queue_free(s->queue);
    free_ring(s);
    pthread_mutex_destroy(&s->ring_lock);
    tb_gpu_memory_close(s->m);
    free_base(s);
    tb_free(s);
}

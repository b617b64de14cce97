#include "intra/cuda/cuda_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"

#define DMABUF_UNASKED (-1)
#define DMABUF_REFUSED (-2)

/* ---- whose a pointer is ---- */

struct pointer {
    unsigned type; /* CUmemorytype; 0: the driver does not know it */
    int ordinal;
    unsigned managed;
    CUcontext context; /* NULL for memory that was mapped by handles: it has none */
    CUdeviceptr base;
    size_t bytes;
};

static bool on_device(const struct pointer *p)
{
    return p->type == CU_MEMORYTYPE_DEVICE && p->managed == 0;
}

static enum tb_status ask(const struct tb_gpu *gpu, const void *at, struct pointer *p)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *into[] = {&p->type, &p->ordinal, &p->managed, &p->context, &p->base, &p->bytes};
    memset(p, 0, sizeof *p);
    const CUresult result = gpu->driver.pointer_attributes(sizeof which / sizeof which[0], which, into,
                                                           (CUdeviceptr)(uintptr_t)at);
    /* Before cuInit, without any context, and after the driver's end, nobody has device memory. */
    if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_INVALID_CONTEXT ||
        result == CUDA_ERROR_DEINITIALIZED) {
        memset(p, 0, sizeof *p);
        return TB_OK;
    }
    return result == CUDA_SUCCESS ? TB_OK : tb_cuda_failed(gpu, NULL, "cuPointerGetAttributes", result);
}

static enum tb_status not_ours(char *why, const char *name, const char *what)
{
    snprintf(why, TB_GPU_WHY_BYTES, "tensor \"%.200s\" %s", name, what);
    return TB_BAD_ARGUMENT;
}

/* The first tensor on a device says which one. */
static enum tb_status belongs(struct tb_gpu_memory *m, const struct tb_tensor *t, const struct pointer *p,
                              char *why)
{
    if (m->device == NULL) {
        const enum tb_status status = tb_cuda_device_open(m->gpu, p->ordinal, &m->device);
        if (status != TB_OK)
            snprintf(why, TB_GPU_WHY_BYTES, "device %d cannot be used: see gpu.failed in the log",
                     p->ordinal);
        if (status != TB_OK) return status;
    }
    if (m->device != &m->gpu->devices[p->ordinal])
        return not_ours(why, t->name,
                        "stands on another GPU than those before it: register each GPU's tensors apart");
    if (p->context != NULL && p->context != m->device->context)
        return not_ours(why, t->name,
                        "stands in a context other than the GPU's primary one: allocate it there");
    return TB_OK;
}

/* Allocators whose segments grow map memory by handles (cuMemMap). Of such memory the driver gives
 * the reserved range, mapped or not. So only the tensor's own pages count, and pages that touch
 * them are one range with them. */
static struct tb_cuda_range range_around(const struct pointer *p, const void *at, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), address = (uint64_t)(uintptr_t)at;
    if (p->context != NULL) return (struct tb_cuda_range){p->base, p->bytes, false, DMABUF_UNASKED};
    const uint64_t first = address / page * page, end = (address + bytes + page - 1) / page * page;
    return (struct tb_cuda_range){first, end - first, true, DMABUF_UNASKED};
}

static enum tb_status examine(struct tb_gpu_memory *m, const struct tb_gpu_tensors *tensors, char *why)
{
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        const struct tb_tensor *t = &tensors->layout->tensors[i];
        if (t->bytes == 0) continue;
        struct pointer p;
        enum tb_status status = ask(m->gpu, tensors->at[i], &p);
        if (status == TB_OK && !on_device(&p)) continue;
        if (status == TB_OK) status = belongs(m, t, &p, why);
        if (status != TB_OK) return status;
        TB_ASSERT(m->range_count < m->tensor_count && !m->has[i]);
        m->has[i] = true;
        m->ranges[m->range_count++] = range_around(&p, tensors->at[i], t->bytes);
    }
    return TB_OK;
}

static int by_base(const void *a, const void *b)
{
    const uint64_t x = ((const struct tb_cuda_range *)a)->base, y = ((const struct tb_cuda_range *)b)->base;
    return x < y ? -1 : x > y;
}

/* The next one is a part of it, or becomes one. */
static bool joins(struct tb_cuda_range *before, const struct tb_cuda_range *next)
{
    TB_ASSERT(before->base <= next->base); /* sorted */
    const uint64_t end = before->base + before->bytes, next_end = next->base + next->bytes;
    if (!before->mapped || !next->mapped) return before->base == next->base;
    if (next->base > end) return false;
    if (next_end > end) before->bytes = next_end - before->base;
    return true;
}

static void sort_ranges(struct tb_gpu_memory *m)
{
    qsort(m->ranges, m->range_count, sizeof *m->ranges, by_base);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->range_count; i++)
        if (kept == 0 || !joins(&m->ranges[kept - 1], &m->ranges[i])) m->ranges[kept++] = m->ranges[i];
    m->range_count = kept;
    TB_ASSERT(kept > 0);
}

/* ---- lanes ---- */

/* Of a batch's chunks or forms, each on its border. */
static size_t batch_room(const struct tb_gpu_memory *m)
{
    return (size_t)m->batch_bytes + (size_t)TB_CUDA_BATCH_CHUNKS * TB_CUDA_CHUNK_ALIGN;
}

static size_t blocks_bytes(const struct tb_gpu_memory *m)
{
    return (size_t)m->patch_blocks * TB_KERNEL_SCRATCH_BYTES;
}

static uint64_t between(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static void choose_sizes(struct tb_gpu_memory *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->range_count; i++)
        bytes += m->ranges[i].bytes;
    const uint64_t part = bytes / TB_CUDA_BATCH_PART / TB_CHUNK_BYTES_MAX * TB_CHUNK_BYTES_MAX;
    m->batch_bytes = between(part, TB_CUDA_BATCH_BYTES, TB_CUDA_BATCH_BYTES_MAX);
    m->patch_blocks =
        (uint32_t)between(bytes / TB_CUDA_PATCH_BLOCK_OF, TB_CUDA_PATCH_BLOCKS_MIN, TB_CUDA_PATCH_BLOCKS_MAX);
}

static enum tb_status open_lane(const struct tb_gpu_memory *m, struct tb_cuda_lane *lane)
{
    TB_ASSERT(lane->stream == NULL && lane->event == NULL);
    const struct tb_cuda_driver *cu = &m->gpu->driver;
    /* Not ordered behind the caller's default stream: what it computes there goes on meanwhile. */
    CUresult result = cu->stream_create(&lane->stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) return tb_cuda_failed(m->gpu, m->device, "cuStreamCreate", result);
    result = cu->event_create(&lane->event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    if (result != CUDA_SUCCESS) return tb_cuda_failed(m->gpu, m->device, "cuEventCreate", result);
    return TB_OK;
}

static void free_scratch(const struct tb_gpu_memory *m, struct tb_cuda_lane *lane)
{
    const struct tb_cuda_driver *cu = &m->gpu->driver;
    CUresult result = lane->chunks != 0 ? cu->mem_free(lane->chunks) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuMemFree", result);
    result = lane->slate != 0 ? cu->mem_free(lane->slate) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuMemFree", result);
    result = lane->host != NULL ? cu->host_free(lane->host) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuMemFreeHost", result);
    lane->chunks = lane->slate = 0;
    lane->host = NULL;
}

static void free_patch_room(const struct tb_gpu_memory *m, struct tb_cuda_lane *lane)
{
    const struct tb_cuda_driver *cu = &m->gpu->driver;
    CUresult result = lane->forms != 0 ? cu->mem_free(lane->forms) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuMemFree", result);
    result = lane->bases != 0 ? cu->mem_free(lane->bases) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuMemFree", result);
    result = lane->blocks != 0 ? cu->mem_free(lane->blocks) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuMemFree", result);
    result = lane->host_forms != NULL ? cu->host_free(lane->host_forms) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuMemFreeHost", result);
    lane->forms = lane->bases = lane->blocks = 0;
    lane->host_forms = NULL;
}

static bool new_patch_room(const struct tb_gpu_memory *m, struct tb_cuda_lane *lane)
{
    TB_ASSERT(lane->host != NULL && lane->host_forms == NULL && lane->forms == 0);
    const struct tb_cuda_driver *cu = &m->gpu->driver;
    void *host = NULL;
    if (cu->mem_alloc(&lane->forms, batch_room(m)) != CUDA_SUCCESS) return false;
    if (cu->mem_alloc(&lane->bases, batch_room(m)) != CUDA_SUCCESS) return false;
    if (cu->mem_alloc(&lane->blocks, blocks_bytes(m)) != CUDA_SUCCESS) return false;
    if (cu->host_alloc(&host, batch_room(m), 0) != CUDA_SUCCESS) return false;
    lane->host_forms = host;
    return true;
}

bool tb_cuda_may_patch(struct tb_gpu_memory *m)
{
    TB_ASSERT(m->in_job);
    if (!tb_cuda_may_digest(m)) return false;
    for (uint32_t i = 0; i < TB_CUDA_LANES; i++) {
        if (m->lanes[i].host_forms != NULL || new_patch_room(m, &m->lanes[i])) continue;
        tb_log(TB_LOG_WARN, "gpu.no_room", "device=%d bytes=%llu action=chunks_come_whole",
               (int)m->device->handle,
               (unsigned long long)(TB_CUDA_LANES * (2 * batch_room(m) + blocks_bytes(m))));
        atomic_store(&m->no_patch_room, true);
        for (uint32_t k = 0; k < TB_CUDA_LANES; k++)
            free_patch_room(m, &m->lanes[k]);
        return false;
    }
    return true;
}

static bool new_scratch(const struct tb_gpu_memory *m, struct tb_cuda_lane *lane)
{
    TB_ASSERT(lane->host == NULL && lane->chunks == 0 && lane->slate == 0);
    const struct tb_cuda_driver *cu = &m->gpu->driver;
    void *host = NULL;
    if (cu->mem_alloc(&lane->chunks, batch_room(m)) != CUDA_SUCCESS) return false;
    if (cu->mem_alloc(&lane->slate, sizeof *lane->host) != CUDA_SUCCESS) return false;
    if (cu->host_alloc(&host, sizeof *lane->host, 0) != CUDA_SUCCESS) return false;
    lane->host = host;
    return true;
}

bool tb_cuda_has_scratch(struct tb_gpu_memory *m)
{
    TB_ASSERT(m->in_job);
    for (uint32_t i = 0; i < TB_CUDA_LANES; i++) {
        if (m->lanes[i].host != NULL || new_scratch(m, &m->lanes[i])) continue;
        for (uint32_t k = 0; k < TB_CUDA_LANES; k++)
            free_scratch(m, &m->lanes[k]);
        return false;
    }
    return true;
}

bool tb_cuda_may_digest(struct tb_gpu_memory *m)
{
    TB_ASSERT(m->in_job);
    if (m->device->module == NULL || m->no_scratch) return false;
    if (tb_cuda_has_scratch(m)) return true;
    tb_log(TB_LOG_WARN, "gpu.no_room", "device=%d bytes=%llu action=cores_digest", (int)m->device->handle,
           (unsigned long long)(TB_CUDA_LANES * (batch_room(m) + sizeof(struct tb_cuda_slate))));
    m->no_scratch = true;
    atomic_store(&m->no_patch_room, true);
    return false;
}

static void close_lane(const struct tb_gpu_memory *m, struct tb_cuda_lane *lane)
{
    const struct tb_cuda_driver *cu = &m->gpu->driver;
    CUresult result = lane->event != NULL ? cu->event_destroy(lane->event) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuEventDestroy", result);
    result = lane->stream != NULL ? cu->stream_destroy(lane->stream) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(m->gpu, m->device, "cuStreamDestroy", result);
    free_scratch(m, lane);
    free_patch_room(m, lane);
    memset(lane, 0, sizeof *lane);
}

static enum tb_status open_lanes(struct tb_gpu_memory *m)
{
    enum tb_status status = tb_cuda_enter(m->gpu, m->device);
    if (status != TB_OK) return status;
    for (uint32_t i = 0; i < TB_CUDA_LANES && status == TB_OK; i++)
        status = open_lane(m, &m->lanes[i]);
    tb_cuda_leave(m->gpu);
    return status;
}

/* ---- beginning and end ---- */

static void free_tables(struct tb_gpu_memory *m)
{
    tb_free(m->has);
    tb_free(m->ranges);
    tb_free(m);
}

static struct tb_gpu_memory *new_memory(struct tb_gpu *gpu, uint32_t count)
{
    struct tb_gpu_memory *m = tb_calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    m->gpu = gpu;
    m->tensor_count = count;
    m->has = tb_calloc((size_t)count + 1, sizeof *m->has);
    m->ranges = tb_calloc((size_t)count + 1, sizeof *m->ranges);
    if (m->has != NULL && m->ranges != NULL) return m;
    free_tables(m);
    return NULL;
}

static void count_memory(struct tb_gpu *gpu, int by)
{
    pthread_mutex_lock(&gpu->lock);
    TB_ASSERT(by > 0 || gpu->memories > 0);
    gpu->memories += (uint32_t)by;
    pthread_mutex_unlock(&gpu->lock);
}

/* Its tables are filled. On failure it is no more. */
static enum tb_status begin(struct tb_gpu_memory *m)
{
    TB_ASSERT(m->device != NULL && m->range_count > 0);
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->export_lock, NULL);
    count_memory(m->gpu, 1);
    choose_sizes(m);
    const enum tb_status status = open_lanes(m);
    if (status != TB_OK) tb_gpu_memory_close(m);
    return status;
}

enum tb_status tb_gpu_memory_open(struct tb_gpu *gpu, const struct tb_gpu_tensors *tensors,
                                  struct tb_gpu_memory **memory_out, char *why)
{
    *memory_out = NULL;
    if (gpu == NULL) return TB_OK;
    snprintf(why, TB_GPU_WHY_BYTES, "the driver refused: see gpu.failed in the log");
    struct tb_gpu_memory *m = new_memory(gpu, tensors->layout->tensor_count);
    if (m == NULL) return TB_SITE_NOMEM;
    enum tb_status status = examine(m, tensors, why);
    if (status != TB_OK || m->device == NULL) {
        free_tables(m);
        return status;
    }
    TB_ASSERT(m->range_count <= m->tensor_count);
    sort_ranges(m);
    status = begin(m);
    if (status == TB_OK) *memory_out = m;
    return status;
}

enum tb_status tb_cuda_memory_of_ours(struct tb_gpu *gpu, struct tb_cuda_device *device,
                                      struct tb_cuda_range range, struct tb_gpu_memory **memory_out)
{
    TB_ASSERT(device->open && range.bytes > 0);
    struct tb_gpu_memory *m = new_memory(gpu, 0);
    if (m == NULL) return TB_SITE_NOMEM;
    m->device = device;
    range.dmabuf = DMABUF_UNASKED;
    m->ranges[m->range_count++] = range;
    const enum tb_status status = begin(m);
    if (status == TB_OK) *memory_out = m;
    return status;
}

static void close_ranges(struct tb_gpu_memory *m)
{
    for (uint32_t i = 0; i < m->range_count; i++)
        if (m->ranges[i].dmabuf >= 0) close(m->ranges[i].dmabuf);
}

void tb_gpu_memory_close(struct tb_gpu_memory *m)
{
    if (m == NULL) return;
    TB_ASSERT(!m->in_job);
    close_ranges(m);
    if (tb_cuda_enter(m->gpu, m->device) == TB_OK) {
        for (uint32_t i = 0; i < TB_CUDA_LANES; i++)
            close_lane(m, &m->lanes[i]);
        tb_cuda_leave(m->gpu);
    }
    count_memory(m->gpu, -1);
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->export_lock);
    free_tables(m);
}

bool tb_gpu_memory_has(const struct tb_gpu_memory *m, uint32_t tensor)
{
    TB_ASSERT(m == NULL || tensor < m->tensor_count);
    return m != NULL && m->has[tensor];
}

void tb_gpu_memory_facts(const struct tb_gpu_memory *m, struct tb_gpu_facts *facts_out)
{
    *facts_out = (struct tb_gpu_facts){.device = (int)m->device->handle,
                                       .digests = m->device->why_cores,
                                       .dmabuf = m->device->dmabuf,
                                       .nics_may_write = m->device->nic_writes != TB_CUDA_NIC_WRITES_UNSEEN};
    if (m->device->module != NULL) facts_out->digests = m->no_scratch ? "cores: no room on the gpu" : "gpu";
    memcpy(facts_out->name, m->device->name, sizeof facts_out->name);
}

/* ---- for NICs ---- */

static struct tb_cuda_range *range_of(const struct tb_gpu_memory *m, uint64_t at, uint64_t bytes)
{
    TB_ASSERT(m->range_count > 0 && bytes > 0);
    uint32_t low = 0, high = m->range_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (m->ranges[middle].base <= at)
            low = middle;
        else
            high = middle;
    }
    struct tb_cuda_range *r = &m->ranges[low];
    const bool inside = r->base <= at && at - r->base <= r->bytes && bytes <= r->bytes - (at - r->base);
    return inside ? r : NULL;
}

bool tb_cuda_is_tensors(const struct tb_gpu_memory *m, const void *at)
{
    return range_of(m, (uint64_t)(uintptr_t)at, 1) != NULL;
}

bool tb_cuda_is_on_device(const struct tb_gpu_memory *m, const void *at)
{
    struct pointer p;
    return ask(m->gpu, at, &p) == TB_OK && on_device(&p);
}

/* The descriptor covers whole pages around the allocation; what is registered with a NIC
 * is the tensor alone. */
static void ask_dmabuf(struct tb_gpu_memory *m, struct tb_cuda_range *r)
{
    TB_ASSERT(r->dmabuf == DMABUF_UNASKED && m->device->dmabuf);
    r->dmabuf = DMABUF_REFUSED;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t first = r->base / page * page, end = (r->base + r->bytes + page - 1) / page * page;
    if (tb_cuda_enter(m->gpu, m->device) != TB_OK) return;
    int fd = -1;
    const CUresult result = m->gpu->driver.range_handle(&fd, (CUdeviceptr)first, (size_t)(end - first),
                                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    tb_cuda_leave(m->gpu);
    if (result == CUDA_SUCCESS) {
        r->dmabuf = fd;
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    } else {
        (void)tb_cuda_failed(m->gpu, m->device, "cuMemGetHandleForAddressRange", result);
    }
}

bool tb_gpu_memory_device(struct tb_gpu_memory *m, const void *at, uint64_t bytes,
                          struct tb_export_device *device_out)
{
    if (m == NULL || !m->device->dmabuf) return false;
    const uint64_t address = (uint64_t)(uintptr_t)at;
    pthread_mutex_lock(&m->export_lock);
    struct tb_cuda_range *r = range_of(m, address, bytes);
    if (r != NULL && r->dmabuf == DMABUF_UNASKED) ask_dmabuf(m, r);
    const bool ours = r != NULL && r->dmabuf >= 0;
    if (ours) {
        const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        *device_out = (struct tb_export_device){.dmabuf = r->dmabuf,
                                                .offset = address - r->base / page * page,
                                                .pci = m->device->pci[0] != '\0' ? m->device->pci : NULL};
    }
    pthread_mutex_unlock(&m->export_lock);
    return ours;
}

/* ---- jobs ---- */

enum tb_status tb_cuda_make_visible(const struct tb_gpu_memory *m)
{
    if (m->device->nic_writes != TB_CUDA_NIC_WRITES_FLUSHED) return TB_OK;
    const CUresult result = m->gpu->driver.flush_rdma(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                      CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    return result == CUDA_SUCCESS ? TB_OK
                                  : tb_cuda_failed(m->gpu, m->device, "cuFlushGPUDirectRDMAWrites", result);
}

enum tb_status tb_cuda_job_begin(struct tb_gpu_memory *m)
{
    pthread_mutex_lock(&m->lock);
    TB_ASSERT(!m->in_job);
    enum tb_status status = tb_cuda_enter(m->gpu, m->device);
    if (status == TB_OK) {
        status = tb_cuda_make_visible(m);
        if (status == TB_OK) {
            m->in_job = true;
            return TB_OK;
        }
        tb_cuda_leave(m->gpu);
    }
    pthread_mutex_unlock(&m->lock);
    return status;
}

enum tb_status tb_cuda_job_end(struct tb_gpu_memory *m, enum tb_status status)
{
    TB_ASSERT(m->in_job);
    for (uint32_t i = 0; status != TB_OK && i < TB_CUDA_LANES; i++)
        (void)m->gpu->driver.stream_synchronize(m->lanes[i].stream); /* it may fail again: it was told */
    m->in_job = false;
    tb_cuda_leave(m->gpu);
    pthread_mutex_unlock(&m->lock);
    return status;
}

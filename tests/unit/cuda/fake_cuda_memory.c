/* fake_cuda_memory.c - the fake's memory: no rights where its addresses are, the bytes elsewhere;
 * host memory that is pinned; other processes that have it open. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit/cuda/fake_cuda_inside.h"

#define PAGE               4096u
#define FOUND_BYTES        ((size_t)4 << 20) /* of more a test would touch pages for seconds */
#define DRIVER_BLOCK_BYTES ((size_t)2 << 20) /* smaller allocations share one */

struct alloc *fake_cuda_find_alloc(const void *at)
{
    const uintptr_t x = (uintptr_t)at;
    for (int i = 0; i < ALLOCS_MAX; i++) {
        struct alloc *a = &fake_cuda.allocs[i];
        if (a->at != NULL && x >= (uintptr_t)a->at && x < (uintptr_t)a->at + a->count) return a;
    }
    return NULL;
}

uint8_t *fake_cuda_bytes_of(const void *at, size_t bytes)
{
    struct alloc *a = fake_cuda_find_alloc(at);
    if (a == NULL) return (uint8_t *)(uintptr_t)at;
    const size_t inside = (size_t)((const uint8_t *)at - a->at);
    MUST(bytes <= a->count - inside, "a copy over the end of device memory");
    return a->bytes + inside;
}

static struct alloc *map_alloc(int device, size_t count, int fd)
{
    struct alloc *a = NULL;
    for (int i = 0; i < ALLOCS_MAX && a == NULL; i++)
        if (fake_cuda.allocs[i].at == NULL) a = &fake_cuda.allocs[i];
    MUST(a != NULL, "too many allocations");
    memset(a, 0, sizeof *a);
    a->count = count;
    a->mapped = (count + PAGE - 1) / PAGE * PAGE;
    a->device = device;
    a->fd = fd;
    a->at = mmap(NULL, a->mapped, PROT_NONE, MAP_SHARED, a->fd, 0);
    a->bytes = mmap(NULL, a->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    a->openers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, (off_t)a->mapped);
    MUST(a->at != MAP_FAILED && a->bytes != MAP_FAILED && (void *)a->openers != MAP_FAILED, "no mapping");
    return a;
}

static struct alloc *new_alloc(int device, size_t count)
{
    const size_t mapped = (count + PAGE - 1) / PAGE * PAGE;
    const int fd = memfd_create("fake-device", MFD_CLOEXEC);
    MUST(fd >= 0 && ftruncate(fd, (off_t)(mapped + PAGE)) == 0, "no memfd");
    struct alloc *a = map_alloc(device, count, fd);
    memset(a->bytes, 0xdd, count < FOUND_BYTES ? count : FOUND_BYTES); /* as found */
    return a;
}

static void note_opener(struct alloc *a, pid_t is, pid_t becomes)
{
    int i = 0;
    while (i < OPENERS_MAX && !__sync_bool_compare_and_swap(&a->openers->pids[i], is, becomes))
        i++;
    MUST(i < OPENERS_MAX, "memory is opened by too many, or closed by one that did not open it");
}

/* A driver calls this undefined: memory goes while another process has it open. A process that is
 * gone has nothing open. */
static void nobody_has_it_open(const struct alloc *a)
{
    for (int i = 0; i < OPENERS_MAX; i++) {
        const pid_t pid = a->openers->pids[i];
        MUST(pid == 0 || (kill(pid, 0) != 0 && errno == ESRCH),
             "memory is freed that another process has open");
    }
}

void fake_cuda_free_alloc(struct alloc *a)
{
    fake_cuda_no_op_touches(a->at, a->count);
    munmap(a->at, a->mapped);
    munmap(a->bytes, a->mapped);
    munmap(a->openers, PAGE);
    close(a->fd);
    memset(a, 0, sizeof *a);
}

void fake_cuda_see_nic_writes(void)
{
    for (uint32_t i = 0; i < fake_cuda.nic_write_count; i++) {
        struct nic_write *w = &fake_cuda.nic_writes[i];
        memcpy(fake_cuda_bytes_of(w->to, w->count), w->bytes, w->count);
        free(w->bytes);
    }
    fake_cuda.nic_write_count = 0;
}

bool fake_cuda_is_pinned(const void *at, size_t bytes)
{
    for (int i = 0; i < PINS_MAX; i++) {
        const uintptr_t first = (uintptr_t)fake_cuda.pins[i].at, x = (uintptr_t)at;
        if (fake_cuda.pins[i].at != NULL && x >= first && bytes <= fake_cuda.pins[i].bytes &&
            x - first <= fake_cuda.pins[i].bytes - bytes)
            return true;
    }
    return false;
}

bool fake_cuda_touches_a_pin(const void *at, size_t bytes)
{
    for (int i = 0; i < PINS_MAX; i++) {
        const uintptr_t first = (uintptr_t)fake_cuda.pins[i].at, x = (uintptr_t)at;
        if (first != 0 && x < first + fake_cuda.pins[i].bytes && first < x + bytes) return true;
    }
    return false;
}

/* As the kernel says: "dc", do not copy on fork. */
static bool is_kept_from_forks(const void *at)
{
    bool found = false, kept = false;
    char line[512];
    FILE *maps = fopen("/proc/self/smaps", "re");
    MUST(maps != NULL, "no /proc");
    while (fgets(line, sizeof line, maps) != NULL) {
        uintptr_t first, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2)
            found = (uintptr_t)at >= first && (uintptr_t)at < end;
        else if (found && strncmp(line, "VmFlags:", 8) == 0)
            kept = strstr(line, " dc") != NULL;
    }
    (void)fclose(maps);
    return kept;
}

static void pin(void *at, size_t bytes)
{
    for (int i = 0; i < PINS_MAX; i++) {
        if (fake_cuda.pins[i].at != NULL) continue;
        fake_cuda.pins[i].at = at;
        fake_cuda.pins[i].bytes = bytes;
        return;
    }
    MUST(false, "too many pins");
}

static size_t unpin(const void *at)
{
    for (int i = 0; i < PINS_MAX; i++) {
        if (fake_cuda.pins[i].at != at) continue;
        fake_cuda_no_op_touches(at, fake_cuda.pins[i].bytes);
        fake_cuda.pins[i].at = NULL;
        return fake_cuda.pins[i].bytes;
    }
    return 0;
}

/* ---- the entry points ---- */

static void answer(CUpointer_attribute which, void *into, const struct alloc *a)
{
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)into = a == NULL ? 0 : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)into = a == NULL ? -2 : a->device;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)into = a != NULL && a->managed;
        break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)into = a == NULL || a->mapped_by_handles ? NULL
                             : a->other_context                ? &fake_cuda.other
                                                               : &fake_cuda.primary[a->device];
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)into = a == NULL ? 0 : (CUdeviceptr)(uintptr_t)a->at;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        /* Of what was mapped by handles: all that was reserved for it, of which this is the
         * beginning. */
        *(size_t *)into = a == NULL ? 0 : a->mapped_by_handles ? 4 * a->mapped : a->count;
        break;
    default:
        MUST(false, "an attribute of pointers that the fake does not know");
    }
}

static CUresult CUDAAPI e_cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **into,
                                                 CUdeviceptr at)
{
    BEGIN("cuPointerGetAttributes");
    if (!fake_cuda.initialised) return fake_cuda_end(CUDA_ERROR_NOT_INITIALIZED);
    const struct alloc *a = fake_cuda_find_alloc((void *)(uintptr_t)at);
    for (unsigned i = 0; i < count; i++)
        answer(which[i], into[i], a);
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemAlloc(CUdeviceptr *at, size_t bytes)
{
    BEGIN_IN_CONTEXT("cuMemAlloc");
    *at = (CUdeviceptr)(uintptr_t)new_alloc(fake_cuda_current[fake_cuda_depth - 1]->device, bytes)->at;
    fake_cuda.counts.allocations++;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemFree(CUdeviceptr at)
{
    BEGIN_IN_CONTEXT("cuMemFree");
    struct alloc *a = fake_cuda_find_alloc((void *)(uintptr_t)at);
    MUST(a != NULL && a->at == (void *)(uintptr_t)at && !a->opened, "memory is freed that is not there");
    nobody_has_it_open(a);
    fake_cuda_free_alloc(a);
    fake_cuda.counts.allocations--;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
    BEGIN_IN_CONTEXT("cuMemGetAddressRange");
    const struct alloc *a = fake_cuda_find_alloc((void *)(uintptr_t)at);
    if (a == NULL) return fake_cuda_end(CUDA_ERROR_NOT_FOUND);
    *base = (CUdeviceptr)(uintptr_t)a->at;
    *bytes = a->count;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    BEGIN_IN_CONTEXT("cuMemHostAlloc");
    *at = malloc(bytes);
    MUST(*at != NULL, "no memory");
    pin(*at, bytes);
    fake_cuda.counts.host_allocations++;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemFreeHost(void *at)
{
    BEGIN_IN_CONTEXT("cuMemFreeHost");
    MUST(unpin(at) > 0, "host memory is freed that is not there");
    free(at);
    fake_cuda.counts.host_allocations--;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
    BEGIN_IN_CONTEXT("cuMemHostRegister");
    MUST((flags & CU_MEMHOSTREGISTER_PORTABLE) != 0, "pinned for one context only");
    MUST(!fake_cuda_touches_a_pin(at, bytes), "pinned twice");
    MUST(is_kept_from_forks(at), "pinned, and a fork makes it copy-on-write");
    pin(at, bytes);
    fake_cuda.counts.pinned++;
    fake_cuda.counts.pinned_bytes += bytes;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemHostUnregister(void *at)
{
    BEGIN_IN_CONTEXT("cuMemHostUnregister");
    const size_t bytes = unpin(at);
    MUST(bytes > 0, "memory is unpinned that is not pinned");
    fake_cuda.counts.pinned--;
    fake_cuda.counts.pinned_bytes -= bytes;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr at, size_t bytes,
                                                        CUmemRangeHandleType type, unsigned long long flags)
{
    BEGIN_IN_CONTEXT("cuMemGetHandleForAddressRange");
    MUST(type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD && flags == 0, "not a dma-buf");
    MUST(at % PAGE == 0 && bytes % PAGE == 0, "a dma-buf of parts of pages");
    const struct alloc *a = fake_cuda_find_alloc((void *)(uintptr_t)at);
    if (a == NULL || bytes > a->mapped - (at - (uintptr_t)a->at))
        return fake_cuda_end(CUDA_ERROR_INVALID_VALUE);
    MUST(at == (uintptr_t)a->at || a->mapped_by_handles, "a dma-buf that begins inside an allocation");
    *(int *)handle = dup(a->fd);
    return fake_cuda_end(CUDA_SUCCESS);
}

/* Where another process finds the bytes: the memfd of this one. */
struct handle {
    uint64_t magic, count;
    int32_t pid, fd, device;
};
#define HANDLE_MAGIC UINT64_C(0x66616b6520697063)
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "a handle fits");

static CUresult CUDAAPI e_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at)
{
    BEGIN_IN_CONTEXT("cuIpcGetMemHandle");
    const struct alloc *a = fake_cuda_find_alloc((void *)(uintptr_t)at);
    if (a == NULL || a->opened || a->mapped_by_handles) return fake_cuda_end(CUDA_ERROR_INVALID_VALUE);
    MUST(a->count % DRIVER_BLOCK_BYTES == 0, "lent is what stands beside it in its block, too");
    const struct handle h = {HANDLE_MAGIC, a->count, (int32_t)getpid(), a->fd, a->device};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &h, sizeof h);
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuIpcOpenMemHandle(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags)
{
    BEGIN_IN_CONTEXT("cuIpcOpenMemHandle");
    MUST(flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, "opened without access to peers");
    struct handle h;
    char path[128];
    memcpy(&h, &handle, sizeof h);
    if (h.magic != HANDLE_MAGIC || h.pid == getpid()) return fake_cuda_end(CUDA_ERROR_INVALID_CONTEXT);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return fake_cuda_end(CUDA_ERROR_INVALID_HANDLE);
    struct alloc *a = map_alloc(h.device, h.count, fd);
    a->opened = true;
    note_opener(a, 0, getpid());
    fake_cuda.counts.ipc++;
    *at = (CUdeviceptr)(uintptr_t)a->at;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuIpcCloseMemHandle(CUdeviceptr at)
{
    BEGIN_IN_CONTEXT("cuIpcCloseMemHandle");
    struct alloc *a = fake_cuda_find_alloc((void *)(uintptr_t)at);
    MUST(a != NULL && a->opened, "a handle is closed that is not open");
    note_opener(a, getpid(), 0);
    fake_cuda_free_alloc(a);
    fake_cuda.counts.ipc--;
    return fake_cuda_end(CUDA_SUCCESS);
}

void fake_cuda_memory_entries(struct tb_cuda_driver *d)
{
    d->pointer_attributes = e_cuPointerGetAttributes;
    d->mem_alloc = e_cuMemAlloc;
    d->mem_free = e_cuMemFree;
    d->mem_range = e_cuMemGetAddressRange;
    d->host_alloc = e_cuMemHostAlloc;
    d->host_free = e_cuMemFreeHost;
    d->host_register = e_cuMemHostRegister;
    d->host_unregister = e_cuMemHostUnregister;
    d->range_handle = e_cuMemGetHandleForAddressRange;
    d->ipc_get = e_cuIpcGetMemHandle;
    d->ipc_open = e_cuIpcOpenMemHandle;
    d->ipc_close = e_cuIpcCloseMemHandle;
}

/* ---- for tests ---- */

void *fake_cuda_alloc(int device, size_t bytes)
{
    pthread_mutex_lock(&fake_cuda.lock);
    void *at = new_alloc(device, bytes)->at;
    pthread_mutex_unlock(&fake_cuda.lock);
    return at;
}

void fake_cuda_free(void *device_memory)
{
    pthread_mutex_lock(&fake_cuda.lock);
    struct alloc *a = fake_cuda_find_alloc(device_memory);
    MUST(a != NULL, "the test frees what is not there");
    fake_cuda_free_alloc(a);
    pthread_mutex_unlock(&fake_cuda.lock);
}

void fake_cuda_write(void *device_memory, const void *from, size_t bytes)
{
    pthread_mutex_lock(&fake_cuda.lock);
    memcpy(fake_cuda_bytes_of(device_memory, bytes), from, bytes);
    pthread_mutex_unlock(&fake_cuda.lock);
}

void fake_cuda_read(const void *device_memory, void *to, size_t bytes)
{
    pthread_mutex_lock(&fake_cuda.lock);
    memcpy(to, fake_cuda_bytes_of(device_memory, bytes), bytes);
    pthread_mutex_unlock(&fake_cuda.lock);
}

void fake_cuda_nic_write(void *device_memory, const void *from, size_t bytes)
{
    pthread_mutex_lock(&fake_cuda.lock);
    struct nic_write *w = &fake_cuda.nic_writes[fake_cuda.nic_write_count++];
    MUST(fake_cuda.nic_write_count < NIC_WRITES_MAX, "too many writes of a NIC");
    *w = (struct nic_write){device_memory, malloc(bytes), bytes};
    MUST(w->bytes != NULL, "no memory");
    memcpy(w->bytes, from, bytes);
    if (fake_cuda_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) > 0)
        fake_cuda_see_nic_writes();
    pthread_mutex_unlock(&fake_cuda.lock);
}

void fake_cuda_set_context(void *device_memory, bool other)
{
    fake_cuda_find_alloc(device_memory)->other_context = other;
}

void fake_cuda_set_mapped(void *device_memory)
{
    pthread_mutex_lock(&fake_cuda.lock);
    fake_cuda_find_alloc(device_memory)->mapped_by_handles = true;
    pthread_mutex_unlock(&fake_cuda.lock);
}

void fake_cuda_set_managed(void *device_memory)
{
    struct alloc *a = fake_cuda_find_alloc(device_memory);
    a->managed = true;
    MUST(mprotect(a->at, a->mapped, PROT_READ | PROT_WRITE) == 0, "mprotect");
}

#include "unit/cuda/fake_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit/cuda/kernels_on_cores.h"

#define DEVICES            2
#define ALLOCS_MAX         64
#define STREAMS_MAX        16
#define PINS_MAX           32
#define OPS_MAX            4096
#define PAGE               4096u
#define DRIVER_BLOCK_BYTES ((size_t)2 << 20) /* smaller allocations share one */
#define OPENERS_MAX        8

/* Ends the program: what a test sees as its death names the mistake. */
#define MUST(condition, what)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "fake_cuda: %s\n", what);                                                        \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* Behind an allocation's bytes, for all processes that have it. */
struct openers {
    pid_t pids[OPENERS_MAX];
};

struct alloc {
    uint8_t *at;    /* what the caller has: no rights */
    uint8_t *bytes; /* where they stand */
    size_t count, mapped;
    int device, fd;
    bool managed, other_context;
    bool mapped_by_handles; /* cuMemCreate's */
    bool opened;            /* another process's */
    struct openers *openers;
};

struct op {
    void *to;
    const void *from;
    size_t bytes;
    void (*run)(void *arguments); /* a kernel; NULL: a copy */
    void *arguments;
};

struct CUstream_st {
    bool used;
    int number; /* in the trace */
    struct op ops[OPS_MAX];
    size_t begun, ended; /* of those that were asked, how many ran */
};

struct CUevent_st {
    struct CUstream_st *stream;
    size_t upto;
};

struct CUctx_st {
    int device;
    int retained;
};

static struct {
    pthread_mutex_t lock;
    int version;
    bool initialised;
    struct CUctx_st primary[DEVICES], other;
    struct alloc allocs[ALLOCS_MAX];
    struct CUstream_st *streams[STREAMS_MAX];
    struct {
        void *at;
        size_t bytes;
    } pins[PINS_MAX];
    struct {
        CUdevice_attribute which;
        int value;
    } attributes[8];
    uint32_t attribute_count;
    struct {
        char name[48];
        uint32_t nth;
        CUresult result;
        bool hit;
    } fail;
    struct {
        const char *name;
        uint32_t calls;
    } calls[64];
    struct fake_cuda_counts counts;
    int next_stream;
    char trace[FAKE_CUDA_TRACE_BYTES];
} g = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local CUcontext current[8];
static _Thread_local int depth;

/* ---- every call ---- */

static CUresult begin(const char *entry)
{
    pthread_mutex_lock(&g.lock);
    uint32_t i = 0;
    while (g.calls[i].name != NULL && strcmp(g.calls[i].name, entry) != 0)
        i++;
    g.calls[i].name = entry;
    const uint32_t nth = ++g.calls[i].calls;
    if (strcmp(g.fail.name, entry) != 0 || g.fail.nth != nth) return CUDA_SUCCESS;
    g.fail.hit = true;
    return g.fail.result;
}

static CUresult end(CUresult result)
{
    pthread_mutex_unlock(&g.lock);
    return result;
}

#define BEGIN(entry)                                                                                         \
    const CUresult refused = begin(entry);                                                                   \
    if (refused != CUDA_SUCCESS) return end(refused)
#define BEGIN_IN_CONTEXT(entry)                                                                              \
    MUST(depth > 0 && current[depth - 1] != NULL, entry " without a context");                               \
    BEGIN(entry)

static void trace(const char *format, int number)
{
    char word[24];
    snprintf(word, sizeof word, format, number);
    const size_t used = strlen(g.trace), more = strlen(word);
    /* Copies in a row on one stream are one. */
    if (word[0] == 'c' && used >= more && strcmp(g.trace + used - more, word) == 0) return;
    if (used + more + 2 > sizeof g.trace) return;
    snprintf(g.trace + used, sizeof g.trace - used, "%s%s", used > 0 ? " " : "", word);
}

/* ---- memory ---- */

static struct alloc *find_alloc(const void *at)
{
    const uintptr_t x = (uintptr_t)at;
    for (int i = 0; i < ALLOCS_MAX; i++) {
        struct alloc *a = &g.allocs[i];
        if (a->at != NULL && x >= (uintptr_t)a->at && x < (uintptr_t)a->at + a->count) return a;
    }
    return NULL;
}

/* Where the bytes of [at, at + bytes) stand: of a device's memory elsewhere. */
static uint8_t *translate(const void *at, size_t bytes)
{
    struct alloc *a = find_alloc(at);
    if (a == NULL) return (uint8_t *)(uintptr_t)at;
    const size_t inside = (size_t)((const uint8_t *)at - a->at);
    MUST(bytes <= a->count - inside, "a copy over the end of device memory");
    return a->bytes + inside;
}

static struct alloc *map_alloc(int device, size_t count, int fd)
{
    struct alloc *a = NULL;
    for (int i = 0; i < ALLOCS_MAX && a == NULL; i++)
        if (g.allocs[i].at == NULL) a = &g.allocs[i];
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
    memset(a->bytes, 0xdd, count); /* as found */
    return a;
}

static void note_opener(struct alloc *a, pid_t is, pid_t becomes)
{
    int i = 0;
    while (i < OPENERS_MAX && !__sync_bool_compare_and_swap(&a->openers->pids[i], is, becomes))
        i++;
    MUST(i < OPENERS_MAX, "memory is opened by too many, or closed by one that did not open it");
}

/* What the driver calls undefined. A process that is gone has nothing open. */
static void nobody_has_it_open(const struct alloc *a)
{
    for (int i = 0; i < OPENERS_MAX; i++) {
        const pid_t pid = a->openers->pids[i];
        MUST(pid == 0 || (kill(pid, 0) != 0 && errno == ESRCH),
             "memory is freed that another process has open");
    }
}

static void no_op_touches(const void *at, size_t bytes)
{
    const uintptr_t first = (uintptr_t)at, last = first + bytes;
    for (int i = 0; i < STREAMS_MAX; i++) {
        const struct CUstream_st *s = g.streams[i];
        for (size_t k = s != NULL ? s->begun : 0; s != NULL && k < s->ended; k++) {
            const struct op *op = &s->ops[k % OPS_MAX];
            const uintptr_t to = (uintptr_t)op->to, from = (uintptr_t)op->from;
            MUST(!(to >= first && to < last) && !(from >= first && from < last),
                 "memory is freed while a copy may still run");
        }
    }
}

static void free_alloc(struct alloc *a)
{
    no_op_touches(a->at, a->count);
    munmap(a->at, a->mapped);
    munmap(a->bytes, a->mapped);
    munmap(a->openers, PAGE);
    close(a->fd);
    memset(a, 0, sizeof *a);
}

static bool is_pinned(const void *at, size_t bytes)
{
    for (int i = 0; i < PINS_MAX; i++) {
        const uintptr_t first = (uintptr_t)g.pins[i].at, x = (uintptr_t)at;
        if (g.pins[i].at != NULL && x >= first && bytes <= g.pins[i].bytes &&
            x - first <= g.pins[i].bytes - bytes)
            return true;
    }
    return false;
}

static void pin(void *at, size_t bytes)
{
    for (int i = 0; i < PINS_MAX; i++) {
        if (g.pins[i].at != NULL) continue;
        g.pins[i].at = at;
        g.pins[i].bytes = bytes;
        return;
    }
    MUST(false, "too many pins");
}

static size_t unpin(const void *at)
{
    for (int i = 0; i < PINS_MAX; i++) {
        if (g.pins[i].at != at) continue;
        no_op_touches(at, g.pins[i].bytes);
        g.pins[i].at = NULL;
        return g.pins[i].bytes;
    }
    return 0;
}

/* ---- the entry points ---- */

static CUresult CUDAAPI e_cuDriverGetVersion(int *version)
{
    BEGIN("cuDriverGetVersion");
    *version = g.version != 0 ? g.version : 12040;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuGetErrorName(CUresult result, const char **name)
{
    *name = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_FAKE";
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI e_cuInit(unsigned flags)
{
    (void)flags;
    BEGIN("cuInit");
    g.initialised = true;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDeviceGetCount(int *count)
{
    BEGIN("cuDeviceGetCount");
    *count = DEVICES;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDeviceGet(CUdevice *device, int ordinal)
{
    BEGIN("cuDeviceGet");
    *device = ordinal;
    return end(ordinal < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

static CUresult CUDAAPI e_cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    BEGIN("cuDeviceGetName");
    snprintf(name, (size_t)bytes, "Fake \"%d\"", device); /* a name may hold anything */
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)device;
    BEGIN("cuDeviceGetAttribute");
    *value = 0;
    for (uint32_t i = 0; i < g.attribute_count; i++)
        if (g.attributes[i].which == which) *value = g.attributes[i].value;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    BEGIN("cuDevicePrimaryCtxRetain");
    *context = &g.primary[device];
    g.primary[device].retained++;
    g.counts.contexts++;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDevicePrimaryCtxRelease(CUdevice device)
{
    BEGIN("cuDevicePrimaryCtxRelease");
    MUST(g.primary[device].retained > 0, "a context is released that is not retained");
    g.primary[device].retained--;
    g.counts.contexts--;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuCtxPushCurrent(CUcontext context)
{
    BEGIN("cuCtxPushCurrent");
    MUST(context->retained > 0, "a context is used that is not retained");
    MUST(depth < 8, "contexts are pushed and not popped");
    current[depth++] = context;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuCtxPopCurrent(CUcontext *context)
{
    BEGIN_IN_CONTEXT("cuCtxPopCurrent");
    *context = current[--depth];
    return end(CUDA_SUCCESS);
}

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
                             : a->other_context                ? &g.other
                                                               : &g.primary[a->device];
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)into = a == NULL ? 0 : (CUdeviceptr)(uintptr_t)a->at;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)into = a == NULL ? 0 : a->count;
        break;
    default:
        MUST(false, "an attribute of pointers that the fake does not know");
    }
}

static CUresult CUDAAPI e_cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **into,
                                                 CUdeviceptr at)
{
    BEGIN("cuPointerGetAttributes");
    if (!g.initialised) return end(CUDA_ERROR_NOT_INITIALIZED);
    const struct alloc *a = find_alloc((void *)(uintptr_t)at);
    for (unsigned i = 0; i < count; i++)
        answer(which[i], into[i], a);
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemAlloc(CUdeviceptr *at, size_t bytes)
{
    BEGIN_IN_CONTEXT("cuMemAlloc");
    *at = (CUdeviceptr)(uintptr_t)new_alloc(current[depth - 1]->device, bytes)->at;
    g.counts.allocations++;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemFree(CUdeviceptr at)
{
    BEGIN_IN_CONTEXT("cuMemFree");
    struct alloc *a = find_alloc((void *)(uintptr_t)at);
    MUST(a != NULL && a->at == (void *)(uintptr_t)at && !a->opened, "memory is freed that is not there");
    nobody_has_it_open(a);
    free_alloc(a);
    g.counts.allocations--;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    BEGIN_IN_CONTEXT("cuMemHostAlloc");
    *at = malloc(bytes);
    MUST(*at != NULL, "no memory");
    pin(*at, bytes);
    g.counts.host_allocations++;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemFreeHost(void *at)
{
    BEGIN_IN_CONTEXT("cuMemFreeHost");
    MUST(unpin(at) > 0, "host memory is freed that is not there");
    free(at);
    g.counts.host_allocations--;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
    BEGIN_IN_CONTEXT("cuMemHostRegister");
    MUST((flags & CU_MEMHOSTREGISTER_PORTABLE) != 0, "pinned for one context only");
    MUST(!is_pinned(at, 1), "pinned twice");
    pin(at, bytes);
    g.counts.pinned++;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuMemHostUnregister(void *at)
{
    BEGIN_IN_CONTEXT("cuMemHostUnregister");
    MUST(unpin(at) > 0, "memory is unpinned that is not pinned");
    g.counts.pinned--;
    return end(CUDA_SUCCESS);
}

/* ---- streams: everything is as late as it may be ---- */

static void run_upto(struct CUstream_st *s, size_t upto)
{
    for (; s->begun < upto; s->begun++) {
        const struct op *op = &s->ops[s->begun % OPS_MAX];
        if (op->run != NULL)
            op->run(op->arguments);
        else
            memcpy(translate(op->to, op->bytes), translate(op->from, op->bytes), op->bytes);
    }
}

static void ask_op(struct CUstream_st *s, struct op op)
{
    MUST(s->ended - s->begun < OPS_MAX, "too much on one stream");
    s->ops[s->ended++ % OPS_MAX] = op;
}

static CUresult CUDAAPI e_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    BEGIN_IN_CONTEXT("cuMemcpyAsync");
    void *at = (void *)(uintptr_t)to, *of = (void *)(uintptr_t)from;
    g.counts.unpinned_copies += find_alloc(at) == NULL && !is_pinned(at, bytes);
    g.counts.unpinned_copies += find_alloc(of) == NULL && !is_pinned(of, bytes);
    ask_op(s, (struct op){.to = at, .from = of, .bytes = bytes});
    trace("c%d", s->number);
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuStreamCreate(CUstream *s, unsigned flags)
{
    BEGIN_IN_CONTEXT("cuStreamCreate");
    MUST((flags & CU_STREAM_NON_BLOCKING) != 0, "a stream that waits for the caller's default one");
    *s = calloc(1, sizeof **s);
    MUST(*s != NULL, "no memory");
    (*s)->number = g.next_stream++;
    int i = 0;
    while (i < STREAMS_MAX && g.streams[i] != NULL)
        i++;
    MUST(i < STREAMS_MAX, "too many streams");
    g.streams[i] = *s;
    g.counts.streams++;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuStreamDestroy(CUstream s)
{
    BEGIN_IN_CONTEXT("cuStreamDestroy");
    MUST(s->begun == s->ended, "a stream is destroyed with work on it");
    for (int i = 0; i < STREAMS_MAX; i++)
        if (g.streams[i] == s) g.streams[i] = NULL;
    free(s);
    g.counts.streams--;
    return end(CUDA_SUCCESS);
}

/* It waits also when it then says that something went wrong. */
static CUresult CUDAAPI e_cuStreamSynchronize(CUstream s)
{
    MUST(depth > 0, "cuStreamSynchronize without a context");
    const CUresult refused = begin("cuStreamSynchronize");
    run_upto(s, s->ended);
    trace("s%d", s->number);
    return end(refused);
}

static CUresult CUDAAPI e_cuEventCreate(CUevent *e, unsigned flags)
{
    (void)flags;
    BEGIN_IN_CONTEXT("cuEventCreate");
    *e = calloc(1, sizeof **e);
    MUST(*e != NULL, "no memory");
    g.counts.events++;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuEventDestroy(CUevent e)
{
    BEGIN_IN_CONTEXT("cuEventDestroy");
    free(e);
    g.counts.events--;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuEventRecord(CUevent e, CUstream s)
{
    BEGIN_IN_CONTEXT("cuEventRecord");
    e->stream = s;
    e->upto = s->ended;
    trace("e%d", s->number);
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuEventSynchronize(CUevent e)
{
    BEGIN_IN_CONTEXT("cuEventSynchronize");
    if (e->stream != NULL) {
        run_upto(e->stream, e->upto); /* what was asked after it stays on the stream */
        trace("w%d", e->stream->number);
    }
    return end(CUDA_SUCCESS);
}

/* ---- descriptors, visibility, other processes ---- */

static CUresult CUDAAPI e_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr at, size_t bytes,
                                                        CUmemRangeHandleType type, unsigned long long flags)
{
    BEGIN_IN_CONTEXT("cuMemGetHandleForAddressRange");
    MUST(type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD && flags == 0, "not a dma-buf");
    MUST(at % PAGE == 0 && bytes % PAGE == 0, "a dma-buf of parts of pages");
    const struct alloc *a = find_alloc((void *)(uintptr_t)at);
    if (a == NULL || bytes > a->mapped) return end(CUDA_ERROR_INVALID_VALUE);
    *(int *)handle = dup(a->fd);
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                                     CUflushGPUDirectRDMAWritesScope scope)
{
    (void)target, (void)scope;
    BEGIN_IN_CONTEXT("cuFlushGPUDirectRDMAWrites");
    trace("f%d", 0);
    return end(CUDA_SUCCESS);
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
    const struct alloc *a = find_alloc((void *)(uintptr_t)at);
    if (a == NULL || a->opened || a->mapped_by_handles) return end(CUDA_ERROR_INVALID_VALUE);
    MUST(a->count % DRIVER_BLOCK_BYTES == 0, "lent is what stands beside it in its block, too");
    const struct handle h = {HANDLE_MAGIC, a->count, (int32_t)getpid(), a->fd, a->device};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &h, sizeof h);
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuIpcOpenMemHandle(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags)
{
    BEGIN_IN_CONTEXT("cuIpcOpenMemHandle");
    MUST(flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, "opened without access to peers");
    struct handle h;
    char path[64];
    memcpy(&h, &handle, sizeof h);
    if (h.magic != HANDLE_MAGIC || h.pid == getpid()) return end(CUDA_ERROR_INVALID_CONTEXT);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return end(CUDA_ERROR_INVALID_HANDLE);
    struct alloc *a = map_alloc(h.device, h.count, fd);
    a->opened = true;
    note_opener(a, 0, getpid());
    g.counts.ipc++;
    *at = (CUdeviceptr)(uintptr_t)a->at;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuIpcCloseMemHandle(CUdeviceptr at)
{
    BEGIN_IN_CONTEXT("cuIpcCloseMemHandle");
    struct alloc *a = find_alloc((void *)(uintptr_t)at);
    MUST(a != NULL && a->opened, "a handle is closed that is not open");
    note_opener(a, getpid(), 0);
    free_alloc(a);
    g.counts.ipc--;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    BEGIN("cuDeviceGetUuid");
    memset(uuid, 'f', sizeof *uuid);
    uuid->bytes[0] = (char)device;
    return end(CUDA_SUCCESS);
}

/* ---- kernels: the same text, on cores ---- */

#define KERNELS 3
static const char *const kernel_names[KERNELS] = {"tb_digest", "tb_encode", "tb_patch"};

static CUresult CUDAAPI e_cuModuleLoadData(CUmodule *module, const void *image)
{
    BEGIN_IN_CONTEXT("cuModuleLoadData");
    if (strcmp(image, FAKE_CUDA_IMAGE) != 0) return end(CUDA_ERROR_NO_BINARY_FOR_GPU);
    *module = (CUmodule)(uintptr_t)&g;
    g.counts.modules++;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuModuleUnload(CUmodule module)
{
    BEGIN_IN_CONTEXT("cuModuleUnload");
    MUST(module == (CUmodule)(uintptr_t)&g, "a module is unloaded that is none");
    g.counts.modules--;
    return end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    BEGIN_IN_CONTEXT("cuModuleGetFunction");
    MUST(module == (CUmodule)(uintptr_t)&g, "a function of no module");
    for (int i = 0; i < KERNELS; i++) {
        if (strcmp(kernel_names[i], name) != 0) continue;
        *function = (CUfunction)(uintptr_t)&kernel_names[i];
        return end(CUDA_SUCCESS);
    }
    return end(CUDA_ERROR_NOT_FOUND);
}

struct launched {
    void *jobs; /* of the device */
    uint32_t count;
};

static void run_digests(void *arguments)
{
    struct launched *l = arguments;
    const struct tb_digest_job *jobs =
        (const struct tb_digest_job *)(const void *)translate(l->jobs, l->count * sizeof *jobs);
    for (uint32_t i = 0; i < l->count; i++) {
        if (jobs[i].count < TB_KERNEL_DIGEST_MIN) continue;
        struct tb_digest_job here = {translate(jobs[i].bytes, jobs[i].count), jobs[i].count,
                                     translate(jobs[i].digest, 16)};
        cores_digest(&here, 1, 1);
    }
    free(l);
}

static void run_patches(void *arguments)
{
    struct launched *l = arguments;
    struct tb_patch_job *jobs = (struct tb_patch_job *)(void *)translate(l->jobs, l->count * sizeof *jobs);
    for (uint32_t i = 0; i < l->count; i++) {
        MUST((uintptr_t)jobs[i].bytes % 16 == 0, "a chunk off its border");
        struct tb_patch_job here = {.form = translate(jobs[i].form, jobs[i].form_count),
                                    .form_count = jobs[i].form_count,
                                    .bytes = translate(jobs[i].bytes, jobs[i].count),
                                    .count = jobs[i].count};
        cores_patch(&here, 1, 1);
        jobs[i].ok = here.ok;
    }
    free(l);
}

/* Its last byte is there, so all of it is. */
static void must_have_scratch(const void *scratch, unsigned blocks)
{
    MUST(scratch != NULL, "patching without scratch");
    (void)translate(scratch, (size_t)blocks * TB_KERNEL_SCRATCH_BYTES);
}

static CUresult CUDAAPI e_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                         unsigned by, unsigned bz, unsigned shared, CUstream s,
                                         void **parameters, void **extra)
{
    (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)extra;
    BEGIN_IN_CONTEXT("cuLaunchKernel");
    const bool patches = f == (CUfunction)(uintptr_t)&kernel_names[2];
    MUST(patches || f == (CUfunction)(uintptr_t)&kernel_names[0],
         "digests and patches alone are launched by what the fake tests");
    MUST(gx > 0 && bx == TB_KERNEL_THREADS, "a launch of another size");
    struct launched *l = malloc(sizeof *l);
    MUST(l != NULL, "no memory");
    l->jobs = *(void **)parameters[0];
    l->count = *(uint32_t *)parameters[1];
    if (patches) must_have_scratch(*(void **)parameters[2], gx);
    ask_op(s, (struct op){.run = patches ? run_patches : run_digests, .arguments = l});
    trace("k%d", s->number);
    return end(CUDA_SUCCESS);
}

/* ---- finding them ---- */

#define ENTRY(field, entry, version) {#entry, version, (void *)(uintptr_t)e_##entry},
static const struct {
    const char *name;
    int version;
    void *function;
} entries[] = {TB_CUDA_NEEDED(ENTRY) TB_CUDA_OPTIONAL(ENTRY)};

CUresult CUDAAPI fake_cuda_find(const char *symbol, void **function_out, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult *found_out)
{
    (void)flags;
    const int have = g.version != 0 ? g.version : 12040;
    *function_out = NULL;
    *found_out = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].name, symbol) != 0) continue;
        *found_out = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (entries[i].version > have || version != entries[i].version) break;
        *function_out = entries[i].function;
        *found_out = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    return CUDA_SUCCESS;
}

/* ---- for tests ---- */

static struct tb_cuda_driver driver;

void fake_cuda_open(void)
{
    pthread_mutex_lock(&g.lock);
    memset((char *)&g + sizeof g.lock, 0, sizeof g - sizeof g.lock);
    g.version = 12040;
    g.initialised = true;
    g.primary[1].device = 1;
    pthread_mutex_unlock(&g.lock);
    fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1);
    driver = fake_cuda_driver();
    tb_gpu_replace_driver(&driver);
    tb_cuda_replace_image("not for this device");
}

void fake_cuda_close(void)
{
    tb_gpu_replace_driver(NULL);
    const struct fake_cuda_counts c = g.counts;
    MUST(c.contexts == 0, "a context is still retained");
    MUST(c.streams == 0 && c.events == 0, "streams or events are left");
    MUST(c.allocations == 0 && c.host_allocations == 0, "memory of ours is left");
    MUST(c.pinned == 0, "memory is still pinned");
    MUST(c.modules == 0, "a module is still loaded");
    MUST(c.ipc == 0, "another process's memory is still open");
    MUST(depth == 0, "a context is still current");
    tb_cuda_replace_image(NULL);
    for (int i = 0; i < ALLOCS_MAX; i++)
        if (g.allocs[i].at != NULL) free_alloc(&g.allocs[i]);
}

struct tb_cuda_driver fake_cuda_driver(void)
{
    struct tb_cuda_driver d;
    char why[TB_CUDA_WHY_BYTES];
    MUST(tb_cuda_driver_fill(fake_cuda_find, &d, why) == TB_OK, "the fake lacks an entry point");
    return d;
}

void *fake_cuda_alloc(int device, size_t bytes)
{
    pthread_mutex_lock(&g.lock);
    void *at = new_alloc(device, bytes)->at;
    pthread_mutex_unlock(&g.lock);
    return at;
}

void fake_cuda_free(void *device_memory)
{
    pthread_mutex_lock(&g.lock);
    struct alloc *a = find_alloc(device_memory);
    MUST(a != NULL, "the test frees what is not there");
    free_alloc(a);
    pthread_mutex_unlock(&g.lock);
}

void fake_cuda_write(void *device_memory, const void *from, size_t bytes)
{
    pthread_mutex_lock(&g.lock);
    memcpy(translate(device_memory, bytes), from, bytes);
    pthread_mutex_unlock(&g.lock);
}

void fake_cuda_read(const void *device_memory, void *to, size_t bytes)
{
    pthread_mutex_lock(&g.lock);
    memcpy(to, translate(device_memory, bytes), bytes);
    pthread_mutex_unlock(&g.lock);
}

void fake_cuda_fail(const char *entry, uint32_t nth, CUresult result)
{
    pthread_mutex_lock(&g.lock);
    memset(&g.fail, 0, sizeof g.fail);
    if (entry != NULL) snprintf(g.fail.name, sizeof g.fail.name, "%s", entry);
    g.fail.nth = nth;
    g.fail.result = result;
    memset(g.calls, 0, sizeof g.calls);
    pthread_mutex_unlock(&g.lock);
}

bool fake_cuda_idle(void)
{
    bool idle = true;
    pthread_mutex_lock(&g.lock);
    for (int i = 0; i < STREAMS_MAX; i++)
        if (g.streams[i] != NULL) idle = idle && g.streams[i]->begun == g.streams[i]->ended;
    pthread_mutex_unlock(&g.lock);
    return idle;
}

bool fake_cuda_failed(void)
{
    pthread_mutex_lock(&g.lock);
    const bool hit = g.fail.hit;
    pthread_mutex_unlock(&g.lock);
    return hit;
}

uint32_t fake_cuda_calls(const char *entry)
{
    uint32_t calls = 0;
    pthread_mutex_lock(&g.lock);
    for (int i = 0; g.calls[i].name != NULL; i++)
        if (strcmp(g.calls[i].name, entry) == 0) calls = g.calls[i].calls;
    pthread_mutex_unlock(&g.lock);
    return calls;
}

void fake_cuda_set_version(int version)
{
    g.version = version;
}

void fake_cuda_set_attribute(CUdevice_attribute which, int value)
{
    uint32_t i = 0;
    while (i < g.attribute_count && g.attributes[i].which != which)
        i++;
    MUST(i < sizeof g.attributes / sizeof g.attributes[0], "too many attributes");
    g.attributes[i].which = which;
    g.attributes[i].value = value;
    if (i == g.attribute_count) g.attribute_count++;
}

void fake_cuda_set_context(void *device_memory, bool other)
{
    find_alloc(device_memory)->other_context = other;
}

void fake_cuda_set_mapped(void *device_memory)
{
    pthread_mutex_lock(&g.lock);
    find_alloc(device_memory)->mapped_by_handles = true;
    pthread_mutex_unlock(&g.lock);
}

void fake_cuda_set_managed(void *device_memory)
{
    struct alloc *a = find_alloc(device_memory);
    a->managed = true;
    MUST(mprotect(a->at, a->mapped, PROT_READ | PROT_WRITE) == 0, "mprotect");
}

void fake_cuda_set_initialised(bool yes)
{
    g.initialised = yes;
}

struct fake_cuda_counts fake_cuda_counts(void)
{
    pthread_mutex_lock(&g.lock);
    const struct fake_cuda_counts c = g.counts;
    pthread_mutex_unlock(&g.lock);
    return c;
}

void fake_cuda_trace_clear(void)
{
    g.trace[0] = '\0';
}

const char *fake_cuda_trace(void)
{
    return g.trace;
}

void fake_cuda_note(const char *word)
{
    pthread_mutex_lock(&g.lock);
    const size_t used = strlen(g.trace);
    snprintf(g.trace + used, sizeof g.trace - used, "%s%s", used > 0 ? " " : "", word);
    pthread_mutex_unlock(&g.lock);
}

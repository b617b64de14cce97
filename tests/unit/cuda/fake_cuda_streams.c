/* fake_cuda_streams.c - the fake's streams, events and kernels: everything is as
 * late as it may be. */
#include <string.h>

#include "unit/cuda/fake_cuda_inside.h"
#include "unit/cuda/kernels_on_cores.h"

#define PITCH 256u

/* From the first row's beginning to the last one's end. */
static size_t extent(const struct op *op, size_t pitch)
{
    return op->rows > 0 ? (op->rows - 1) * pitch + op->bytes : 0;
}

void fake_cuda_no_op_touches(const void *at, size_t bytes)
{
    const uintptr_t first = (uintptr_t)at, last = first + bytes;
    for (int i = 0; i < STREAMS_MAX; i++) {
        const struct CUstream_st *s = fake_cuda.streams[i];
        for (size_t k = s != NULL ? s->begun : 0; s != NULL && k < s->ended; k++) {
            const struct op *op = &s->ops[k % OPS_MAX];
            const uintptr_t to = (uintptr_t)op->to, from = (uintptr_t)op->from;
            MUST((to >= last || to + extent(op, op->to_pitch) <= first) &&
                     (from >= last || from + extent(op, op->from_pitch) <= first),
                 "memory is freed while a copy may still run");
        }
    }
}

static bool unpinned(const void *at, size_t bytes)
{
    return fake_cuda_find_alloc(at) == NULL && !fake_cuda_is_pinned(at, bytes);
}

static void run_copy(const struct op *op)
{
    for (size_t row = 0; row < op->rows; row++) {
        uint8_t *to = (uint8_t *)op->to + row * op->to_pitch;
        const uint8_t *from = (const uint8_t *)op->from + row * op->from_pitch;
        uint8_t *bytes = fake_cuda_bytes_of(to, op->bytes);
        memcpy(bytes, fake_cuda_bytes_of(from, op->bytes), op->bytes);
        if (fake_cuda.spoils && bytes != to && unpinned(from, op->bytes)) bytes[0] ^= 1;
    }
}

static void run_upto(struct CUstream_st *s, size_t upto)
{
    for (; s->begun < upto; s->begun++) {
        const struct op *op = &s->ops[s->begun % OPS_MAX];
        if (op->run != NULL)
            op->run(op->arguments);
        else
            run_copy(op);
    }
}

static void ask_op(struct CUstream_st *s, struct op op)
{
    MUST(s->ended - s->begun < OPS_MAX, "too much on one stream");
    s->ops[s->ended++ % OPS_MAX] = op;
}

/* Host memory is pinned all of it, or not at all: what it is between the rows as well. */
static CUresult ask_copy(struct CUstream_st *s, struct op op)
{
    const size_t to_bytes = extent(&op, op.to_pitch), from_bytes = extent(&op, op.from_pitch);
    const bool to_unpinned = unpinned(op.to, to_bytes), from_unpinned = unpinned(op.from, from_bytes);
    if (to_unpinned && fake_cuda_touches_a_pin(op.to, to_bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (from_unpinned && fake_cuda_touches_a_pin(op.from, from_bytes)) return CUDA_ERROR_INVALID_VALUE;
    fake_cuda.counts.unpinned_copies += to_unpinned;
    fake_cuda.counts.unpinned_copies += from_unpinned;
    if (fake_cuda_find_alloc(op.from) != NULL && fake_cuda_find_alloc(op.to) == NULL)
        fake_cuda.counts.down_bytes += op.bytes * op.rows;
    ask_op(s, op);
    fake_cuda_trace_add("c%d", s->number);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI e_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    BEGIN_IN_CONTEXT("cuMemcpyAsync");
    return fake_cuda_end(ask_copy(s, (struct op){.to = (void *)(uintptr_t)to,
                                                 .from = (const void *)(uintptr_t)from,
                                                 .bytes = bytes,
                                                 .rows = 1}));
}

/* A device may copy to itself at the pitches alone that cuMemAllocPitch gives out. */
static bool is_of_a_strange_pitch(const CUDA_MEMCPY2D *c)
{
    const bool inside = fake_cuda_find_alloc((void *)(uintptr_t)c->dstDevice) != NULL &&
                        fake_cuda_find_alloc((const void *)(uintptr_t)c->srcDevice) != NULL;
    return inside && fake_cuda.own_pitches && (c->srcPitch % PITCH != 0 || c->dstPitch % PITCH != 0);
}

static CUresult CUDAAPI e_cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream s)
{
    BEGIN_IN_CONTEXT("cuMemcpy2DAsync");
    const size_t most = (size_t)fake_cuda_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    MUST(c->srcMemoryType == CU_MEMORYTYPE_UNIFIED && c->dstMemoryType == CU_MEMORYTYPE_UNIFIED,
         "rows of memory that is named as a host's or a device's");
    MUST(c->srcXInBytes == 0 && c->srcY == 0 && c->dstXInBytes == 0 && c->dstY == 0, "rows off their corner");
    if (c->Height == 0 || c->WidthInBytes > c->srcPitch || c->WidthInBytes > c->dstPitch ||
        c->srcPitch > most || c->dstPitch > most || is_of_a_strange_pitch(c))
        return fake_cuda_end(CUDA_ERROR_INVALID_VALUE);
    return fake_cuda_end(ask_copy(s, (struct op){.to = (void *)(uintptr_t)c->dstDevice,
                                                 .from = (const void *)(uintptr_t)c->srcDevice,
                                                 .bytes = c->WidthInBytes,
                                                 .rows = c->Height,
                                                 .to_pitch = c->dstPitch,
                                                 .from_pitch = c->srcPitch}));
}

static CUresult CUDAAPI e_cuStreamCreate(CUstream *s, unsigned flags)
{
    BEGIN_IN_CONTEXT("cuStreamCreate");
    MUST((flags & CU_STREAM_NON_BLOCKING) != 0, "a stream that waits for the caller's default one");
    *s = calloc(1, sizeof **s);
    MUST(*s != NULL, "no memory");
    (*s)->number = fake_cuda.next_stream++;
    int i = 0;
    while (i < STREAMS_MAX && fake_cuda.streams[i] != NULL)
        i++;
    MUST(i < STREAMS_MAX, "too many streams");
    fake_cuda.streams[i] = *s;
    fake_cuda.counts.streams++;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuStreamDestroy(CUstream s)
{
    BEGIN_IN_CONTEXT("cuStreamDestroy");
    MUST(s->begun == s->ended, "a stream is destroyed with work on it");
    for (int i = 0; i < STREAMS_MAX; i++)
        if (fake_cuda.streams[i] == s) fake_cuda.streams[i] = NULL;
    free(s);
    fake_cuda.counts.streams--;
    return fake_cuda_end(CUDA_SUCCESS);
}

/* It waits also when it then says that something went wrong. */
static CUresult CUDAAPI e_cuStreamSynchronize(CUstream s)
{
    MUST(fake_cuda_depth > 0, "cuStreamSynchronize without a context");
    const CUresult refused = fake_cuda_begin("cuStreamSynchronize");
    run_upto(s, s->ended);
    fake_cuda_trace_add("s%d", s->number);
    return fake_cuda_end(refused);
}

static CUresult CUDAAPI e_cuEventCreate(CUevent *e, unsigned flags)
{
    (void)flags;
    BEGIN_IN_CONTEXT("cuEventCreate");
    *e = calloc(1, sizeof **e);
    MUST(*e != NULL, "no memory");
    fake_cuda.counts.events++;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuEventDestroy(CUevent e)
{
    BEGIN_IN_CONTEXT("cuEventDestroy");
    free(e);
    fake_cuda.counts.events--;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuEventRecord(CUevent e, CUstream s)
{
    BEGIN_IN_CONTEXT("cuEventRecord");
    e->stream = s;
    e->upto = s->ended;
    e->looks = 0;
    fake_cuda_trace_add("e%d", s->number);
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuEventSynchronize(CUevent e)
{
    BEGIN_IN_CONTEXT("cuEventSynchronize");
    if (e->stream != NULL) {
        run_upto(e->stream, e->upto); /* what was asked after it stays on the stream */
        fake_cuda_trace_add("w%d", e->stream->number);
    }
    return fake_cuda_end(CUDA_SUCCESS);
}

/* The first looks at an event come too early. */
static CUresult CUDAAPI e_cuEventQuery(CUevent e)
{
    BEGIN_IN_CONTEXT("cuEventQuery");
    MUST(e->stream != NULL, "an event is looked at that was never recorded");
    if (e->looks++ < 3) return fake_cuda_end(CUDA_ERROR_NOT_READY);
    run_upto(e->stream, e->upto);
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                                     CUflushGPUDirectRDMAWritesScope scope)
{
    (void)target, (void)scope;
    BEGIN_IN_CONTEXT("cuFlushGPUDirectRDMAWrites");
    fake_cuda_see_nic_writes();
    fake_cuda_trace_add("f%d", 0);
    return fake_cuda_end(CUDA_SUCCESS);
}

/* ---- kernels: the same text, on cores ---- */

#define KERNELS 5
static const char *const kernel_names[KERNELS] = {"tb_digest", "tb_encode", "tb_patch", "tb_move",
                                                  "tb_blake3"};

static CUresult CUDAAPI e_cuModuleLoadData(CUmodule *module, const void *image)
{
    BEGIN_IN_CONTEXT("cuModuleLoadData");
    if (strcmp(image, FAKE_CUDA_IMAGE) != 0) return fake_cuda_end(CUDA_ERROR_NO_BINARY_FOR_GPU);
    *module = (CUmodule)(uintptr_t)&fake_cuda;
    fake_cuda.counts.modules++;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuModuleUnload(CUmodule module)
{
    BEGIN_IN_CONTEXT("cuModuleUnload");
    MUST(module == (CUmodule)(uintptr_t)&fake_cuda, "a module is unloaded that is none");
    fake_cuda.counts.modules--;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    BEGIN_IN_CONTEXT("cuModuleGetFunction");
    MUST(module == (CUmodule)(uintptr_t)&fake_cuda, "a function of no module");
    for (int i = 0; i < KERNELS; i++) {
        if (strcmp(kernel_names[i], name) != 0) continue;
        *function = (CUfunction)(uintptr_t)&kernel_names[i];
        return fake_cuda_end(CUDA_SUCCESS);
    }
    return fake_cuda_end(CUDA_ERROR_NOT_FOUND);
}

struct launched {
    void *jobs; /* of the device */
    uint32_t count;
};

static void run_digests(void *arguments)
{
    struct launched *l = arguments;
    const struct tb_digest_job *jobs =
        (const struct tb_digest_job *)(const void *)fake_cuda_bytes_of(l->jobs, l->count * sizeof *jobs);
    for (uint32_t i = 0; i < l->count; i++) {
        if (jobs[i].count < TB_KERNEL_DIGEST_MIN) continue;
        MUST((uintptr_t)jobs[i].bytes % 16 == 0, "a chunk off its border");
        struct tb_digest_job here = {fake_cuda_bytes_of(jobs[i].bytes, jobs[i].count), jobs[i].count,
                                     fake_cuda_bytes_of(jobs[i].digest, 16)};
        cores_digest(&here, 1, 1);
    }
    free(l);
}

static void run_proofs(void *arguments)
{
    struct launched *l = arguments;
    const struct tb_blake3_job *jobs =
        (const struct tb_blake3_job *)(const void *)fake_cuda_bytes_of(l->jobs, l->count * sizeof *jobs);
    for (uint32_t i = 0; i < l->count; i++) {
        MUST((uintptr_t)jobs[i].bytes % 16 == 0 && jobs[i].count > 0, "a chunk off its border, or none");
        struct tb_blake3_job here = {fake_cuda_bytes_of(jobs[i].bytes, jobs[i].count), jobs[i].count,
                                     fake_cuda_bytes_of(jobs[i].digest, 32)};
        cores_blake3(&here, 1, 1);
    }
    free(l);
}

static void run_patches(void *arguments)
{
    struct launched *l = arguments;
    struct tb_patch_job *jobs =
        (struct tb_patch_job *)(void *)fake_cuda_bytes_of(l->jobs, l->count * sizeof *jobs);
    for (uint32_t i = 0; i < l->count; i++) {
        MUST((uintptr_t)jobs[i].bytes % 16 == 0, "a chunk off its border");
        struct tb_patch_job here = {.form = fake_cuda_bytes_of(jobs[i].form, jobs[i].form_count),
                                    .form_count = jobs[i].form_count,
                                    .bytes = fake_cuda_bytes_of(jobs[i].bytes, jobs[i].count),
                                    .count = jobs[i].count};
        cores_patch(&here, 1, 1);
        jobs[i].ok = here.ok;
    }
    free(l);
}

static void run_encodes(void *arguments)
{
    struct launched *l = arguments;
    struct tb_encode_job *jobs =
        (struct tb_encode_job *)(void *)fake_cuda_bytes_of(l->jobs, l->count * sizeof *jobs);
    for (uint32_t i = 0; i < l->count; i++) {
        struct tb_encode_job here = jobs[i];
        MUST((uintptr_t)here.bytes % 16 == 0 && (uintptr_t)here.base % 16 == 0, "a chunk off its border");
        here.bytes = fake_cuda_bytes_of(here.bytes, here.count);
        here.base = fake_cuda_bytes_of(here.base, here.count);
        here.out = fake_cuda_bytes_of(here.out, (here.cap + 3) / 4 * 4);
        cores_encode(&here, 1, 1);
        jobs[i].used = here.used;
        jobs[i].changed = here.changed;
    }
    free(l);
}

static void run_moves(void *arguments)
{
    struct launched *l = arguments;
    const struct tb_move_job *jobs =
        (const struct tb_move_job *)(const void *)fake_cuda_bytes_of(l->jobs, l->count * sizeof *jobs);
    for (uint32_t i = 0; i < l->count; i++) {
        struct tb_move_job here = {fake_cuda_bytes_of(jobs[i].from, jobs[i].count),
                                   fake_cuda_bytes_of(jobs[i].to, jobs[i].count), jobs[i].count};
        MUST(fake_cuda_find_alloc(jobs[i].from) != NULL && fake_cuda_find_alloc(jobs[i].to) != NULL,
             "a kernel moves memory that is not a device's");
        cores_move(&here, 1, 1);
    }
    free(l);
}

static void (*const kernel_runs[KERNELS])(void *arguments) = {run_digests, run_encodes, run_patches,
                                                              run_moves, run_proofs};

static int kernel_of(CUfunction f)
{
    for (int i = 0; i < KERNELS; i++)
        if (f == (CUfunction)(uintptr_t)&kernel_names[i]) return i;
    MUST(false, "a kernel is launched that is none");
    return 0;
}

/* Its last byte is there, so all of it is. */
static void must_have_scratch(const void *scratch, unsigned blocks)
{
    MUST(scratch != NULL, "encoding or patching without scratch");
    (void)fake_cuda_bytes_of(scratch, (size_t)blocks * TB_KERNEL_SCRATCH_BYTES);
}

static uint32_t blocks_launched; /* under the lock */

static CUresult CUDAAPI e_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                         unsigned by, unsigned bz, unsigned shared, CUstream s,
                                         void **parameters, void **extra)
{
    (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)extra;
    BEGIN_IN_CONTEXT("cuLaunchKernel");
    const int kernel = kernel_of(f);
    MUST(gx > 0 && bx == TB_KERNEL_THREADS, "a launch of another size");
    struct launched *l = malloc(sizeof *l);
    MUST(l != NULL, "no memory");
    l->jobs = *(void **)parameters[0];
    l->count = *(uint32_t *)parameters[1];
    if (kernel == 1 || kernel == 2) must_have_scratch(*(void **)parameters[2], gx);
    ask_op(s, (struct op){.run = kernel_runs[kernel], .arguments = l});
    blocks_launched = gx;
    fake_cuda_trace_add("k%d", s->number);
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads,
                                                                      size_t shared)
{
    (void)shared;
    BEGIN_IN_CONTEXT("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    (void)kernel_of(f);
    MUST(threads == TB_KERNEL_THREADS, "blocks of another size");
    *blocks = 2;
    return fake_cuda_end(CUDA_SUCCESS);
}

void fake_cuda_stream_entries(struct tb_cuda_driver *d)
{
    d->copy_async = e_cuMemcpyAsync;
    d->copy_rows_async = e_cuMemcpy2DAsync;
    d->stream_create = e_cuStreamCreate;
    d->stream_destroy = e_cuStreamDestroy;
    d->stream_synchronize = e_cuStreamSynchronize;
    d->event_create = e_cuEventCreate;
    d->event_destroy = e_cuEventDestroy;
    d->event_record = e_cuEventRecord;
    d->event_query = e_cuEventQuery;
    d->event_synchronize = e_cuEventSynchronize;
    d->flush_rdma = e_cuFlushGPUDirectRDMAWrites;
    d->module_load = e_cuModuleLoadData;
    d->module_unload = e_cuModuleUnload;
    d->module_function = e_cuModuleGetFunction;
    d->launch = e_cuLaunchKernel;
    d->blocks_at_a_time = e_cuOccupancyMaxActiveBlocksPerMultiprocessor;
}

uint32_t fake_cuda_blocks(void)
{
    pthread_mutex_lock(&fake_cuda.lock);
    const uint32_t blocks = blocks_launched;
    pthread_mutex_unlock(&fake_cuda.lock);
    return blocks;
}

bool fake_cuda_idle(void)
{
    bool idle = true;
    pthread_mutex_lock(&fake_cuda.lock);
    for (int i = 0; i < STREAMS_MAX; i++)
        if (fake_cuda.streams[i] != NULL)
            idle = idle && fake_cuda.streams[i]->begun == fake_cuda.streams[i]->ended;
    pthread_mutex_unlock(&fake_cuda.lock);
    return idle;
}

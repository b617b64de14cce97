/* cuda_tray.c - both ends of a tray: the owner's, which fills it from tensors, and the reader's,
 * which copies out of it in another process.
 *
 * Bytes touched per byte that is read: on the device once read and written, and once read again on
 * their way to the reader's host memory. Neither end's cores touch one.
 *
 * The owner has a stream for each tray, so a reader waits for no pass and for no other reader; the
 * reader has one, as a device has one engine for what goes to the host, and an event for each part,
 * so that those who copy at the same time wait for their own. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "intra/cuda/cuda_memory.h"
#include "intra/cuda_part_trays.h"

#define DRIVER_BLOCK_BYTES ((size_t)2 << 20)

_Static_assert(sizeof(CUipcMemHandle) == TB_GPU_HANDLE_BYTES, "a handle is what an offer has room for");

struct tb_gpu_tray {
    struct tb_gpu *gpu;
    struct tb_cuda_device *device;
    CUdeviceptr at;
    uint64_t bytes;
    CUstream stream;
    CUevent event;
};

struct tb_gpu_reach {
    struct tb_gpu *gpu;
    struct tb_cuda_device *device;
    CUdeviceptr at;
    uint64_t bytes;
    CUstream stream;
    CUevent events[TB_GPU_TRAY_PARTS];
};

/* ---- what both have ---- */

static enum tb_status new_stream(const struct tb_gpu *gpu, const struct tb_cuda_device *d, CUstream *out)
{
    const CUresult result = gpu->driver.stream_create(out, CU_STREAM_NON_BLOCKING);
    return result == CUDA_SUCCESS ? TB_OK : tb_cuda_failed(gpu, d, "cuStreamCreate", result);
}

/* A thread that waits for the event sleeps. */
static enum tb_status new_event(const struct tb_gpu *gpu, const struct tb_cuda_device *d, CUevent *out)
{
    const CUresult result = gpu->driver.event_create(out, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    return result == CUDA_SUCCESS ? TB_OK : tb_cuda_failed(gpu, d, "cuEventCreate", result);
}

static void drop_stream(const struct tb_gpu *gpu, const struct tb_cuda_device *d, CUstream stream)
{
    const CUresult result = stream != NULL ? gpu->driver.stream_destroy(stream) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(gpu, d, "cuStreamDestroy", result);
}

static void drop_event(const struct tb_gpu *gpu, const struct tb_cuda_device *d, CUevent event)
{
    const CUresult result = event != NULL ? gpu->driver.event_destroy(event) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(gpu, d, "cuEventDestroy", result);
}

static enum tb_status copy(const struct tb_gpu *gpu, const struct tb_cuda_device *d, CUstream stream,
                           const struct tb_gpu_move *move)
{
    const CUresult result = gpu->driver.copy_async(
        (CUdeviceptr)(uintptr_t)move->to, (CUdeviceptr)(uintptr_t)move->from, (size_t)move->bytes, stream);
    return result == CUDA_SUCCESS ? TB_OK : tb_cuda_failed(gpu, d, "cuMemcpyAsync", result);
}

/* Waits for what was asked before. After a failure for all of the stream, so that nothing runs
 * on. */
static enum tb_status wait_for(const struct tb_gpu *gpu, const struct tb_cuda_device *d, CUstream stream,
                               CUevent event, enum tb_status status)
{
    CUresult result = status == TB_OK ? gpu->driver.event_record(event, stream) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) status = tb_cuda_failed(gpu, d, "cuEventRecord", result);
    result = status == TB_OK ? gpu->driver.event_synchronize(event) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) status = tb_cuda_failed(gpu, d, "cuEventSynchronize", result);
    if (status != TB_OK) (void)gpu->driver.stream_synchronize(stream); /* it may fail again: it was told */
    return status;
}

/* ---- the owner's ---- */

static enum tb_status lend(const struct tb_gpu_tray *t, struct tb_gpu_offer *offer_out)
{
    TB_ASSERT(t->at != 0 && t->bytes > 0);
    CUipcMemHandle handle;
    const CUresult result = t->gpu->driver.ipc_get(&handle, t->at);
    if (result != CUDA_SUCCESS) return tb_cuda_failed(t->gpu, t->device, "cuIpcGetMemHandle", result);
    *offer_out = (struct tb_gpu_offer){.device = t->device->uuid, .bytes = t->bytes};
    memcpy(offer_out->handle, &handle, sizeof handle);
    return TB_OK;
}

/* Whole blocks: the driver puts small allocations beside each other into one, and a handle opens
 * all of a block, for writing too. */
static enum tb_status tray_build(struct tb_gpu_tray *t, struct tb_gpu_offer *offer_out)
{
    TB_ASSERT(t->at == 0 && t->bytes > 0);
    const size_t blocks = ((size_t)t->bytes + DRIVER_BLOCK_BYTES - 1) / DRIVER_BLOCK_BYTES;
    const CUresult result = t->gpu->driver.mem_alloc(&t->at, blocks * DRIVER_BLOCK_BYTES);
    if (result != CUDA_SUCCESS) {
        t->at = 0;
        return tb_cuda_failed(t->gpu, t->device, "cuMemAlloc", result);
    }
    enum tb_status status = new_stream(t->gpu, t->device, &t->stream);
    if (status == TB_OK) status = new_event(t->gpu, t->device, &t->event);
    if (status == TB_OK) status = lend(t, offer_out);
    return status;
}

enum tb_status tb_gpu_tray_open(struct tb_gpu_memory *m, uint64_t bytes, struct tb_gpu_tray **tray_out,
                                struct tb_gpu_offer *offer_out)
{
    TB_ASSERT(bytes > 0 && bytes <= TB_GPU_TRAY_BYTES_MAX);
    const struct tb_cuda_driver *cu = &m->gpu->driver;
    if (cu->ipc_get == NULL) return TB_SITE_IO;
    struct tb_gpu_tray *t = tb_calloc(1, sizeof *t);
    if (t == NULL) return TB_SITE_NOMEM;
    *t = (struct tb_gpu_tray){.gpu = m->gpu, .device = m->device, .bytes = bytes};
    enum tb_status status = tb_cuda_enter(t->gpu, t->device);
    if (status != TB_OK) {
        tb_free(t);
        return status;
    }
    status = tray_build(t, offer_out);
    tb_cuda_leave(t->gpu);
    if (status == TB_OK)
        *tray_out = t;
    else
        tb_gpu_tray_close(t, true);
    return status;
}

static enum tb_status fill_one(const struct tb_gpu_tray *t, const struct tb_gpu_origin *origin,
                               const struct tb_gpu_fill *fill)
{
    TB_ASSERT(fill->at <= t->bytes && fill->bytes <= t->bytes - fill->at);
    TB_ASSERT(fill->offset <= origin->manifest->bytes &&
              fill->bytes <= origin->manifest->bytes - fill->offset);
    const struct tb_spread *from = &origin->from;
    uint32_t tensor = tb_layout_tensor_at(from->layout, fill->offset);
    enum tb_status status = TB_OK;
    for (uint64_t done = 0; done < fill->bytes && status == TB_OK;) {
        const struct tb_stretch s = tb_spread_at(from, fill->offset + done, fill->bytes - done, &tensor);
        const struct tb_gpu_move move = {
            .to = (uint8_t *)(uintptr_t)t->at + fill->at + done, .from = s.at, .bytes = s.bytes};
        status = copy(t->gpu, t->device, t->stream, &move);
        TB_ASSERT(s.bytes > 0 && s.bytes <= fill->bytes - done);
        done += s.bytes;
    }
    return status;
}

enum tb_status tb_gpu_tray_fill(struct tb_gpu_tray *t, const struct tb_gpu_origin *origin,
                                const struct tb_gpu_fill *fills, uint32_t count)
{
    TB_ASSERT(count > 0);
    enum tb_status status = tb_cuda_enter(t->gpu, t->device);
    if (status != TB_OK) return status;
    for (uint32_t i = 0; i < count && status == TB_OK; i++)
        status = fill_one(t, origin, &fills[i]);
    status = wait_for(t->gpu, t->device, t->stream, t->event, status);
    tb_cuda_leave(t->gpu);
    return status;
}

static void give_back(const struct tb_gpu_tray *t, bool reader_closed)
{
    if (t->at == 0) return;
    if (!reader_closed) {
        tb_log(TB_LOG_WARN, "gpu.tray_kept", "device=%d bytes=%llu reason=its_reader_may_have_it_open",
               (int)t->device->handle, (unsigned long long)t->bytes);
        return;
    }
    const CUresult result = t->gpu->driver.mem_free(t->at);
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(t->gpu, t->device, "cuMemFree", result);
}

void tb_gpu_tray_close(struct tb_gpu_tray *t, bool reader_closed)
{
    if (t == NULL) return;
    if (tb_cuda_enter(t->gpu, t->device) == TB_OK) {
        drop_event(t->gpu, t->device, t->event);
        drop_stream(t->gpu, t->device, t->stream);
        give_back(t, reader_closed);
        tb_cuda_leave(t->gpu);
    }
    tb_free(t);
}

/* ---- the reader's ---- */

static bool same_device(const struct tb_cuda_device *d, const struct tb_gpu_offer *offer)
{
    return !tb_id_is_zero(&offer->device) && tb_id_equal(&d->uuid, &offer->device);
}

static struct tb_cuda_device *nearest(struct tb_gpu *gpu, const struct tb_gpu_offer *offer)
{
    struct tb_cuda_device *best = NULL;
    pthread_mutex_lock(&gpu->lock);
    for (int i = 0; i < TB_CUDA_DEVICES_MAX; i++) {
        struct tb_cuda_device *d = &gpu->devices[i];
        if (d->open && (best == NULL || (!same_device(best, offer) && same_device(d, offer)))) best = d;
    }
    pthread_mutex_unlock(&gpu->lock);
    return best;
}

/* P8: how large it is its owner has said; the driver knows. A copy beyond its end would be an error
 * of the device, after which this process can do nothing more with it. */
static enum tb_status look_at_size(const struct tb_gpu_reach *r)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const CUresult result = r->gpu->driver.mem_range(&base, &bytes, r->at);
    if (result != CUDA_SUCCESS) return tb_cuda_failed(r->gpu, r->device, "cuMemGetAddressRange", result);
    const uint64_t before = r->at - base, here = before < bytes ? bytes - before : 0;
    if (here >= r->bytes) return TB_OK;
    tb_log(TB_LOG_WARN, "gpu.tray_too_small", "device=%d said_bytes=%llu bytes=%llu action=not_read",
           (int)r->device->handle, (unsigned long long)r->bytes, (unsigned long long)here);
    return TB_PEER_GARBLED;
}

static enum tb_status reach_build(struct tb_gpu_reach *r, const struct tb_gpu_offer *offer)
{
    TB_ASSERT(r->at == 0 && r->stream == NULL && r->bytes == offer->bytes);
    CUipcMemHandle handle;
    memcpy(&handle, offer->handle, sizeof handle);
    const CUresult result = r->gpu->driver.ipc_open(&r->at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS) {
        r->at = 0;
        return tb_cuda_failed(r->gpu, r->device, "cuIpcOpenMemHandle", result);
    }
    enum tb_status status = look_at_size(r);
    if (status == TB_OK) status = new_stream(r->gpu, r->device, &r->stream);
    for (uint32_t i = 0; i < TB_GPU_TRAY_PARTS && status == TB_OK; i++)
        status = new_event(r->gpu, r->device, &r->events[i]);
    return status;
}

enum tb_status tb_gpu_reach_open(struct tb_gpu *gpu, const struct tb_gpu_offer *offer,
                                 struct tb_gpu_reach **reach_out)
{
    struct tb_cuda_device *device = nearest(gpu, offer);
    if (device == NULL) return TB_NOT_FOUND;
    if (gpu->driver.ipc_open == NULL || gpu->driver.ipc_close == NULL) return TB_SITE_IO;
    struct tb_gpu_reach *r = tb_calloc(1, sizeof *r);
    if (r == NULL) return TB_SITE_NOMEM;
    *r = (struct tb_gpu_reach){.gpu = gpu, .device = device, .bytes = offer->bytes};
    enum tb_status status = tb_cuda_enter(gpu, device);
    if (status != TB_OK) {
        tb_free(r);
        return status;
    }
    status = reach_build(r, offer);
    tb_cuda_leave(gpu);
    if (status == TB_OK)
        *reach_out = r;
    else
        tb_gpu_reach_close(r);
    return status;
}

enum tb_status tb_gpu_reach_copy(struct tb_gpu_reach *r, uint32_t part, uint64_t at, void *to, uint64_t bytes)
{
    TB_ASSERT(part < TB_GPU_TRAY_PARTS && at <= r->bytes && bytes <= r->bytes - at);
    enum tb_status status = tb_cuda_enter(r->gpu, r->device);
    if (status != TB_OK) return status;
    const struct tb_gpu_move move = {to, (const uint8_t *)(uintptr_t)r->at + at, bytes};
    status = copy(r->gpu, r->device, r->stream, &move);
    status = wait_for(r->gpu, r->device, r->stream, r->events[part], status);
    tb_cuda_leave(r->gpu);
    return status;
}

void tb_gpu_reach_close(struct tb_gpu_reach *r)
{
    if (r == NULL) return;
    if (tb_cuda_enter(r->gpu, r->device) == TB_OK) {
        for (uint32_t i = 0; i < TB_GPU_TRAY_PARTS; i++)
            drop_event(r->gpu, r->device, r->events[i]);
        drop_stream(r->gpu, r->device, r->stream);
        const CUresult result = r->at != 0 ? r->gpu->driver.ipc_close(r->at) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS) (void)tb_cuda_failed(r->gpu, r->device, "cuIpcCloseMemHandle", result);
        tb_cuda_leave(r->gpu);
    }
    tb_free(r);
}

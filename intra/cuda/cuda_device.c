#include "intra/cuda/cuda_device.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "intra/cuda/cuda_kernels.h"

static const struct tb_cuda_driver *replaced;

void tb_gpu_replace_driver(const struct tb_cuda_driver *driver)
{
    replaced = driver;
}

/* ---- what went wrong ---- */

enum tb_status tb_cuda_failed(const struct tb_gpu *gpu, const struct tb_cuda_device *device, const char *call,
                              CUresult result)
{
    TB_ASSERT(call != NULL && result != CUDA_SUCCESS);
    tb_log(TB_LOG_WARN, "gpu.failed", "device=%d call=%s error=%s", device != NULL ? (int)device->handle : -1,
           call, tb_cuda_error_name(&gpu->driver, result));
    return result == CUDA_ERROR_OUT_OF_MEMORY ? TB_SITE_NOMEM : TB_SITE_IO;
}

/* While any thread of the process captures a graph, as engines do when they start, a call that
 * allocates, frees or waits is refused to all others and spoils the capture, unless their thread
 * has said that it has no part in it: ours has none. Calls of ours may be inside each other, and of
 * a thread that captures itself (it calls us meanwhile) the mode comes back as it was. */
static _Thread_local struct {
    uint32_t depth;
    CUstreamCaptureMode before;
} capture;

static void stand_aside(const struct tb_gpu *gpu)
{
    if (capture.depth++ > 0) return;
    capture.before = CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUresult result = gpu->driver.capture_mode(&capture.before);
    if (result == CUDA_SUCCESS) return;
    capture.before = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)tb_cuda_failed(gpu, NULL, "cuThreadExchangeStreamCaptureMode",
                         result); /* it may go well all the same */
}

static void stand_back(const struct tb_gpu *gpu)
{
    TB_ASSERT(capture.depth > 0);
    if (--capture.depth > 0 || capture.before == CU_STREAM_CAPTURE_MODE_RELAXED) return;
    CUstreamCaptureMode mode = capture.before;
    const CUresult result = gpu->driver.capture_mode(&mode);
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(gpu, NULL, "cuThreadExchangeStreamCaptureMode", result);
}

enum tb_status tb_cuda_enter(const struct tb_gpu *gpu, const struct tb_cuda_device *device)
{
    TB_ASSERT(device >= gpu->devices && device < gpu->devices + TB_CUDA_DEVICES_MAX);
    stand_aside(gpu);
    const CUresult result = gpu->driver.context_push(device->context);
    if (result == CUDA_SUCCESS) return TB_OK;
    stand_back(gpu);
    return tb_cuda_failed(gpu, device, "cuCtxPushCurrent", result);
}

void tb_cuda_leave(const struct tb_gpu *gpu)
{
    TB_ASSERT(capture.depth > 0); /* entered before */
    CUcontext ours;
    const CUresult result = gpu->driver.context_pop(&ours);
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(gpu, NULL, "cuCtxPopCurrent", result);
    stand_back(gpu);
}

/* ---- devices ---- */

static int attribute(const struct tb_gpu *gpu, CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return gpu->driver.device_attribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* Hopper and newer order a NIC's writes before what the device reads next; older ones are asked
 * to, if the driver can. */
static enum tb_cuda_nic_writes nic_writes_of(const struct tb_gpu *gpu, CUdevice device)
{
    const int ordering = attribute(gpu, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
    if (ordering >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER) return TB_CUDA_NIC_WRITES_ORDERED;
    const int ways = attribute(gpu, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
    const bool flushes =
        gpu->driver.flush_rdma != NULL && (ways & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
    return flushes ? TB_CUDA_NIC_WRITES_FLUSHED : TB_CUDA_NIC_WRITES_UNSEEN;
}

/* The driver writes capitals, sysfs does not. */
static void ask_pci(const struct tb_cuda_driver *cu, struct tb_cuda_device *d)
{
    if (cu->device_pci == NULL || cu->device_pci(d->pci, (int)sizeof d->pci - 1, d->handle) != CUDA_SUCCESS)
        d->pci[0] = '\0';
    for (char *c = d->pci; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'F') *c = (char)(*c - 'A' + 'a');
}

static enum tb_status open_device(struct tb_gpu *gpu, int ordinal, struct tb_cuda_device *d)
{
    TB_ASSERT(!d->open);
    TB_ASSERT(ordinal >= 0 && ordinal < TB_CUDA_DEVICES_MAX && d == &gpu->devices[ordinal]);
    const struct tb_cuda_driver *cu = &gpu->driver;
    CUresult result = cu->device_get(&d->handle, ordinal);
    if (result != CUDA_SUCCESS) return tb_cuda_failed(gpu, NULL, "cuDeviceGet", result);
    if (cu->device_name(d->name, (int)sizeof d->name, d->handle) != CUDA_SUCCESS) d->name[0] = '\0';
    d->name[sizeof d->name - 1] = '\0';
    CUuuid uuid;
    if (cu->device_uuid != NULL && cu->device_uuid(&uuid, d->handle) == CUDA_SUCCESS)
        memcpy(d->uuid.bytes, uuid.bytes, sizeof d->uuid.bytes);
    ask_pci(cu, d);
    result = cu->primary_retain(&d->context, d->handle);
    if (result != CUDA_SUCCESS) return tb_cuda_failed(gpu, d, "cuDevicePrimaryCtxRetain", result);
    d->dmabuf =
        cu->range_handle != NULL && attribute(gpu, d->handle, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0;
    d->nic_writes = nic_writes_of(gpu, d->handle);
    const int pitch = attribute(gpu, d->handle, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    d->pitch_max = pitch > 0 ? (uint64_t)pitch : 0;
    const enum tb_status status = tb_cuda_enter(gpu, d);
    if (status != TB_OK) {
        (void)cu->primary_release(d->handle);
        return status;
    }
    tb_cuda_kernels_load(gpu, d);
    TB_ASSERT(d->module != NULL || d->why_cores[0] != '\0'); /* has kernels, or says why not */
    tb_cuda_leave(gpu);
    d->open = true;
    return TB_OK;
}

enum tb_status tb_cuda_device_open(struct tb_gpu *gpu, int ordinal, struct tb_cuda_device **device_out)
{
    if (ordinal < 0 || ordinal >= TB_CUDA_DEVICES_MAX) return TB_BAD_ARGUMENT;
    struct tb_cuda_device *d = &gpu->devices[ordinal];
    stand_aside(gpu); /* a context may be made */
    pthread_mutex_lock(&gpu->lock);
    const enum tb_status status = d->open ? TB_OK : open_device(gpu, ordinal, d);
    TB_ASSERT(d->open == (status == TB_OK));
    pthread_mutex_unlock(&gpu->lock);
    stand_back(gpu);
    if (status == TB_OK) *device_out = d;
    return status;
}

/* ---- pinned host memory ---- */

static struct tb_cuda_device *first_device(struct tb_gpu *gpu)
{
    for (int i = 0; i < TB_CUDA_DEVICES_MAX; i++)
        if (gpu->devices[i].open) return &gpu->devices[i];
    return NULL;
}

/* The memory is unmapped next, so nothing else than a line can come of a refusal. */
static void unpin(struct tb_shared_pin *pin, void *bytes)
{
    struct tb_gpu *gpu = (struct tb_gpu *)pin; /* its first member */
    pthread_mutex_lock(&gpu->lock);
    struct tb_cuda_device *d = first_device(gpu);
    TB_ASSERT(d != NULL && gpu->pins > 0);
    gpu->pins--;
    pthread_mutex_unlock(&gpu->lock);
    if (tb_cuda_enter(gpu, d) != TB_OK) return;
    const CUresult result = gpu->driver.host_unregister(bytes);
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(gpu, d, "cuMemHostUnregister", result);
    tb_cuda_leave(gpu);
}

void tb_gpu_pin(struct tb_gpu *gpu, struct tb_shared_memory *memory)
{
    if (gpu == NULL || memory->bytes == NULL || memory->pin != NULL) return;
    pthread_mutex_lock(&gpu->lock);
    struct tb_cuda_device *d = first_device(gpu);
    pthread_mutex_unlock(&gpu->lock);
    if (d == NULL || tb_cuda_enter(gpu, d) != TB_OK) return;
    TB_ASSERT(memory->count > 0);
    /* For every device of the process, and read by NICs as before: both pin the same pages. */
    const CUresult result =
        gpu->driver.host_register(memory->bytes, memory->count, CU_MEMHOSTREGISTER_PORTABLE);
    tb_cuda_leave(gpu);
    if (result != CUDA_SUCCESS) {
        tb_log(TB_LOG_WARN, "gpu.unpinned", "bytes=%llu error=%s action=slower_copies",
               (unsigned long long)memory->count, tb_cuda_error_name(&gpu->driver, result));
        return;
    }
    pthread_mutex_lock(&gpu->lock);
    gpu->pins++;
    pthread_mutex_unlock(&gpu->lock);
    TB_ASSERT(memory->pin == NULL); /* one thread at a time has a memory */
    memory->pin = &gpu->pin;
}

/* ---- beginning and end ---- */

enum tb_status tb_gpu_open(struct tb_gpu **gpu_out, char *why)
{
    *gpu_out = NULL;
    struct tb_cuda_driver driver;
    char sentence[TB_CUDA_WHY_BYTES] = "no memory for it";
    enum tb_status status = TB_OK;
    if (replaced != NULL)
        driver = *replaced;
    else
        status = tb_cuda_driver_load(NULL, &driver, sentence);
    struct tb_gpu *gpu = status == TB_OK ? tb_calloc(1, sizeof *gpu) : NULL;
    if (gpu == NULL) {
        snprintf(why, TB_GPU_WHY_BYTES, "%s", sentence);
        if (status == TB_OK) tb_cuda_driver_unload(&driver);
        return status == TB_OK ? TB_SITE_NOMEM : status;
    }
    gpu->driver = driver;
    gpu->pin.drop = unpin;
    pthread_mutex_init(&gpu->lock, NULL);
    *gpu_out = gpu;
    return TB_OK;
}

void tb_gpu_close(struct tb_gpu *gpu)
{
    if (gpu == NULL) return;
    TB_ASSERT(gpu->memories == 0 && gpu->pins == 0);
    stand_aside(gpu);
    for (int i = 0; i < TB_CUDA_DEVICES_MAX; i++) {
        struct tb_cuda_device *d = &gpu->devices[i];
        if (!d->open) continue;
        if (tb_cuda_enter(gpu, d) == TB_OK) {
            tb_cuda_kernels_unload(gpu, d);
            tb_cuda_leave(gpu);
        }
        const CUresult result = gpu->driver.primary_release(d->handle);
        if (result != CUDA_SUCCESS) (void)tb_cuda_failed(gpu, d, "cuDevicePrimaryCtxRelease", result);
    }
    stand_back(gpu);
    pthread_mutex_destroy(&gpu->lock);
    tb_cuda_driver_unload(&gpu->driver);
    tb_free(gpu);
}

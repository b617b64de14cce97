#include "gpu/real_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(const struct real_device *d, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS) return;
    fprintf(stderr, "gpu: %s: %s\n", call, tb_cuda_error_name(&d->driver, result));
    exit(1);
}

const char *real_device_open(struct real_device *d)
{
    static char why[TB_CUDA_WHY_BYTES];
    memset(d, 0, sizeof *d);
    if (tb_cuda_driver_load("libcuda.so.1", &d->driver, why) != TB_OK) return why;
    int count = 0;
    CUresult result = d->driver.init(0);
    if (result == CUDA_SUCCESS) result = d->driver.device_count(&count);
    if (result == CUDA_SUCCESS && count == 0) return "the driver has no device";
    if (result != CUDA_SUCCESS) {
        snprintf(why, sizeof why, "cuInit: %s", tb_cuda_error_name(&d->driver, result));
        return why;
    }
    static char no_gpu[TB_GPU_WHY_BYTES];
    if (tb_gpu_open(&d->gpu, no_gpu) != TB_OK) return no_gpu; /* by the library that is loaded now */
    if (tb_cuda_device_open(d->gpu, 0, &d->device) != TB_OK)
        return "device 0 cannot be opened: gpu.failed says why";
    must(d, d->driver.context_push(d->device->context), "cuCtxPushCurrent");
    must(d, d->driver.stream_create(&d->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return NULL;
}

void real_device_close(struct real_device *d)
{
    CUcontext context;
    must(d, d->driver.stream_destroy(d->stream), "cuStreamDestroy");
    must(d, d->driver.context_pop(&context), "cuCtxPopCurrent");
    tb_gpu_close(d->gpu);
    tb_cuda_driver_unload(&d->driver);
}

CUdeviceptr real_device_alloc(struct real_device *d, size_t bytes)
{
    CUdeviceptr at = 0;
    must(d, d->driver.mem_alloc(&at, bytes), "cuMemAlloc");
    return at;
}

void real_device_free(struct real_device *d, CUdeviceptr at)
{
    must(d, d->driver.mem_free(at), "cuMemFree");
}

void real_device_wait(struct real_device *d)
{
    must(d, d->driver.stream_synchronize(d->stream), "cuStreamSynchronize");
}

void real_device_copy(struct real_device *d, void *to, const void *from, size_t bytes)
{
    if (bytes == 0) return;
    must(d, d->driver.copy_async((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, d->stream),
         "cuMemcpyAsync");
    real_device_wait(d);
}

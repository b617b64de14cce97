#include "intra/cuda/cuda_kernels.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/log.h"

static const char *const names[TB_CUDA_KERNELS] = {"tb_digest", "tb_encode", "tb_patch", "tb_move",
                                                   "tb_blake3"};

static const void *replaced_image;

void tb_cuda_replace_image(const void *image)
{
    replaced_image = image;
}

static void none(struct tb_cuda_device *device, const char *why)
{
    snprintf(device->why_cores, sizeof device->why_cores, "cores: %s", why);
}

/* As registers and shared memory allow, over all multiprocessors. */
static uint32_t blocks_that_fit(const struct tb_gpu *gpu, const struct tb_cuda_device *device, int kernel)
{
    const struct tb_cuda_driver *cu = &gpu->driver;
    int processors = 0, each = 0;
    if (cu->blocks_at_a_time == NULL) return 0;
    if (cu->device_attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->handle) !=
            CUDA_SUCCESS ||
        cu->blocks_at_a_time(&each, device->kernels[kernel], TB_KERNEL_THREADS, 0) != CUDA_SUCCESS)
        return 0;
    return processors > 0 && each > 0 ? (uint32_t)processors * (uint32_t)each : 0;
}

void tb_cuda_kernels_load(const struct tb_gpu *gpu, struct tb_cuda_device *device)
{
    TB_ASSERT(device->module == NULL); /* once */
    const void *image = replaced_image != NULL ? replaced_image : tb_cuda_image;
    if (image == NULL) {
        none(device, "built without nvcc");
        return;
    }
    CUresult result = gpu->driver.module_load(&device->module, image);
    for (int i = 0; i < TB_CUDA_KERNELS && result == CUDA_SUCCESS; i++)
        result = gpu->driver.module_function(&device->kernels[i], device->module, names[i]);
    for (int i = 0; i < TB_CUDA_KERNELS && result == CUDA_SUCCESS; i++)
        device->blocks[i] = blocks_that_fit(gpu, device, i);
    if (result == CUDA_SUCCESS) return;
    none(device, tb_cuda_error_name(&gpu->driver, result));
    tb_log(TB_LOG_WARN, "gpu.no_kernels", "device=%d error=%s action=cores_digest", (int)device->handle,
           tb_cuda_error_name(&gpu->driver, result));
    tb_cuda_kernels_unload(gpu, device);
}

void tb_cuda_kernels_unload(const struct tb_gpu *gpu, struct tb_cuda_device *device)
{
    if (device->module == NULL) return;
    const CUresult result = gpu->driver.module_unload(device->module);
    if (result != CUDA_SUCCESS) (void)tb_cuda_failed(gpu, device, "cuModuleUnload", result);
    device->module = NULL;
}

static bool needs_scratch(enum tb_cuda_kernel kernel)
{
    return kernel == TB_CUDA_ENCODE || kernel == TB_CUDA_PATCH;
}

enum tb_status tb_cuda_launch(const struct tb_gpu *gpu, const struct tb_cuda_device *device, CUstream stream,
                              const struct tb_cuda_launch *launch)
{
    TB_ASSERT(device->module != NULL && launch->count > 0);
    TB_ASSERT((unsigned)launch->kernel < TB_CUDA_KERNELS && launch->blocks > 0);
    TB_ASSERT(launch->scratch != 0 || !needs_scratch(launch->kernel));
    CUdeviceptr jobs = launch->jobs, scratch = launch->scratch;
    uint32_t count = launch->count;
    void *arguments[] = {&jobs, &count, &scratch}; /* digests and moves take two of them */
    const uint32_t fit = needs_scratch(launch->kernel) ? device->blocks[launch->kernel] : 0;
    uint32_t blocks = launch->blocks < count ? launch->blocks : count;
    if (fit > 0 && fit < blocks) blocks = fit;
    const CUresult result = gpu->driver.launch(device->kernels[launch->kernel], blocks, 1, 1,
                                               TB_KERNEL_THREADS, 1, 1, 0, stream, arguments, NULL);
    return result == CUDA_SUCCESS ? TB_OK : tb_cuda_failed(gpu, device, "cuLaunchKernel", result);
}

#include "unit/cuda/fake_device.h"

#include "unit/cuda/fake_cuda.h"

static void *alloc_first(size_t bytes)
{
    return fake_cuda_alloc(0, bytes);
}

static void open_with_kernels(void)
{
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
}

const struct gpu_under_test fake_device = {fake_cuda_open, fake_cuda_close, alloc_first,
                                           fake_cuda_free, fake_cuda_write, fake_cuda_read};
const struct gpu_under_test fake_device_with_kernels = {open_with_kernels, fake_cuda_close, alloc_first,
                                                        fake_cuda_free,    fake_cuda_write, fake_cuda_read};

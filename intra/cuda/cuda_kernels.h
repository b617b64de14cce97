/* cuda_kernels.h - launching the kernels that are in this library. Inside intra/cuda, tests and
 * bench only. A shell.
 *
 * The image has code for some architectures and PTX for all others from compute capability 7.5 on
 * (intra/CMakeLists.txt lists them); the driver chooses when a device is opened. Where nvcc was not
 * found, or the driver takes none of it, there are no kernels and cores do the work: that is a fact
 * to show, not an error. */
#ifndef TB_INTRA_CUDA_KERNELS_H
#define TB_INTRA_CUDA_KERNELS_H

#include "intra/cuda/cuda_device.h"
#include "intra/cuda/kernel_jobs.h"

/* The image of kernels.cu; NULL: built without nvcc. */
extern const void *const tb_cuda_image;
/* Stands in for it; NULL: the library's again. For tests. */
void tb_cuda_replace_image(const void *image);

/* In the device's context, once: fills device->kernels, or says in device->why_cores why not. */
void tb_cuda_kernels_load(const struct tb_gpu *gpu, struct tb_cuda_device *device);
void tb_cuda_kernels_unload(const struct tb_gpu *gpu, struct tb_cuda_device *device);

/* `count` jobs that stand on the device, one block each unless `blocks` is less. Encode and patch
 * need TB_KERNEL_SCRATCH_BYTES of device memory for each of `blocks`, the others none; of them no
 * more blocks are launched than the device works on at a time. Asynchronous, in the current
 * context. */
struct tb_cuda_launch {
    enum tb_cuda_kernel kernel;
    CUdeviceptr jobs;
    uint32_t count;
    uint32_t blocks;
    CUdeviceptr scratch;
};
TB_MUST_USE enum tb_status tb_cuda_launch(const struct tb_gpu *gpu, const struct tb_cuda_device *device,
                                          CUstream stream, const struct tb_cuda_launch *launch);

#endif

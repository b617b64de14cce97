/* real_device.h - the first GPU of this machine, by the driver that is installed here. Needs
 * libcuda.so.1 and a device; else a sentence says what is missing. For tests/gpu and bench.
 *
 * Threads: one, but for alloc, free, write and read, which make the context their thread's. */
#ifndef TB_TESTS_REAL_DEVICE_H
#define TB_TESTS_REAL_DEVICE_H

#include "intra/cuda/cuda_kernels.h"

struct real_device {
    struct tb_cuda_driver driver;
    struct tb_gpu *gpu;
    struct tb_cuda_device *device;
    CUstream stream;
};

/* NULL: it is there, and its context is the thread's. Else why not. */
const char *real_device_open(struct real_device *d);
void real_device_close(struct real_device *d);

/* Ends the program when the driver refuses. */
CUdeviceptr real_device_alloc(struct real_device *d, size_t bytes);
void real_device_free(struct real_device *d, CUdeviceptr at);
/* Complete at return. */
void real_device_copy(struct real_device *d, void *to, const void *from, size_t bytes);
void real_device_wait(struct real_device *d);

#endif

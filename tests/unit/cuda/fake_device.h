/* fake_device.h - the device that is none (fake_cuda.h) as a device under test. */
#ifndef TB_TESTS_FAKE_DEVICE_H
#define TB_TESTS_FAKE_DEVICE_H

#include "unit/cuda/shard_on_gpu.h"

extern const struct gpu_under_test fake_device;
/* The same with our kernels. */
extern const struct gpu_under_test fake_device_with_kernels;

#endif

/* cuda_image_absent.c - stands in for the kernels where nvcc was not found. */
#include "intra/cuda/cuda_kernels.h"

const void *const tb_cuda_image = NULL;

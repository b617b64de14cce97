/* cuda_image.c - the kernels, as nvcc made them from kernels.cu, inside the library.
 * TB_CUDA_FATBIN is the file. */
#include "intra/cuda/cuda_kernels.h"

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "tb_cuda_fatbin:\n"
        ".incbin \"" TB_CUDA_FATBIN "\"\n"
        ".popsection\n");

extern const char tb_cuda_fatbin[] __attribute__((visibility("hidden")));

const void *const tb_cuda_image = tb_cuda_fatbin;

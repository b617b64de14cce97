/* blake3_avx512.c - sixteen leaves side by side. Compiled for AVX-512. */
#define LANES 16
#include "base/proof/blake3_walk.h"

const struct tb_blake3_kernels tb_blake3_avx512 = {walk_leaves, walk_parents};

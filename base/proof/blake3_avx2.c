/* blake3_avx2.c - eight leaves side by side. Compiled for AVX2. */
#define LANES 8
#include "base/proof/blake3_walk.h"

const struct tb_blake3_kernels tb_blake3_avx2 = {walk_leaves, walk_parents};

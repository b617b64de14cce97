/* blake3_portable.c - the compiler's vectors of four words: SSE2, NEON, or none. */
#define LANES 4
#include "base/proof/blake3_walk.h"

const struct tb_blake3_kernels tb_blake3_portable = {walk_leaves, walk_parents};

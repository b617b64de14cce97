/* blake3_sixteen.c - the code of AVX-512 for any machine: sixteen lanes, which the compiler takes
 * apart where there is no such register. */
#define LANES 16
#include "base/proof/blake3_walk.h"

extern const struct tb_blake3_kernels test_blake3_sixteen;
const struct tb_blake3_kernels test_blake3_sixteen = {walk_leaves, walk_parents};

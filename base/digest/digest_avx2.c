#define XXH_VECTOR 2 /* XXH_AVX2, also where the whole build is told of a processor that has more */
#include "base/digest/digest_xxh3.h"

_Static_assert(XXH_VECTOR == XXH_AVX2, "this file is compiled for AVX2");

const struct tb_digest_kernels tb_digest_avx2 = TB_DIGEST_KERNELS;

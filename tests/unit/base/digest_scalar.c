/* digest_scalar.c - xxHash's plain C, which no processor of ours uses: what vectors are held to. */
#define XXH_VECTOR 0 /* XXH_SCALAR */
#include "base/digest/digest_xxh3.h"

extern const struct tb_digest_kernels test_digest_scalar;
const struct tb_digest_kernels test_digest_scalar = TB_DIGEST_KERNELS;

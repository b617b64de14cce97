#include "base/digest/digest_xxh3.h"

const struct tb_digest_kernels tb_digest_portable = TB_DIGEST_KERNELS;

/* planes_x86.h - the variants that x86-64 has. */
#ifndef TB_BASE_PLANES_X86_H
#define TB_BASE_PLANES_X86_H

#include "base/codec/planes_kernels.h"

extern const struct tb_planes_kernels tb_planes_avx2, tb_planes_avx512;

#endif

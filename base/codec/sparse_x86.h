/* sparse_x86.h - the variants that x86-64 has. */
#ifndef TB_BASE_SPARSE_X86_H
#define TB_BASE_SPARSE_X86_H

#include "base/codec/sparse_kernels.h"

extern const struct tb_sparse_kernels tb_sparse_avx2, tb_sparse_avx512;

#endif

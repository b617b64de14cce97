#include "base/assert.h"
#include "base/codec/sparse_x86.h"

const struct tb_sparse_kernels *tb_sparse_kernels(enum tb_vector vector)
{
    switch (tb_vector_choose(vector)) {
    case TB_VECTOR_AVX2:
        return &tb_sparse_avx2;
    case TB_VECTOR_AVX512:
        return &tb_sparse_avx512;
    default:
        return &tb_sparse_portable;
    }
}

/* vector_spelled.c - a machine that has AVX-512 and NEON, because both are spelled out (spelled/),
 * and no AVX2. */
#include "base/codec/planes_x86.h"
#include "base/codec/sparse_x86.h"
#include "base/vector.h"

bool tb_vector_here(enum tb_vector vector)
{
    return vector != TB_VECTOR_AVX2;
}

const struct tb_planes_kernels *tb_planes_kernels(enum tb_vector vector)
{
    switch (tb_vector_choose(vector)) {
    case TB_VECTOR_NEON:
        return &tb_planes_neon;
    case TB_VECTOR_AVX512:
        return &tb_planes_avx512;
    default:
        return &tb_planes_portable;
    }
}

const struct tb_sparse_kernels *tb_sparse_kernels(enum tb_vector vector)
{
    switch (tb_vector_choose(vector)) {
    case TB_VECTOR_NEON:
        return &tb_sparse_neon;
    case TB_VECTOR_AVX512:
        return &tb_sparse_avx512;
    default:
        return &tb_sparse_portable;
    }
}

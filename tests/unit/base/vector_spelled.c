/* vector_spelled.c - a machine that has AVX-512, because it is spelled out
 * (spelled/immintrin.h), and no AVX2. */
#include "base/codec/planes_x86.h"
#include "base/codec/sparse_x86.h"
#include "base/vector.h"

bool tb_vector_here(enum tb_vector vector)
{
    return vector != TB_VECTOR_AVX2;
}

const struct tb_planes_kernels *tb_planes_kernels(enum tb_vector vector)
{
    return tb_vector_choose(vector) == TB_VECTOR_AVX512 ? &tb_planes_avx512 : &tb_planes_portable;
}

const struct tb_sparse_kernels *tb_sparse_kernels(enum tb_vector vector)
{
    return tb_vector_choose(vector) == TB_VECTOR_AVX512 ? &tb_sparse_avx512 : &tb_sparse_portable;
}

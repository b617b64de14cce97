#include "base/codec/planes_x86.h"

const struct tb_planes_kernels *tb_planes_kernels(enum tb_vector vector)
{
    switch (tb_vector_choose(vector)) {
    case TB_VECTOR_AVX2:
        return &tb_planes_avx2;
    case TB_VECTOR_AVX512:
        return &tb_planes_avx512;
    default:
        return &tb_planes_portable;
    }
}

#include "base/proof/blake3_kernels.h"

const struct tb_blake3_kernels *tb_blake3_kernels(enum tb_vector vector)
{
    switch (tb_vector_choose(vector)) {
    case TB_VECTOR_AVX2:
        return &tb_blake3_avx2;
    case TB_VECTOR_AVX512:
        return &tb_blake3_avx512;
    default:
        return &tb_blake3_portable;
    }
}

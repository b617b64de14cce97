#include "base/codec/sparse_kernels.h"

const struct tb_sparse_kernels *tb_sparse_kernels(enum tb_vector vector)
{
    return tb_vector_choose(vector) == TB_VECTOR_NEON ? &tb_sparse_neon : &tb_sparse_portable;
}

#include "base/codec/sparse_kernels.h"

const struct tb_sparse_kernels *tb_sparse_kernels(enum tb_vector vector)
{
    (void)tb_vector_choose(vector);
    return &tb_sparse_portable;
}

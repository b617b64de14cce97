#include "base/codec/planes_kernels.h"

const struct tb_planes_kernels *tb_planes_kernels(enum tb_vector vector)
{
    (void)tb_vector_choose(vector);
    return &tb_planes_portable;
}

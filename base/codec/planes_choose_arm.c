#include "base/codec/planes_kernels.h"

const struct tb_planes_kernels *tb_planes_kernels(enum tb_vector vector)
{
    return tb_vector_choose(vector) == TB_VECTOR_NEON ? &tb_planes_neon : &tb_planes_portable;
}

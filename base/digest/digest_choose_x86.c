#include "base/digest/digest_kernels.h"

const struct tb_digest_kernels *tb_digest_kernels(enum tb_vector vector)
{
    return tb_vector_choose(vector) == TB_VECTOR_PORTABLE ? &tb_digest_portable : &tb_digest_avx2;
}

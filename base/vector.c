#include "base/vector.h"

#include <stddef.h>

#include "base/assert.h"

static enum tb_vector best_here(void)
{
    if (tb_vector_here(TB_VECTOR_AVX512)) return TB_VECTOR_AVX512;
    if (tb_vector_here(TB_VECTOR_AVX2)) return TB_VECTOR_AVX2;
    return tb_vector_here(TB_VECTOR_NEON) ? TB_VECTOR_NEON : TB_VECTOR_PORTABLE;
}

enum tb_vector tb_vector_choose(enum tb_vector wanted)
{
    static _Atomic int best; /* asked once: in a virtual machine cpuid takes microseconds */
    if (wanted != TB_VECTOR_BEST) {
        TB_ASSERT(tb_vector_here(wanted)); /* for tests and benches */
        return wanted;
    }
    if (best == TB_VECTOR_BEST) best = best_here();
    TB_ASSERT(best != TB_VECTOR_BEST);
    return (enum tb_vector)best;
}

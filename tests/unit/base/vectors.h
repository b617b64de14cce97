/* vectors.h - every set of vector instructions that a variant is written for. A machine has some of
 * them, and the first one always: the others are held to it. */
#ifndef TB_TESTS_VECTORS_H
#define TB_TESTS_VECTORS_H

#include "base/vector.h"

static const enum tb_vector vectors[] = {TB_VECTOR_PORTABLE, TB_VECTOR_NEON, TB_VECTOR_AVX2,
                                         TB_VECTOR_AVX512};

#define VECTORS (sizeof vectors / sizeof vectors[0])

#endif

/* vector.h - which vector instructions this processor and its kernel offer. Code of ours runs on
 * any x86-64 and on other machines too: what is faster on some comes as variants that write the
 * same bytes, and is chosen when it runs. Pure. */
#ifndef TB_BASE_VECTOR_H
#define TB_BASE_VECTOR_H

#include <stdbool.h>

enum tb_vector {
    TB_VECTOR_BEST, /* the last of these that this processor has */
    TB_VECTOR_PORTABLE,
    TB_VECTOR_NEON,   /* of aarch64; digests have it as PORTABLE: compilers and xxHash know it */
    TB_VECTOR_AVX2,   /* with BMI2 and POPCNT */
    TB_VECTOR_AVX512, /* with F, BW and VL, and all of AVX2's */
};

bool tb_vector_here(enum tb_vector vector);
/* `wanted`, or what stands for BEST. Asserts that it is here. */
enum tb_vector tb_vector_choose(enum tb_vector wanted);

#endif

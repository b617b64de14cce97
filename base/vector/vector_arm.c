/* vector_arm.c - NEON is part of aarch64 (Arm Architecture Reference Manual, A1.5): each such
 * processor has it, and nothing has to be asked. */
#include "base/vector.h"

bool tb_vector_here(enum tb_vector vector)
{
    return vector == TB_VECTOR_PORTABLE || vector == TB_VECTOR_BEST || vector == TB_VECTOR_NEON;
}

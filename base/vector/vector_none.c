/* vector_none.c - a machine whose vector instructions we do not use. */
#include "base/vector.h"

bool tb_vector_here(enum tb_vector vector)
{
    return vector == TB_VECTOR_PORTABLE || vector == TB_VECTOR_BEST;
}

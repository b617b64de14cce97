/* system_call_filter_absent.c - a build without libseccomp has no filter, and says so. */
#include "gateway/sandbox/system_call_filter.h"

bool tb_filter_is_built(void)
{
    return false;
}

enum tb_status tb_filter_enter(void)
{
    return TB_NOT_FOUND;
}

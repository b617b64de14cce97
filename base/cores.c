#include "base/cores.h"

#include <sched.h>

uint32_t tb_cores_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int count = CPU_COUNT(&set);
    return count < 1 ? 1 : (uint32_t)count;
}

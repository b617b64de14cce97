/* cores.h - how many cores this process may run on. A shell. */
#ifndef TB_BASE_CORES_H
#define TB_BASE_CORES_H

#include <stdint.h>

/* At least 1; of a process whose affinity cannot be asked, 1. Any thread. */
uint32_t tb_cores_allowed(void);

#endif

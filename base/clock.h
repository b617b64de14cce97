/* clock.h - the clocks of the machine. For shells; cores are told the time. */
#ifndef TB_BASE_CLOCK_H
#define TB_BASE_CLOCK_H

#include "base/time.h"

tb_time_ns tb_clock_now(void);                   /* CLOCK_MONOTONIC */
uint64_t tb_clock_wall_ms(void);                 /* milliseconds since 1970, for people and audit only */
void tb_random_bytes(void *out, uint32_t bytes); /* getrandom; aborts if the kernel has none */

#endif

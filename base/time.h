/* time.h - monotonic time as a type. Cores are told the time; only shells read a clock
 * (clock.h). */
#ifndef TB_BASE_TIME_H
#define TB_BASE_TIME_H

#include <stdint.h>

/* Nanoseconds on a monotonic clock whose zero means nothing. */
typedef uint64_t tb_time_ns;

#define TB_TIME_NEVER UINT64_MAX
#define TB_US(n)      ((tb_time_ns)(n)*1000u)
#define TB_MS(n)      ((tb_time_ns)(n)*1000000u)
#define TB_SECONDS(n) ((tb_time_ns)(n)*1000000000u)

/* a + b, or TB_TIME_NEVER when that is out of range. */
static inline tb_time_ns tb_time_add(tb_time_ns a, tb_time_ns b)
{
    return a > TB_TIME_NEVER - b ? TB_TIME_NEVER : a + b;
}

/* How long from `from` to `to`; 0 if `to` is not later. */
static inline tb_time_ns tb_time_since(tb_time_ns from, tb_time_ns to)
{
    return to > from ? to - from : 0;
}

static inline tb_time_ns tb_time_min(tb_time_ns a, tb_time_ns b)
{
    return a < b ? a : b;
}

#endif

/* rate.h - rates and the hours in which they hold, as people write them:
 *   200Mbit   1500Kbit   none      08:00-18:00 50Mbit      22:30-06:00 none
 * Pure. Bits are decimal (Kbit, Mbit, Gbit are 10^3, 10^6, 10^9); times of day are UTC. */
#ifndef TB_BASE_RATE_H
#define TB_BASE_RATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TB_RATE_WINDOWS_MAX 8
#define TB_RATE_CHARS       48
#define TB_RATE_BIT_MIN     UINT64_C(1000000) /* below it, one record is more than 2 % of a second */
#define TB_RATE_BIT_MAX     UINT64_C(10000000000000)
#define TB_DAY_S            86400u

struct tb_rate_window {
    uint32_t from_s, until_s; /* of the day; until before from: over midnight */
    uint64_t bit_per_s;       /* 0: no limit */
};

/* The rate that holds now: that of the first window that has the time, else the rate. */
struct tb_rate_plan {
    uint64_t bit_per_s; /* 0: no limit */
    uint32_t window_count;
    struct tb_rate_window windows[TB_RATE_WINDOWS_MAX];
};

bool tb_rate_parse(const char *text, uint64_t *bit_per_s_out);
void tb_rate_format(uint64_t bit_per_s, char out[TB_RATE_CHARS]);
bool tb_rate_window_parse(const char *text, struct tb_rate_window *window_out);
void tb_rate_window_format(const struct tb_rate_window *window, char out[TB_RATE_CHARS]);
uint64_t tb_rate_at(const struct tb_rate_plan *plan, uint32_t second_of_day);

#endif

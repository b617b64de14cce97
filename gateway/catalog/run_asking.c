#include "gateway/catalog/run_asking.h"

uint64_t tb_run_asking_left(const struct tb_run_asking *a)
{
    return a->asked & ~a->told;
}

enum tb_run_asking_verdict tb_run_asking_judge(const struct tb_run_asking *a, uint64_t mute, tb_time_ns now)
{
    const uint64_t left = tb_run_asking_left(a);
    if (left == 0 || a->forced) return TB_RUN_ASKING_OPEN;
    if ((left & ~mute) == 0) return TB_RUN_ASKING_REFUSE; /* to wait brings nothing */
    return now < a->until ? TB_RUN_ASKING_WAIT_ON : TB_RUN_ASKING_REFUSE;
}

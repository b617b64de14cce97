/* run_asking.h - may a home whose store is new or restored open a run of a model yet? Pure.
 *
 * Such a home does not know which runs other sites remember. A run below one of those is published
 * for nobody: followers keep the head that they have. So the home asks every peer that may read the
 * model, and opens a run once all of them have answered. It waits for a bounded time and then
 * refuses; an operator overrides that (tombolod --new-home). Kept by
 * tests/unit/catalog/run_asking.c. */
#ifndef TB_GATEWAY_CATALOG_RUN_ASKING_H
#define TB_GATEWAY_CATALOG_RUN_ASKING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

#define TB_RUN_ASKING_WAIT TB_SECONDS(30) /* a peer that lives dials again within seconds */

/* Bit i stands for peer i. */
struct tb_run_asking {
    uint64_t asked;   /* peers that may read the model */
    uint64_t told;    /* those that have answered */
    tb_time_ns until; /* the others are waited for */
    bool forced;      /* by the operator: nobody is waited for */
};

enum tb_run_asking_verdict {
    TB_RUN_ASKING_OPEN,    /* open it */
    TB_RUN_ASKING_WAIT_ON, /* ask again after the next event, and at `until` */
    TB_RUN_ASKING_REFUSE   /* tb_run_asking_left says for lack of which */
};

uint64_t tb_run_asking_left(const struct tb_run_asking *a);
/* mute: peers that are up and whose protocol has no such question. */
enum tb_run_asking_verdict tb_run_asking_judge(const struct tb_run_asking *a, uint64_t mute, tb_time_ns now);

#endif

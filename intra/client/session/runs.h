/* runs.h - the runs that this session opened. */
#ifndef TB_INTRA_CLIENT_RUNS_H
#define TB_INTRA_CLIENT_RUNS_H

#include "intra/session_msg.h"

struct tb_run_opened {
    struct tb_run_opened *next;
    struct tb_name model;
    struct tb_text key;
    struct tb_id run;
    uint64_t order;
};

#endif

/* doctor_show.h - findings as groups of ticks and crosses, or as JSON. */
#ifndef TB_GATEWAY_CLI_DOCTOR_SHOW_H
#define TB_GATEWAY_CLI_DOCTOR_SHOW_H

#include "gateway/cli/doctor/doctor_run.h"
#include "gateway/cli/output.h"

struct tb_doctor_show {
    const struct tb_cli_call *call;
    const struct tb_doctor *d;
    bool json, quiet, unicode;
    json_t *rows; /* json */
    bool lacking; /* no memory for a row */
    uint32_t counts[TB_MARK_COUNT];
    char group[96];               /* the last that was printed */
    char first[TB_FINDING_BYTES]; /* cross */
    struct tb_progress progress;
};

/* False: no memory. */
bool tb_doctor_show_begin(struct tb_doctor_show *s, const struct tb_cli_call *call,
                          const struct tb_doctor *d);
void tb_doctor_show_row(void *show, const struct tb_result *result);
void tb_doctor_show_progress(void *show, uint32_t ended, uint32_t all);
/* The sum, and the exit code. */
enum tb_cli_exit tb_doctor_show_end(struct tb_doctor_show *s);

#endif

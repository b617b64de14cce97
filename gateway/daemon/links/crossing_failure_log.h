/* crossing_failure_log.h - which failures of one version's crossing stand in the log already. Pure.
 *
 * P10: a crossing is tried again each second for as long as it fails. Each failure has its line
 * once, and again after the crossing went on in between. */
#ifndef TB_DAEMON_CROSSING_FAILURE_LOG_H
#define TB_DAEMON_CROSSING_FAILURE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

enum tb_crossing_line { /* the log lines, by their event */
                        TB_CROSSING_LINE_FAILED = 1,
                        TB_CROSSING_LINE_REFUSED,
                        TB_CROSSING_LINE_LAND_REFUSED,
                        TB_CROSSING_LINE_OFFER_FAILED
};
#define TB_CROSSING_TOLD_MAX 8u /* of more than so many that take turns the oldest is told again */
#define TB_CROSSING_NO_PEER  UINT32_MAX

struct tb_crossing_told {
    struct tb_crossing_told_row {
        enum tb_crossing_line line;
        uint32_t peer;
        enum tb_status why;
    } rows[TB_CROSSING_TOLD_MAX];
    uint32_t count, next;
};

/* True: the log was not told yet, and counts as told from now on. */
bool tb_crossing_tell(struct tb_crossing_told *told, enum tb_crossing_line line, uint32_t peer,
                      enum tb_status why);
/* The crossing goes on: what fails from now on is told again. */
void tb_crossing_told_end(struct tb_crossing_told *told);

#endif

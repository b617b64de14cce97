/* stage_times.h - how long versions took in each stage of their way to this site, as histograms.
 *
 * "versions" says of each version how long it is, or was, in a stage (docs/control.md). Each
 * stage that has ended is counted once: here is remembered which were counted. Stages that had
 * ended before the first answer are not counted, so a restart of tombolo-web counts nothing
 * twice.
 *
 * Pure. Bounded by the 1,024 versions of an answer. */
#ifndef TB_GATEWAY_WEB_STAGE_TIMES_H
#define TB_GATEWAY_WEB_STAGE_TIMES_H

#include <jansson.h>
#include <stdint.h>

#include "gateway/web/series.h"

#define TB_STAGE_VERSIONS_MAX 1024u
#define TB_STAGE_BOUNDS       14u

enum tb_stage { TB_STAGE_QUEUED, TB_STAGE_MANIFESTS, TB_STAGE_LANDING, TB_STAGE_ACTIVATING, TB_STAGES };

struct tb_stage_row {
    char uid[33];
    uint8_t counted;        /* bit of each stage */
    double last[TB_STAGES]; /* its seconds in the newest answer; < 0: none */
};

/* Zeroed: nothing was seen yet. */
struct tb_stage_times {
    struct tb_stage_row rows[2][TB_STAGE_VERSIONS_MAX]; /* of this answer and of the one before */
    uint32_t row_count[2];
    uint32_t now;     /* which of the two is the newest */
    uint32_t answers; /* seen; 2: two or more */
    uint64_t counts[TB_STAGES][TB_STAGE_BOUNDS + 1];
    double sums[TB_STAGES];
};

const char *tb_stage_name(enum tb_stage stage);
/* `versions`: the array of an answer. */
void tb_stage_times_see(struct tb_stage_times *times, const json_t *versions);
/* Borrowed from `times`. */
void tb_stage_times_histogram(const struct tb_stage_times *times, enum tb_stage stage,
                              struct tb_series_histogram *histogram_out);

#endif

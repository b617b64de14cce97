/* lag_verdict.h - what the rows of "lag" (docs/control.md) ask of an operator: which is worst, how
 * bad it is for a monitoring system, and what to look at. Pure, over JSON of a stranger: a field
 * that is missing or of another type counts as unknown. */
#ifndef TB_GATEWAY_CLI_LAG_VERDICT_H
#define TB_GATEWAY_CLI_LAG_VERDICT_H

#include <jansson.h>
#include <stdbool.h>

/* Exit codes of monitoring plug-ins. */
enum tb_lag_severity {
    TB_LAG_FINE = 0,
    TB_LAG_WARNING = 1,
    TB_LAG_CRITICAL = 2,
    TB_LAG_NOT_KNOWN = 3,
};

/* Worst first: those behind, by how long; then what is not known; then what does not use what it
 * has; then what an operator wants so; then what is well. Rows that are alike keep their order. */
void tb_lag_verdict_sort(json_t *rows);
/* It lacks versions, and nobody wants it so. */
bool tb_lag_verdict_is_behind(const json_t *row);
/* A row that is behind for `warn_s` seconds or more is a warning, for `crit_s` critical. One that
 * an operator has pinned is fine. */
enum tb_lag_severity tb_lag_verdict_severity(const json_t *row, double warn_s, double crit_s);
/* Critical is worse than not known, and that is worse than a warning. */
enum tb_lag_severity tb_lag_verdict_worse(enum tb_lag_severity a, enum tb_lag_severity b);
/* The next command or place to look at, for a reason's name. NULL: nothing is to be done. */
const char *tb_lag_verdict_advice(const char *reason);

#endif

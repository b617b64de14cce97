/* site_matrix.h - the rows of "lag" as sites by models: which sites and models there are, in an
 * order that does not jump about, and the row of each pair.
 *
 * Pure but for memory, which is bounded by the answer. */
#ifndef TB_GATEWAY_WEB_SITE_MATRIX_H
#define TB_GATEWAY_WEB_SITE_MATRIX_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "gateway/cli/operator/lag_verdict.h"

struct tb_matrix_site {
    const char *name;
    const json_t **cells; /* one for each model; NULL: the site has nothing to do with it */
    enum tb_lag_severity worst;
};

struct tb_site_matrix {
    const char **models; /* by name; borrowed from the answer, like all of it */
    size_t model_count;
    struct tb_matrix_site *sites; /* the worst first; those that are alike by name */
    size_t site_count;
    const json_t **cells;
};

/* `rows`: the array of an answer. False: no memory, and there is nothing to free. */
bool tb_site_matrix_open(struct tb_site_matrix *matrix, const json_t *rows, double warn_s, double crit_s);
void tb_site_matrix_close(struct tb_site_matrix *matrix);

#endif

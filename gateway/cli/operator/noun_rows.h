/* noun_rows.h - the rows of "tombolo sites", "tombolo peers" and so on, from the gateway's answers
 * (docs/control.md), and their columns. Pure, and without a guess: a field that an answer does not
 * have is absent, and one that the gateway does not know now is null.
 *
 * Answers are a stranger's: a field of another type counts as absent. */
#ifndef TB_GATEWAY_CLI_NOUN_ROWS_H
#define TB_GATEWAY_CLI_NOUN_ROWS_H

#include <jansson.h>
#include <stdbool.h>

#include "gateway/cli/operator/table.h"

/* The gateway's answers; one that was not asked for is NULL. */
struct tb_answers {
    json_t *status, *lag, *versions, *streams, *chains;
};

/* A list that is being made. */
struct tb_rows {
    json_t *list;
    bool lacking; /* there was no memory for all of it */
};

struct tb_rows tb_rows_of_sites(const struct tb_answers *a);
struct tb_rows tb_rows_of_peers(const struct tb_answers *a);
struct tb_rows tb_rows_of_models(const struct tb_answers *a);
struct tb_rows tb_rows_of_lag(const struct tb_answers *a);
struct tb_rows tb_rows_of_versions(const struct tb_answers *a);
struct tb_rows tb_rows_of_holders(const struct tb_answers *a); /* a row for each version and site */
struct tb_rows tb_rows_of_streams(const struct tb_answers *a);
struct tb_rows tb_rows_of_workers(const struct tb_answers *a);
struct tb_rows tb_rows_of_serving(const struct tb_answers *a); /* a row for each worker and model */
struct tb_rows tb_rows_of_groups(const struct tb_answers *a);
struct tb_rows tb_rows_of_chains(const struct tb_answers *a);       /* a row for each member */
struct tb_rows tb_rows_of_chain_totals(const struct tb_answers *a); /* a row for each version */

extern const struct tb_column tb_columns_of_sites[], tb_columns_of_peers[], tb_columns_of_models[],
    tb_columns_of_lag[], tb_columns_of_versions[], tb_columns_of_holders[], tb_columns_of_streams[],
    tb_columns_of_workers[], tb_columns_of_serving[], tb_columns_of_groups[], tb_columns_of_chains[],
    tb_columns_of_chain_totals[];

/* ---- a row that is being made; what there is no memory for marks the list ---- */

/* A new object at the end of the list; NULL without memory. */
json_t *tb_row_new(struct tb_rows *rows);
/* Takes `value`; NULL: there was no memory. */
void tb_row_put(struct tb_rows *rows, json_t *row, const char *key, json_t *value);
/* The field `key` of `from`, under its name or as `as`; nothing where it is absent. */
void tb_row_copy(struct tb_rows *rows, json_t *row, const json_t *from, const char *key);
void tb_row_copy_as(struct tb_rows *rows, json_t *row, const char *as, const json_t *value);
/* Likewise of what null means "none" of. */
void tb_row_copy_some(struct tb_rows *rows, json_t *row, const json_t *from, const char *key);
/* NULL or empty: nothing. */
void tb_row_text(struct tb_rows *rows, json_t *row, const char *key, const char *text);
void tb_row_count(struct tb_rows *rows, json_t *row, const char *key, uint64_t count);
/* "R:N" from `run` and `number` of `from`; "?" (null) where they are not integers. */
void tb_row_version(struct tb_rows *rows, json_t *row, const char *key, const json_t *from);
/* "model/R:N", the name of a version or a chain. */
void tb_row_version_name(struct tb_rows *rows, json_t *row, const char *key, const json_t *from);
/* A host by the name that it was given; "boot:1b4e28ba" for one that has only its boot id. */
void tb_row_host(struct tb_rows *rows, json_t *row, const json_t *from);
/* A whole number of percent, rounded down: 100 is all of it. Absent where `all` is 0. */
void tb_row_percent(struct tb_rows *rows, json_t *row, const char *key, uint64_t part, uint64_t all);
/* "a, b": one more of a list, which is whole however long; NULL or empty: nothing. A table cuts it
 * (table.h). */
void tb_row_add(struct tb_rows *rows, json_t *row, const char *key, const char *one);
/* Likewise of an array of strings. */
void tb_row_names(struct tb_rows *rows, json_t *row, const char *key, const json_t *names);

#endif

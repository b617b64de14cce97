/* noun_views.h - every list of the command line: its rows, as made of answers, and its columns. */
#ifndef TB_TESTS_UNIT_CLI_NOUN_VIEWS_H
#define TB_TESTS_UNIT_CLI_NOUN_VIEWS_H

#include "gateway/cli/operator/noun_rows.h"

typedef struct tb_rows (*noun_rows_fn)(const struct tb_answers *a);

static const struct noun_view {
    noun_rows_fn rows;
    const struct tb_column *columns;
} noun_views[] = {
    {tb_rows_of_sites, tb_columns_of_sites},       {tb_rows_of_peers, tb_columns_of_peers},
    {tb_rows_of_models, tb_columns_of_models},     {tb_rows_of_lag, tb_columns_of_lag},
    {tb_rows_of_versions, tb_columns_of_versions}, {tb_rows_of_holders, tb_columns_of_holders},
    {tb_rows_of_streams, tb_columns_of_streams},   {tb_rows_of_workers, tb_columns_of_workers},
    {tb_rows_of_serving, tb_columns_of_serving},   {tb_rows_of_groups, tb_columns_of_groups},
    {tb_rows_of_chains, tb_columns_of_chains},     {tb_rows_of_chain_totals, tb_columns_of_chain_totals},
};

#define NOUN_VIEWS (sizeof noun_views / sizeof *noun_views)

#endif

/* show_table.h - the options of commands that list (-o, --no-headers, --sort, --watch), and what
 * follows from them. */
#ifndef TB_GATEWAY_CLI_SHOW_TABLE_H
#define TB_GATEWAY_CLI_SHOW_TABLE_H

#include "gateway/cli/cli.h"
#include "gateway/cli/operator/noun_rows.h"

/* By the options and the terminal. The width is the terminal's; a file or a pipe has no bound. */
struct tb_table_style tb_cli_table_style(const struct tb_cli_call *call);

/* Sorts by --sort. A column that there is not is TB_CLI_USAGE, and the columns are said. */
enum tb_cli_exit tb_cli_table_sort(const struct tb_cli_call *call, json_t *rows,
                                   const struct tb_column *columns);

/* Sorts and prints; takes the list. Not under --json. */
enum tb_cli_exit tb_cli_table_show(const struct tb_cli_call *call, struct tb_rows rows,
                                   const struct tb_column *columns);

/* Runs `once`. With --watch again every two seconds, until SIGINT or SIGTERM, which is success. A
 * gateway that was there once and is away is waited for. */
enum tb_cli_exit tb_cli_watch(const struct tb_cli_call *call,
                              enum tb_cli_exit (*once)(const struct tb_cli_call *));
/* From here on SIGINT and SIGTERM end a sleep, and what goes on until interrupted. */
void tb_cli_end_on_signals(void);
/* False: it is to end. */
bool tb_cli_sleep(uint32_t ms);

#endif

/* options.h - from argv to a call, by the rows of the table; and the options of a call. */
#ifndef TB_GATEWAY_CLI_OPTIONS_H
#define TB_GATEWAY_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/cli/cli.h"

/* The command that such a word may have been meant for: it begins so, or has one letter other.
 * NULL: none, or several. */
const char *tb_cli_meant(const struct tb_cli_command *commands, const char *word);

/* Which command argv[1..] names, and how many words that took; NULL when there is none. */
const struct tb_cli_command *tb_cli_find(const struct tb_cli_command *commands, int argc, char **argv,
                                         int *words_out);
/* How many words after argv[0] are options, with their values, that stand before the command: 2 of
 * "tombolo --control PATH lag". An option of one name takes the same in each row of the table, so
 * it is understood before its command is. Below 0: -N, argv[N] is an option of no command. "--help"
 * and "-h" are none here. */
int tb_cli_lead(const struct tb_cli_command *commands, int argc, char **argv);
/* Moves these words behind the command's own `words`, to the other options. */
void tb_cli_lead_move(char **argv, int lead, int words);
/* Whether the words ask for JSON: "--json" or "-o json", as far as they are understood. */
bool tb_cli_wants_json(int argc, char **argv);

/* Reads what follows the command's words. "-o" is short for "--output", and "-o json" gives "json"
 * too. On false `error` says what is not understood;
 * *help_out is true for --help. */
bool tb_cli_parse(const struct tb_cli_command *command, int argc, char **argv, struct tb_cli_call *call_out,
                  bool *help_out, char error[256]);

/* Options of a call. The name must be one of the command's. */
bool tb_cli_given(const struct tb_cli_call *call, const char *name);
const char *tb_cli_text(const struct tb_cli_call *call, const char *name); /* NULL when not given */
/* COUNT, SECONDS. */
uint64_t tb_cli_number(const struct tb_cli_call *call, const char *name, uint64_t otherwise);
int64_t tb_cli_signed(const struct tb_cli_call *call, const char *name, int64_t otherwise); /* SIGNED */
/* Whether the command knows such an option. */
bool tb_cli_has(const struct tb_cli_call *call, const char *name);

/* "12" or "3:12": run 0 when none is named. False for anything else. */
bool tb_cli_version_of(const char *text, uint64_t *run_out, uint64_t *number_out);

#endif

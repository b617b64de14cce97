/* manual.h - what the table says, for a person who asks. */
#ifndef TB_GATEWAY_CLI_MANUAL_H
#define TB_GATEWAY_CLI_MANUAL_H

#include <stdbool.h>
#include <stdio.h>

#include "gateway/cli/cli.h"

void tb_cli_help(FILE *to, const struct tb_cli_command *commands);
void tb_cli_help_command(FILE *to, const struct tb_cli_command *command);
/* Whether it is the first of two words of some command. */
bool tb_cli_is_group(const struct tb_cli_command *commands, const char *word);
/* Help of every command of that group; false when there is none. */
bool tb_cli_help_group(FILE *to, const struct tb_cli_command *commands, const char *word);

#endif

/* commands.h - the table of commands, and those of them that no room of their own has:
 * operator_commands.h, pki_commands.h and config_commands.h have the others. */
#ifndef TB_GATEWAY_CLI_COMMANDS_H
#define TB_GATEWAY_CLI_COMMANDS_H

#include <jansson.h>

#include "gateway/cli/cli.h"
#include "gateway/cli/operator/table.h"

/* The table; ends with a row without a name. */
const struct tb_cli_command *tb_cli_commands(void);

enum tb_cli_exit tb_cli_publish(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_subscribe(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_demo(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_manual(const struct tb_cli_call *call);

#endif

/* config_commands.h - the commands that read and write configurations. */
#ifndef TB_GATEWAY_CLI_CONFIG_COMMANDS_H
#define TB_GATEWAY_CLI_CONFIG_COMMANDS_H

#include "gateway/cli/cli.h"

enum tb_cli_exit tb_cli_init(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_config_check(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_config_show(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_config_diff(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_config_explain(const struct tb_cli_call *call);

#endif

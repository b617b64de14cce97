/* operator_commands.h - the commands that ask a gateway's control socket (docs/control.md). */
#ifndef TB_GATEWAY_CLI_OPERATOR_COMMANDS_H
#define TB_GATEWAY_CLI_OPERATOR_COMMANDS_H

#include "gateway/cli/cli.h"

enum tb_cli_exit tb_cli_withdraw(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pin(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_unpin(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_rollback(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pause(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_resume(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_bugreport(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_gc(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_status(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_drain(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_events(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_limit(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_verify(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_adopt(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_audit(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_lag(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_reload(const struct tb_cli_call *call);

#endif

/* pki_commands.h - the commands that make, sign, renew, revoke and show certificates. */
#ifndef TB_GATEWAY_CLI_PKI_COMMANDS_H
#define TB_GATEWAY_CLI_PKI_COMMANDS_H

#include <stdbool.h>

#include "gateway/cli/cli.h"

enum tb_cli_exit tb_cli_pki_init(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_issue(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_show(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_request(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_sign(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_renew(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_intermediate(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_rollover(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_revoke(const struct tb_cli_call *call);
/* The folder and those above it, open to their owner alone where they are new; errno on false. */
bool tb_cli_make_folder(const char *path);

#endif

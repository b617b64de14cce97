/* pki_options.h - the options of each command `tombolo pki`, for the table of commands. */
#ifndef TB_GATEWAY_CLI_PKI_OPTIONS_H
#define TB_GATEWAY_CLI_PKI_OPTIONS_H

#include "gateway/cli/cli.h"

/* Each list ends with a row without a name. */
extern const struct tb_cli_option tb_cli_pki_init_options[];
extern const struct tb_cli_option tb_cli_pki_issue_options[];
extern const struct tb_cli_option tb_cli_pki_show_options[];
extern const struct tb_cli_option tb_cli_pki_request_options[];
extern const struct tb_cli_option tb_cli_pki_sign_options[];
extern const struct tb_cli_option tb_cli_pki_renew_options[];
extern const struct tb_cli_option tb_cli_pki_intermediate_options[];
extern const struct tb_cli_option tb_cli_pki_rollover_options[];
extern const struct tb_cli_option tb_cli_pki_revoke_options[];

#endif

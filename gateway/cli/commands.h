/* commands.h - the table of commands, and what runs for each row. */
#ifndef TB_GATEWAY_CLI_COMMANDS_H
#define TB_GATEWAY_CLI_COMMANDS_H

#include <jansson.h>

#include "gateway/cli/cli.h"
#include "gateway/cli/table.h"

/* The table; ends with a row without a name. */
const struct tb_cli_command *tb_cli_commands(void);

/* The commands, each in the file of its name. */
enum tb_cli_exit tb_cli_publish(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_subscribe(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_withdraw(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pin(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_unpin(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_rollback(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_list(const struct tb_cli_call *call); /* of its name */
enum tb_cli_exit tb_cli_describe(const struct tb_cli_call *call);
/* For completion: the rows of a list, by its name or that of one of it. `model` NULL: of all. NULL:
 * there is no such list, or the gateway does not answer. The caller's. */
json_t *tb_cli_noun_rows(const struct tb_cli_call *call, const char *noun, const char *model);
/* The columns of a list, or of "lag"; NULL: there is no such list. */
const struct tb_column *tb_cli_noun_columns(const char *list);
enum tb_cli_exit tb_cli_status(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_drain(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_limit(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_verify(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_adopt(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_events(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_audit(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_lag(const struct tb_cli_call *call);
/* The folder and those above it, open to their owner alone where they are new; errno on false. */
bool tb_cli_make_folder(const char *path);
enum tb_cli_exit tb_cli_demo(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_init(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_init(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_issue(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_show(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_request(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_sign(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_renew(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_intermediate(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_rollover(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_pki_revoke(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_config_check(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_config_show(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_config_diff(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_reload(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_config_explain(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_manual(const struct tb_cli_call *call);

#endif

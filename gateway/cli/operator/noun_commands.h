/* noun_commands.h - `tombolo sites`, `peers` and so on list, and `tombolo describe` shows one. */
#ifndef TB_GATEWAY_CLI_NOUN_COMMANDS_H
#define TB_GATEWAY_CLI_NOUN_COMMANDS_H

#include <jansson.h>

#include "gateway/cli/cli.h"
#include "gateway/cli/operator/table.h"

enum tb_cli_exit tb_cli_list(const struct tb_cli_call *call); /* of its name */
enum tb_cli_exit tb_cli_describe(const struct tb_cli_call *call);

/* For completion: the rows of a list, by its name or that of one of it. `model` NULL: of all. NULL:
 * there is no such list, or the gateway does not answer. The caller's. */
json_t *tb_cli_noun_rows(const struct tb_cli_call *call, const char *noun, const char *model);
/* The columns of a list, or of "lag"; NULL: there is no such list. */
const struct tb_column *tb_cli_noun_columns(const char *list);

#endif

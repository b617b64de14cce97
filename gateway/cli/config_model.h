/* config_model.h - tombolo config show --model: which row of a configuration counts for a model. */
#ifndef TB_CLI_CONFIG_MODEL_H
#define TB_CLI_CONFIG_MODEL_H

#include "gateway/cli/cli.h"
#include "gateway/config/config.h"

/* `file`: of the configuration; NULL: a gateway runs with it. */
enum tb_cli_exit tb_cli_config_model(const struct tb_cli_call *call, const struct tb_config *config,
                                     const char *file);

#endif

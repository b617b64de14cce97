/* version_commands.h - what an operator decides about a version at this site, by the control socket
 * (docs/control.md). */
#ifndef TB_DAEMON_VERSION_COMMANDS_H
#define TB_DAEMON_VERSION_COMMANDS_H

#include <jansson.h>

#include "tombolo/status.h"

enum tb_status tb_withdraw_command(void *user, const json_t *request, json_t *reply, char *error);

#endif

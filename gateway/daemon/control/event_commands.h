/* event_commands.h - "events": lines of the log, by id. */
#ifndef TB_DAEMON_EVENT_COMMANDS_H
#define TB_DAEMON_EVENT_COMMANDS_H

#include <jansson.h>

#include "tombolo/status.h"

enum tb_status tb_events_command(void *user, const json_t *request, json_t *reply, char *error);

#endif

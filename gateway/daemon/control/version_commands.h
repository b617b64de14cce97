/* version_commands.h - an operator's decisions about a version at this site, by the control socket
 * (docs/control.md). */
#ifndef TB_DAEMON_VERSION_COMMANDS_H
#define TB_DAEMON_VERSION_COMMANDS_H

#include <jansson.h>

#include "tombolo/status.h"

struct tb_daemon;

enum tb_status tb_withdraw_command(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_pin_command(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_unpin_command(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_rollback_command(void *user, const json_t *request, json_t *reply, char *error);

/* The reply of a command goes out once all that was written before is on disk: TB_AGAIN.
 * TB_SITE_STORE, TB_SITE_NOMEM. */
enum tb_status tb_answer_when_saved(struct tb_daemon *d);

#endif

/* backup_commands.h - the command `backup`: a consistent copy of the store, as a descriptor beside
 * the reply. */
#ifndef TB_DAEMON_BACKUP_COMMANDS_H
#define TB_DAEMON_BACKUP_COMMANDS_H

#include "gateway/daemon/control/control.h"

struct tb_daemon;

enum tb_status tb_audited_backup(void *user, const json_t *request, json_t *reply, char *error);
/* The dispatcher's: the next step of a copy, or its end. */
void tb_backup_commands_follow(struct tb_daemon *d);
/* The writer has ended. */
void tb_backup_commands_close(struct tb_daemon *d);

#endif

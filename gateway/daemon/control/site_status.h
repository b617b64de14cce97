/* site_status.h - the status page, versions, and the commands of the control socket. */
#ifndef TB_DAEMON_SITE_STATUS_H
#define TB_DAEMON_SITE_STATUS_H

#include <jansson.h>

#include "gateway/daemon/control/control.h"

struct tb_daemon;

extern const struct tb_control_command tb_status_commands[];
/* Of control.read: the same names; each one that changes anything is refused. */
extern const struct tb_control_command tb_status_reading_commands[];
json_t *tb_status_site(struct tb_daemon *d); /* new reference; NULL: no memory */

#endif

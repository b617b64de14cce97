/* usage_status.h - how full each table is. */
#ifndef TB_DAEMON_USAGE_STATUS_H
#define TB_DAEMON_USAGE_STATUS_H

#include <jansson.h>

struct tb_daemon;

json_t *tb_status_tables(struct tb_daemon *d); /* NULL: no memory */
void tb_usage_tick(struct tb_daemon *d);       /* each second: a table that refused rows is told of */

#endif

/* group_status.h - reader groups of this site, for "status". */
#ifndef TB_DAEMON_GROUP_STATUS_H
#define TB_DAEMON_GROUP_STATUS_H

#include <jansson.h>
#include <stdint.h>

struct tb_daemon;

/* NULL: no memory. */
json_t *tb_status_groups(struct tb_daemon *d);
uint32_t tb_status_group_count(const struct tb_daemon *d); /* also of those that are left out above */

#endif

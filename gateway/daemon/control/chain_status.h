/* chain_status.h - the chains of workers, as they are. */
#ifndef TB_DAEMON_CHAIN_STATUS_H
#define TB_DAEMON_CHAIN_STATUS_H

#include <jansson.h>

#include "gateway/catalog/groups.h"

struct tb_daemon;

enum tb_status tb_status_chains(void *user, const json_t *request, json_t *reply, char *error);
/* Null where its uid is zero. New reference; NULL: no memory. */
json_t *tb_status_update(const struct tb_catalog_update *update);

#endif

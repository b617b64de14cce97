/* session_plan.h - the catalog's plans: a reader is told its source. */
#ifndef TB_DAEMON_SESSION_PLAN_H
#define TB_DAEMON_SESSION_PLAN_H

#include "gateway/catalog/todos.h"

struct tb_daemon;

/* TB_CATALOG_PLAN: PLAN is sent at once where this gateway is the source, and once the source's
 * owner has answered GRANT where a worker is. */
void tb_worker_plan(struct tb_daemon *d, const struct tb_catalog_todo *todo);

#endif

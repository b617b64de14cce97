/* session_plan.h - PLAN, once the source's owner has answered GRANT. */
#ifndef TB_DAEMON_SESSION_PLAN_H
#define TB_DAEMON_SESSION_PLAN_H

#include "base/net/wire.h"
#include "base/time.h"
#include "gateway/catalog/todos.h"

struct tb_daemon;
struct tb_worker_session;

/* A source's owner that has not answered GRANT by then: a reader is given another plan, a rank
 * at home is asked again. */
#define TB_GRANT_WAIT_NS TB_SECONDS(1)

/* PLAN once the source's owner has answered GRANT */
void tb_session_plan(struct tb_daemon *d, const struct tb_catalog_todo *todo);
enum tb_status tb_session_granted_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
void tb_plan_waits_tick(struct tb_daemon *d, tb_time_ns now);
/* Calls `each` with the session of who waits for each of them. */
void tb_plan_waits_each(const struct tb_daemon *d, void (*each)(void *user, const struct tb_id *reader),
                        void *user);
void tb_plan_waits_free(struct tb_daemon *d);

#endif

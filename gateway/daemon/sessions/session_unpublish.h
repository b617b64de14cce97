/* session_unpublish.h - UNPUBLISH, and what the catalog says of it. */
#ifndef TB_DAEMON_SESSION_UNPUBLISH_H
#define TB_DAEMON_SESSION_UNPUBLISH_H

#include "base/net/wire.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/todos.h"

struct tb_daemon;
struct tb_worker_session;

/* Anything but TB_OK ends the session, as the peer broke the protocol. */
enum tb_status tb_worker_unpublish_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
/* TB_CATALOG_UNPUBLISHED: requests that wait for it are answered. */
void tb_worker_unpublished(struct tb_daemon *d, const struct tb_catalog_todo *todo);
uint64_t tb_unpublishes_max(const struct tb_daemon *d);

#endif

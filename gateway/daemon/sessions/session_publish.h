/* session_publish.h - runs and versions that publishers open. Of a frame: anything but TB_OK ends
 * the session, as the peer broke the protocol. */
#ifndef TB_DAEMON_SESSION_PUBLISH_H
#define TB_DAEMON_SESSION_PUBLISH_H

#include "base/net/wire.h"

struct tb_worker_session;

enum tb_status tb_worker_run_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_version_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);

#endif

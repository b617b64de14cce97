/* session_repair.h - what workers say of damaged chunks. Of a frame: anything but TB_OK ends the
 * session, as the peer broke the protocol. */
#ifndef TB_DAEMON_SESSION_REPAIR_H
#define TB_DAEMON_SESSION_REPAIR_H

#include "base/net/wire.h"

struct tb_id;
struct tb_worker_session;

enum tb_status tb_worker_chunk_bad_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_doubted_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
/* The worker's staging is whole: chunks of it that were damaged are right again. */
void tb_worker_staging_whole(struct tb_worker_session *s, const struct tb_id *uid);
/* May say that a hop of that version was lost, or a chunk of it bad. A refusal is counted and
 * logged. */
bool tb_worker_may_report(struct tb_worker_session *s, const struct tb_id *uid);

#endif

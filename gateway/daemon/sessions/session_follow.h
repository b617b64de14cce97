/* session_follow.h - what followers ask, and what the catalog tells them. Of a frame: anything
 * but TB_OK ends the session, as the peer broke the protocol. */
#ifndef TB_DAEMON_SESSION_FOLLOW_H
#define TB_DAEMON_SESSION_FOLLOW_H

#include "base/net/wire.h"
#include "gateway/catalog/todos.h"

struct tb_daemon;
struct tb_worker_session;

enum tb_status tb_session_subscribe_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_unsubscribe_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_wait_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_wait_site_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_cancel_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_stage_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_export_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_hop_lost_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_progress_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_activate_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_activated_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_updated_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_release_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_status_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
void tb_session_tell(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_session_go(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_session_answer(struct tb_daemon *d, const struct tb_catalog_todo *todo);

#endif

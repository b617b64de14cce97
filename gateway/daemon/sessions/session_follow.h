/* session_follow.h - what followers ask, and what the catalog tells them. Of a frame: anything
 * but TB_OK ends the session, as the peer broke the protocol. */
#ifndef TB_DAEMON_SESSION_FOLLOW_H
#define TB_DAEMON_SESSION_FOLLOW_H

#include "base/net/wire.h"
#include "gateway/catalog/todos.h"

struct tb_daemon;
struct tb_worker_session;

enum tb_status tb_worker_subscribe_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_unsubscribe_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_wait_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_wait_site_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_cancel_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_stage_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_export_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_hop_lost_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_progress_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_activate_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_activated_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_updated_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_release_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_worker_status_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);

#endif

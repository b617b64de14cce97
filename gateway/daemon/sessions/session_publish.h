/* session_publish.h - what publishers ask: runs, versions, seals, unpublish. Of a frame:
 * anything but TB_OK ends the session, as the peer broke the protocol. */
#ifndef TB_DAEMON_SESSION_PUBLISH_H
#define TB_DAEMON_SESSION_PUBLISH_H

#include "base/ident.h"
#include "base/net/wire.h"
#include "base/time.h"
#include "gateway/catalog/todos.h"

struct tb_daemon;
struct tb_worker_session;

/* A SEAL that waits for room: its frame, to be handled again. */
struct tb_parked_seal {
    struct tb_parked_seal *next;
    struct tb_id session;
    struct tb_id uid;
    uint32_t shard;
    uint64_t request;
    tb_time_ns deadline;
    uint32_t bytes;
    uint8_t payload[];
};

/* session_publish.c and session_follow.c: anything but TB_OK ends the session (the peer broke
 * the protocol). */
enum tb_status tb_session_run_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_version_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_seal_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
enum tb_status tb_session_unpublish_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
void tb_seals_retry(struct tb_daemon *d); /* after something was evicted */
void tb_seals_free(struct tb_daemon *d);
uint64_t tb_unpublishes_max(const struct tb_daemon *d);
uint64_t tb_seals_max(void); /* bytes of parked ones */
void tb_session_unpublished(struct tb_daemon *d, const struct tb_catalog_todo *todo);

#endif

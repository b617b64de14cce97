/* session_seal.h - SEAL, and the seals that wait for room. */
#ifndef TB_DAEMON_SESSION_SEAL_H
#define TB_DAEMON_SESSION_SEAL_H

#include "base/ident.h"
#include "base/net/wire.h"
#include "base/time.h"

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

/* Anything but TB_OK ends the session, as the peer broke the protocol. */
enum tb_status tb_worker_seal_frame(struct tb_worker_session *s, struct tb_wire_frame *frame);
void tb_seals_retry(struct tb_daemon *d); /* after something was evicted */
/* The rank takes the shard back, or all: a seal that waits for room is answered TB_CANCELLED, as
 * it would name an export that is closed. True: there was one. */
bool tb_seals_unpark(struct tb_worker_session *s, const struct tb_id *uid, uint32_t shard);
void tb_seals_free(struct tb_daemon *d);
uint64_t tb_seals_max(void); /* bytes of all that wait */

#endif

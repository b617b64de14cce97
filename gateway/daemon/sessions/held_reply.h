/* held_reply.h - a reply to a worker that waits until what its request made is on the disk. */
#ifndef TB_DAEMON_HELD_REPLY_H
#define TB_DAEMON_HELD_REPLY_H

#include "gateway/daemon/persist.h"
#include "intra/session_msg.h"

struct tb_daemon;
struct tb_held_reply;
struct tb_worker_session;

typedef void (*tb_held_send_fn)(struct tb_worker_session *s, const struct tb_held_reply *h);

struct tb_held_reply {
    struct tb_held held;  /* by tb_reply_when_saved, like the next */
    struct tb_id session; /* it may be gone by then */
    uint64_t request;
    tb_held_send_fn send; /* the request's rows are on the disk */
    /* They are, also where the session is gone; NULL: nothing to do. */
    void (*saved)(struct tb_daemon *d, const struct tb_held_reply *h);
    /* They are not: the worker is told the status behind this. NULL: nothing else to do. */
    void (*failed)(struct tb_worker_session *s, const struct tb_held_reply *h, enum tb_status status);
    enum tb_status status; /* of a seal */
    uint32_t shard;
    struct tb_name model; /* of a run */
    union {
        struct tb_msg_run run;
        struct tb_msg_version version;
    };
};

/* Copies *reply. Where too many replies wait already, the worker is told TB_SITE_NOMEM at once. */
void tb_reply_when_saved(struct tb_worker_session *s, const struct tb_held_reply *reply);

#endif

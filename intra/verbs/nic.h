/* nic.h - the RDMA devices of this machine as a fabric uses them: rails, events, queues.
 * Inside intra/verbs only.
 *
 * A queue is one queue pair with its completion queue. Completions are waited for by event, or
 * looked for while they come quickly (poll_spin.h). Events of rdma_cm about a connection go to the
 * end that owns its id.
 *
 * Threads: the fabric's. */
#ifndef TB_INTRA_VERBS_NIC_H
#define TB_INTRA_VERBS_NIC_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/queue.h>

#include "intra/verbs/pinned_regions.h"
#include "intra/verbs/poll_spin.h"
#include "intra/verbs/rails.h"
#include "intra/verbs_part.h"

#define TB_VERBS_NICS_MAX  16u
#define TB_VERBS_MAGIC     UINT64_C(0x3176006f6c6f626d) /* "mbolo\0v1" */
#define TB_VERBS_HELLO     24u                          /* what a reader shows: the magic and the secret */
#define TB_VERBS_RD_ATOMIC 16u /* READs that a NIC has on the wire, where it can so many */

struct tb_verbs_nic {
    struct tb_verbs *v;
    struct ibv_context *context; /* librdmacm's: the process's */
    struct ibv_context *watch;   /* ours, for the device's events */
    struct ibv_pd *pd;           /* of our readers: their targets */
    struct ibv_comp_channel *channel;
    uv_poll_t completions, events;
    struct ibv_device_attr attr;
    bool dead; /* DEVICE_FATAL: nothing of it is used any more until the process starts again */
};

struct tb_verbs_queue {
    LIST_ENTRY(tb_verbs_queue) link;
    struct tb_verbs *v;
    struct tb_verbs_nic *nic; /* NULL: not open */
    struct rdma_cm_id *id;    /* has the queue pair */
    struct ibv_cq *cq;
    struct tb_spin spin;
    uint32_t posted; /* work requests whose completion has not come */
    bool looking;
    bool failed; /* the queue pair is in error */
    bool ending, settled;
    uv_timer_t drain;
    const struct tb_verbs_queue_ops *ops;
};
/* Inside any of them any call on the queue is allowed but abandon. */
struct tb_verbs_queue_ops {
    void (*on_completion)(struct tb_verbs_queue *q, const struct ibv_wc *wc); /* not after end */
    void (*on_dead)(struct tb_verbs_queue *q);  /* its device is gone; likewise */
    void (*on_ended)(struct tb_verbs_queue *q); /* nothing is left of it: its memory is the owner's */
};

/* The context of an id points here. The event was given back, so the id may be destroyed inside. */
struct tb_verbs_cm {
    void (*on_event)(struct tb_verbs_cm *cm, enum rdma_cm_event_type event, int status);
};

struct tb_verbs {
    struct tb_fabric *fabric;
    struct rdma_event_channel *channel;
    uv_poll_t cm_poll;
    uv_idle_t look;
    uint32_t looking;
    uint64_t looks; /* at completion queues, since the beginning: what an idle fabric hardly does */
    struct rdma_cm_id *listener;
    uint16_t port;
    struct tb_verbs_nic nics[TB_VERBS_NICS_MAX];
    uint32_t nic_count;
    struct tb_rails rails;
    struct tb_pinned pinned; /* any thread */
    LIST_HEAD(, tb_verbs_queue) queues;
    LIST_HEAD(, tb_verbs_guest) guests;
};

/* Any time. NULL: it is not one of ours, or dead. */
struct tb_verbs_nic *tb_verbs_nic_of(struct tb_verbs *v, const struct ibv_context *context);

void tb_verbs_queue_init(struct tb_verbs_queue *q, struct tb_verbs *v, const struct tb_verbs_queue_ops *ops);
/* Opens a queue pair on the id in that domain; reads_max 0: for a peer's READs alone. TB_SITE_IO
 * with errno: the id is still the caller's; else it is the queue's. */
TB_MUST_USE enum tb_status tb_verbs_queue_open(struct tb_verbs_queue *q, struct tb_verbs_nic *nic,
                                               struct rdma_cm_id *id, struct ibv_pd *domain,
                                               uint32_t reads_max);
/* Work requests have been posted: their completions are waited for from now on. */
void tb_verbs_queue_posted(struct tb_verbs_queue *q, uint32_t count);
void tb_verbs_queue_fail(struct tb_verbs_queue *q); /* moves it to error: what is posted is flushed */
/* One that came to nothing, with nothing posted: it may be opened again. */
void tb_verbs_queue_abandon(struct tb_verbs_queue *q);
/* Moves it to error, waits until everything posted has completed or was flushed, destroys the queue
 * pair, and tells on_ended, outside of this call. Where no flush comes within a second (a device
 * that died) destroying is the drain: when it returns, the NIC has let go of the memory. */
void tb_verbs_queue_end(struct tb_verbs_queue *q);

/* Handles an event of the device. Tests call it for events that a device cannot be made to
 * raise. */
void tb_verbs_device_event(struct tb_verbs_nic *nic, enum ibv_event_type event, uint32_t port);

bool tb_verbs_address_to(const struct tb_rail_address *rail, uint16_t port, struct sockaddr_storage *out);
bool tb_verbs_address_from(const struct sockaddr *address, struct tb_rail_address *rail_out);

/* verbs_door.c: somebody wants to connect. */
void tb_verbs_guest_knocks(struct tb_verbs *v, struct rdma_cm_id *id, const uint8_t *hello, uint32_t bytes,
                           uint32_t reads);

#endif

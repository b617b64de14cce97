/* fabric_inside.h - what the files of the fabric share: its thread, its queue, its
 * pace. Inside intra/ only.
 *
 * Threads: fields are the loop thread's unless said otherwise. */
#ifndef TB_INTRA_FABRIC_INSIDE_H
#define TB_INTRA_FABRIC_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <uv.h>

#include "base/codec/codec.h"
#include "base/net/chan.h"
#include "intra/fabric/exports.h"
#include "intra/hop/token_bucket.h"
#include "intra/pool.h"
#include "intra/transport/transport.h"

/* Work for the loop thread, in memory of the poster's. */
struct tb_fabric_job {
    void (*run)(struct tb_fabric_job *job);
    struct tb_fabric_job *next;
};

/* One direction of the emulated NIC. A waiter that gets no bytes stands in line, and the alarm
 * serves the line. */
struct tb_pace_waiter {
    TAILQ_ENTRY(tb_pace_waiter) link;
    void (*ready)(struct tb_pace_waiter *waiter); /* a grant is there: move on */
    bool waiting;
    size_t granted; /* bytes that are its own to use */
};
struct tb_pace_gate {
    struct tb_pace pace;
    TAILQ_HEAD(, tb_pace_waiter) line;
};

struct tb_door;
struct tb_door_peer;
struct tb_verbs;

struct tb_fabric {
    struct tb_name host;
    struct tb_fabric_endpoint endpoint;
    bool trusted;
    uv_loop_t loop;
    uv_async_t posted;
    uv_poll_t alarm;
    int alarm_fd;
    tb_time_ns alarm_at;
    pthread_t thread;
    struct tb_tls *tls; /* any thread */
    struct tb_pool *pool;
    struct tb_codec **codecs; /* one a pool thread */
    struct tb_pace_gate in, out;
    struct tb_door *door;
    struct tb_verbs *verbs; /* NULL: none, as no_verbs says */
    const char *no_verbs;
    uint64_t nic_bytes_per_s;
    uint32_t trays; /* that the door's readers have */
    /* Openings of trays, the first of them on the pool. They outlive their hops where a driver
     * stands still, and keep one thread of the pool then, not all. */
    STAILQ_HEAD(tb_shm_tray_openings, tb_shm_tray_opening) openings;
    LIST_HEAD(, tb_hop) hops;
    bool ending;
    tb_time_ns checked_at;
    /* Of the door's readers; the fabric's thread writes, any reads. */
    atomic_uint readers, readers_most;
    atomic_ullong readers_refused;

    pthread_mutex_t lock; /* of what follows; any thread */
    pthread_cond_t changed;
    struct tb_fabric_job *first;
    struct tb_fabric_job **last;
    struct tb_exports exports;
};

/* ---- fabric_queue.c ---- */

/* Any thread. The job runs on the loop thread, in order, never inside this call. */
void tb_fabric_post(struct tb_fabric *f, struct tb_fabric_job *job);
/* The same, as the last of what a job of the pool does. Each wake-up costs about a tenth of what a
 * chunk of 1 MiB does: while more jobs wait there than it has threads, the loop is not woken; the
 * next one that ends will. */
void tb_fabric_post_from_pool(struct tb_fabric *f, struct tb_fabric_job *job);
/* Any thread but the loop's: runs fn there and returns when it has. */
void tb_fabric_call(struct tb_fabric *f, void (*fn)(struct tb_fabric *f, void *arg), void *arg);
bool tb_fabric_on_thread(const struct tb_fabric *f);
/* Loop thread: runs the jobs that were posted before this call. */
void tb_fabric_run_posted(struct tb_fabric *f);

/* Loop thread: hops and door are polled at that time at the latest. */
void tb_fabric_wake_at(struct tb_fabric *f, tb_time_ns at);
void tb_fabric_disarm(struct tb_fabric *f); /* the alarm rang: it is set anew */

/* ---- pace_gate.c ---- */

/* How much of `want` may go now; 0: the waiter stands in line, and ready is called. */
size_t tb_pace_gate_take(struct tb_fabric *f, struct tb_pace_gate *gate, struct tb_pace_waiter *waiter,
                         size_t want);
void tb_pace_gate_leave(struct tb_pace_gate *gate, struct tb_pace_waiter *waiter);
/* Grants bytes to those in line; when the next of them can have some. */
tb_time_ns tb_pace_gate_serve(struct tb_pace_gate *gate, tb_time_ns now);

/* ---- door.c ---- */

enum tb_status tb_door_open(struct tb_fabric *f, const char *tcp_address, struct tb_door **door_out);
/* Listeners go, peers are cut off; they are gone when tb_door_quiet. */
void tb_door_close(struct tb_door *door);
bool tb_door_quiet(const struct tb_door *door);
void tb_door_free(struct tb_door *door);
extern const uint32_t tb_door_readers_max;
void tb_door_revoke(struct tb_door *door, const struct tb_export *export); /* ends the hops into it */
tb_time_ns tb_door_poll(struct tb_door *door, tb_time_ns now);

/* ---- fabric_check.c ---- */

/* Asserts what holds of hops, door, exports and gates between two turns. */
void tb_fabric_check(struct tb_fabric *f);

/* ---- hop_check.c ---- */

void tb_hop_check(const struct tb_hop *hop);

/* ---- hop_run.c ---- */

tb_time_ns tb_hop_poll(struct tb_hop *hop, tb_time_ns now);
/* Closes and frees it as soon as that can be; then it leaves the list. */
void tb_hop_orphan(struct tb_hop *hop);
struct tb_hop *tb_hop_after(struct tb_hop *hop);

#endif

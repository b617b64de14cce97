/* fabric_inside.h - what the files of the fabric share: its thread and its state. Inside intra/
 * only.
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
#include "intra/fabric/pace_gate.h"
#include "intra/hop/token_bucket.h"
#include "intra/pool.h"
#include "intra/transport/transport.h"

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
    /* Memory that hops here lend to their sources, and that the door's readers lend to us: now, and
     * at most so far. The fabric's thread writes, any reads. */
    atomic_ullong lent_bytes, lent_most, borrowed_bytes, borrowed_most;
    /* Openings of trays, the first of them on the pool. They outlive their hops where a driver
     * stands still, and keep one thread of the pool then, not all. */
    STAILQ_HEAD(tb_shm_tray_openings, tb_shm_tray_opening) openings;
    LIST_HEAD(, tb_hop) hops;
    bool ending;
    tb_time_ns checked_at;
    /* Of the door's readers; the fabric's thread writes, any reads. */
    atomic_uint readers, readers_most;
    atomic_ullong readers_refused, readers_spent, readers_denied;

    pthread_mutex_t lock; /* of what follows; any thread */
    pthread_cond_t changed;
    struct tb_fabric_job *first;
    struct tb_fabric_job **last;
    struct tb_exports exports;
    uint64_t garbled[TB_FABRIC_GARBLED_MAX]; /* owners that nobody asked for yet */
    uint32_t garbled_count;
};

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

static inline void tb_fabric_lent_add(atomic_ullong *used, atomic_ullong *most, uint64_t bytes)
{
    const uint64_t now = atomic_fetch_add_explicit(used, bytes, memory_order_relaxed) + bytes;
    if (now > atomic_load_explicit(most, memory_order_relaxed))
        atomic_store_explicit(most, now, memory_order_relaxed);
}

#endif

/* fabric_queue.h - jobs for the fabric's thread, and when it wakes. Inside intra/ only. */
#ifndef TB_INTRA_FABRIC_QUEUE_H
#define TB_INTRA_FABRIC_QUEUE_H

#include <stdbool.h>

#include "base/time.h"

struct tb_fabric;

/* Work for the loop thread, in memory of the poster's. */
struct tb_fabric_job {
    void (*run)(struct tb_fabric_job *job);
    struct tb_fabric_job *next;
};

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

#endif

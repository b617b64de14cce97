/* cuda_queue.h - chunks wait for a device together: a thread of the queue's gathers them, puts a
 * batch on each of the two lanes, and answers when a batch is done. Inside intra/cuda only. A
 * shell.
 *
 * For a device a hundred chunks take about as long as one. So a batch takes all that came, up to
 * what its user lets fit. If fewer are there than fill it, the queue waits a fraction of a
 * millisecond for others, and no longer than the lane beside it works. Those who ask do not wait.
 *
 * A burst is a job of the memory (cuda_memory.h): from the first batch until nothing waits, or
 * until burst_max, behind which others of the memory have their turn.
 *
 * Promise P1: the writes of a NIC are made visible behind the last ask of a batch and before the
 * first copy or digest of it. */
#ifndef TB_INTRA_CUDA_QUEUE_H
#define TB_INTRA_CUDA_QUEUE_H

#include "intra/cuda/cuda_memory.h"
#include "intra/cuda_part_queue.h"

struct tb_cuda_queue_user {
    /* Before and behind each burst; NULL: nothing is to do. Where `open` fails, all that wait are
     * answered with its status. */
    enum tb_status (*open)(void *user);
    void (*close)(void *user, enum tb_status status);
    /* The ask fits beside those that fit since `first` was true. */
    bool (*fits)(void *user, const struct tb_gpu_ask *ask, bool first);
    /* Puts `count` asks, a list from `first` on, on the lane. */
    enum tb_status (*begin)(void *user, struct tb_gpu_ask *first, uint32_t count, uint32_t lane);
    /* All of it is done: takes the results from the lane. Not answered yet. */
    void (*end)(void *user, struct tb_gpu_ask *first, uint32_t count, uint32_t lane);
    bool patches;       /* the lanes need room for patches, too */
    uint32_t burst_max; /* batches of one burst */
    void *user;
};

struct tb_cuda_queue;
/* TB_SITE_NOMEM: also where no thread can be made. */
TB_MUST_USE enum tb_status tb_cuda_queue_new(struct tb_gpu_memory *m, const struct tb_cuda_queue_user *user,
                                             struct tb_cuda_queue **queue_out);
/* Nobody asks any more: answers what waits, ends the thread. NULL is fine. */
void tb_cuda_queue_free(struct tb_cuda_queue *q);
void tb_cuda_queue_ask(struct tb_cuda_queue *q, struct tb_gpu_ask *ask);
struct tb_gpu_queue_counts tb_cuda_queue_counts(struct tb_cuda_queue *q);

#endif

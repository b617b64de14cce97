/* pool.h - a fixed number of threads that run jobs in the order they were given. A shell.
 *
 * A job is memory of the caller's; nothing is allocated for one. Threads: any may submit. */
#ifndef TB_INTRA_POOL_H
#define TB_INTRA_POOL_H

#include <stdint.h>

#include "tombolo/status.h"

struct tb_pool;

struct tb_pool_job {
    void (*run)(struct tb_pool_job *job, uint32_t thread_index); /* the job may be reused or freed inside */
    struct tb_pool_job *next;                                    /* the pool's */
};

/* TB_BAD_ARGUMENT (0 threads), TB_SITE_NOMEM. The threads block all signals: those are for the
 * program's own threads. */
TB_MUST_USE enum tb_status tb_pool_open(uint32_t threads, struct tb_pool **pool_out);
void tb_pool_submit(struct tb_pool *pool, struct tb_pool_job *job);
uint32_t tb_pool_threads(const struct tb_pool *pool);
uint32_t tb_pool_waiting(struct tb_pool *pool); /* jobs that no thread has begun */
/* Runs what was submitted, then ends the threads. NULL is fine. */
void tb_pool_close(struct tb_pool *pool);

#endif

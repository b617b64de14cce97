#include "intra/pool.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/thread.h"

struct pool_thread {
    struct tb_pool *pool;
    pthread_t thread;
    uint32_t index;
};

struct tb_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct tb_pool_job *first;
    struct tb_pool_job **last; /* where the next job is hung */
    bool closing;
    uint32_t waiting;
    uint32_t count;
    struct pool_thread threads[];
};

/* The oldest job; NULL when the pool closes and nothing is left. */
static struct tb_pool_job *take(struct tb_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->first == NULL && !pool->closing)
        pthread_cond_wait(&pool->work, &pool->lock);
    struct tb_pool_job *job = pool->first;
    if (job != NULL) {
        pool->first = job->next;
        TB_ASSERT(pool->waiting > 0);
        pool->waiting--;
    }
    if (pool->first == NULL) pool->last = &pool->first;
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void *pool_main(void *user)
{
    const struct pool_thread *me = user;
    struct tb_pool_job *job;
    while ((job = take(me->pool)) != NULL)
        job->run(job, me->index);
    return NULL;
}

void tb_pool_submit(struct tb_pool *pool, struct tb_pool_job *job)
{
    TB_ASSERT(job->run != NULL);
    job->next = NULL;
    pthread_mutex_lock(&pool->lock);
    TB_ASSERT(!pool->closing);
    *pool->last = job;
    pool->last = &job->next;
    pool->waiting++;
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

uint32_t tb_pool_threads(const struct tb_pool *pool)
{
    return pool->count;
}

uint32_t tb_pool_waiting(struct tb_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    const uint32_t waiting = pool->waiting;
    pthread_mutex_unlock(&pool->lock);
    return waiting;
}

enum tb_status tb_pool_open(uint32_t threads, struct tb_pool **pool_out)
{
    if (threads == 0) return TB_BAD_ARGUMENT;
    struct tb_pool *pool = tb_calloc(1, sizeof *pool + threads * sizeof pool->threads[0]);
    if (pool == NULL) return TB_SITE_NOMEM;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pool->last = &pool->first;
    for (uint32_t i = 0; i < threads; i++) {
        pool->threads[i] = (struct pool_thread){.pool = pool, .index = i};
        if (tb_thread_start(&pool->threads[i].thread, pool_main, &pool->threads[i]) != 0) {
            tb_pool_close(pool);
            return TB_SITE_NOMEM;
        }
        pool->count++;
    }
    *pool_out = pool;
    return TB_OK;
}

void tb_pool_close(struct tb_pool *pool)
{
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->count; i++)
        pthread_join(pool->threads[i].thread, NULL);
    TB_ASSERT(pool->first == NULL && pool->waiting == 0);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    tb_free(pool);
}

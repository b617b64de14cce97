/* fabric_queue.c - other threads and other files reach the fabric's thread here: by a queue of
 * jobs, and by an alarm. It calls nothing of the fabric but the jobs. */
#include <sys/timerfd.h>
#include <time.h>

#include "base/assert.h"
#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"

/* ---- the queue ---- */

static void put(struct tb_fabric *f, struct tb_fabric_job *job, bool from_pool)
{
    TB_ASSERT(job->run != NULL);
    job->next = NULL;
    pthread_mutex_lock(&f->lock);
    *f->last = job;
    f->last = &job->next;
    /* Asked after the job is in the queue: a job that waits in the pool now is in the queue later,
     * and the last of them wakes the loop. */
    const bool others_follow = from_pool && tb_pool_waiting(f->pool) > tb_pool_threads(f->pool);
    /* Before the job can run: behind that the fabric may close, and a write to what was its
     * descriptor ends the process. */
    if (!others_follow) uv_async_send(&f->posted);
    pthread_mutex_unlock(&f->lock);
}

void tb_fabric_post(struct tb_fabric *f, struct tb_fabric_job *job)
{
    put(f, job, false);
}

void tb_fabric_post_from_pool(struct tb_fabric *f, struct tb_fabric_job *job)
{
    put(f, job, true);
}

void tb_fabric_run_posted(struct tb_fabric *f)
{
    pthread_mutex_lock(&f->lock);
    struct tb_fabric_job *job = f->first;
    f->first = NULL;
    f->last = &f->first;
    pthread_mutex_unlock(&f->lock);
    while (job != NULL) {
        struct tb_fabric_job *next = job->next; /* the job's memory may go inside run */
        job->run(job);
        job = next;
    }
}

struct call {
    struct tb_fabric_job job;
    struct tb_fabric *fabric;
    void (*fn)(struct tb_fabric *f, void *arg);
    void *arg;
    bool done;
};

static void run_call(struct tb_fabric_job *job)
{
    struct call *c = (struct call *)job;
    struct tb_fabric *f = c->fabric;
    c->fn(f, c->arg);
    pthread_mutex_lock(&f->lock);
    c->done = true; /* behind the lock the caller's stack is gone */
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void tb_fabric_call(struct tb_fabric *f, void (*fn)(struct tb_fabric *f, void *arg), void *arg)
{
    TB_ASSERT(!tb_fabric_on_thread(f));
    struct call c = {.job.run = run_call, .fabric = f, .fn = fn, .arg = arg};
    tb_fabric_post(f, &c.job);
    pthread_mutex_lock(&f->lock);
    while (!c.done)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

bool tb_fabric_on_thread(const struct tb_fabric *f)
{
    return pthread_equal(pthread_self(), f->thread) != 0;
}

/* ---- the alarm: libuv's timers count milliseconds, bitmaps are polled every 200
 * microseconds ---- */

static void arm(struct tb_fabric *f, tb_time_ns at)
{
    struct itimerspec spec = {0};
    f->alarm_at = at;
    if (at != TB_TIME_NEVER) {
        spec.it_value.tv_sec = (time_t)(at / TB_SECONDS(1));
        spec.it_value.tv_nsec = (long)(at % TB_SECONDS(1));
        if (at == 0) spec.it_value.tv_nsec = 1; /* 0 would disarm */
    }
    const int result = timerfd_settime(f->alarm_fd, TFD_TIMER_ABSTIME, &spec, NULL);
    TB_ASSERT(result == 0);
}

void tb_fabric_disarm(struct tb_fabric *f)
{
    arm(f, TB_TIME_NEVER);
}

void tb_fabric_wake_at(struct tb_fabric *f, tb_time_ns at)
{
    if (at < f->alarm_at) arm(f, at);
}

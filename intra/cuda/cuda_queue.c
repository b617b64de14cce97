#include "intra/cuda/cuda_queue.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "intra/cuda/cuda_lanes.h"

#define GATHER     TB_US(200) /* at most, for others to come */
#define LOOK_EVERY TB_US(50)  /* at a lane that works, while the other waits for asks */

struct batch {
    struct tb_gpu_ask *first;
    uint32_t count; /* 0: none */
};

struct tb_cuda_queue {
    struct tb_gpu_memory *m;
    struct tb_cuda_queue_user user;
    pthread_t thread;
    struct batch under_way[TB_CUDA_LANES]; /* the thread's; from `oldest` on */
    uint32_t oldest, busy;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t asked;
    bool ending;
    struct tb_gpu_ask *first, **last; /* that wait */
    tb_time_ns came_at;               /* the first of them */
    struct tb_gpu_queue_counts counts;
};

/* ---- gathering ---- */

/* Under the lock: so many of the first fit together, and one more does not. */
static uint32_t fitting(const struct tb_cuda_queue *q, bool *is_full_out)
{
    uint32_t count = 0;
    const struct tb_gpu_ask *a = q->first;
    for (; a != NULL && q->user.fits(q->user.user, a, count == 0); a = a->next)
        count++;
    TB_ASSERT(count > 0 || q->first == NULL); /* the first one always fits */
    *is_full_out = a != NULL;
    return count;
}

static void wait_a_little(struct tb_cuda_queue *q, tb_time_ns until)
{
    const struct timespec at = {.tv_sec = (time_t)(until / TB_SECONDS(1)),
                                .tv_nsec = (long)(until % TB_SECONDS(1))};
    (void)pthread_cond_timedwait(&q->asked, &q->lock, &at);
}

/* The batch under way that began first is done, or cannot be looked at. */
static bool oldest_is_done(struct tb_cuda_queue *q)
{
    return q->busy > 0 && tb_cuda_is_done(q->m, q->oldest);
}

/* Under the lock: takes `count` of those that wait. */
static struct batch take(struct tb_cuda_queue *q, uint32_t count)
{
    struct batch b = {q->first, count};
    struct tb_gpu_ask *last = q->first;
    for (uint32_t i = 1; i < count; i++)
        last = last->next;
    q->first = last->next;
    last->next = NULL;
    if (q->first == NULL) q->last = &q->first;
    q->came_at = tb_clock_now();
    q->counts.batches++;
    q->counts.chunks += count;
    q->counts.beside += q->busy > 0;
    if (count > q->counts.largest) q->counts.largest = count;
    return b;
}

/* The next batch. None: nothing waits, or what is under way is to be seen to first. */
static struct batch gather(struct tb_cuda_queue *q)
{
    struct batch b = {NULL, 0};
    pthread_mutex_lock(&q->lock);
    for (;;) {
        bool is_full;
        const uint32_t count = fitting(q, &is_full);
        const tb_time_ns now = tb_clock_now(), until = q->came_at + GATHER;
        const bool enough = count > 0 && (is_full || now >= until || q->ending);
        if (enough) b = take(q, count);
        if (enough || (count == 0 && q->busy == 0) || oldest_is_done(q)) break;
        const tb_time_ns look = now + LOOK_EVERY;
        wait_a_little(q, count > 0 && until < look ? until : look);
    }
    pthread_mutex_unlock(&q->lock);
    return b;
}

/* ---- a burst ---- */

static void answer(struct batch b, enum tb_status status)
{
    for (struct tb_gpu_ask *a = b.first; a != NULL;) {
        struct tb_gpu_ask *next = a->next; /* the ask's memory goes with its answer */
        a->answer(a, status);
        a = next;
    }
}

static void refuse_all(struct tb_cuda_queue *q, enum tb_status status)
{
    pthread_mutex_lock(&q->lock);
    const struct batch b = {q->first, 0};
    q->first = NULL;
    q->last = &q->first;
    pthread_mutex_unlock(&q->lock);
    answer(b, status);
}

static enum tb_status begin(struct tb_cuda_queue *q, struct batch b)
{
    const uint32_t lane = (q->oldest + q->busy) % TB_CUDA_LANES;
    TB_ASSERT(q->busy < TB_CUDA_LANES && q->under_way[lane].count == 0);
    q->under_way[lane] = b;
    q->busy++;
    q->m->lanes[lane].moves_listed = q->m->lanes[lane].moves_run = 0; /* what was on the lane is done */
    q->m->lanes[lane].proofs_listed = 0;
    enum tb_status status = tb_cuda_make_visible(q->m);
    if (status == TB_OK) status = q->user.begin(q->user.user, b.first, b.count, lane);
    return status == TB_OK ? tb_cuda_mark(q->m, lane) : status;
}

static struct batch pop(struct tb_cuda_queue *q)
{
    const struct batch b = q->under_way[q->oldest];
    TB_ASSERT(q->busy > 0 && b.count > 0);
    q->under_way[q->oldest] = (struct batch){NULL, 0};
    q->oldest = (q->oldest + 1) % TB_CUDA_LANES;
    q->busy--;
    return b;
}

static enum tb_status end(struct tb_cuda_queue *q)
{
    const uint32_t lane = q->oldest;
    TB_ASSERT(q->m->lanes[lane].moves_run == q->m->lanes[lane].moves_listed); /* none was only listed */
    const enum tb_status status = tb_cuda_wait(q->m, lane);
    if (status != TB_OK) return status; /* its chunks are answered when nothing runs any more */
    const struct batch b = pop(q);
    q->user.end(q->user.user, b.first, b.count, lane);
    answer(b, TB_OK);
    return TB_OK;
}

/* In a job. */
static enum tb_status batches(struct tb_cuda_queue *q)
{
    uint32_t begun = 0;
    for (;;) {
        struct batch b = {NULL, 0};
        if (q->busy < TB_CUDA_LANES && begun < q->user.burst_max) b = gather(q);
        if (b.count == 0 && q->busy == 0) return TB_OK;
        begun += b.count > 0;
        const enum tb_status status = b.count > 0 ? begin(q, b) : end(q);
        if (status != TB_OK) return status;
    }
}

static enum tb_status job(struct tb_cuda_queue *q)
{
    enum tb_status status = tb_cuda_job_begin(q->m);
    if (status != TB_OK) return status;
    const bool has_room = q->user.patches ? tb_cuda_may_patch(q->m) : tb_cuda_has_scratch(q->m);
    status = has_room ? batches(q) : TB_SITE_NOMEM;
    return tb_cuda_job_end(q->m, status); /* nothing runs on */
}

static void burst(struct tb_cuda_queue *q)
{
    enum tb_status status = q->user.open != NULL ? q->user.open(q->user.user) : TB_OK;
    if (status == TB_OK) {
        status = job(q);
        if (q->user.close != NULL) q->user.close(q->user.user, status);
    }
    while (q->busy > 0)
        answer(pop(q), status);
    if (status != TB_OK) refuse_all(q, status);
}

/* ---- the thread ---- */

static void *run(void *arg)
{
    struct tb_cuda_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->first == NULL && !q->ending)
            pthread_cond_wait(&q->asked, &q->lock);
        if (q->first == NULL) break;
        pthread_mutex_unlock(&q->lock);
        burst(q);
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

void tb_cuda_queue_ask(struct tb_cuda_queue *q, struct tb_gpu_ask *ask)
{
    TB_ASSERT(ask->answer != NULL);
    ask->next = NULL;
    pthread_mutex_lock(&q->lock);
    TB_ASSERT(!q->ending);
    if (q->first == NULL) q->came_at = tb_clock_now();
    const bool was_empty = q->first == NULL;
    *q->last = ask;
    q->last = &ask->next;
    if (was_empty) pthread_cond_signal(&q->asked);
    pthread_mutex_unlock(&q->lock);
}

struct tb_gpu_queue_counts tb_cuda_queue_counts(struct tb_cuda_queue *q)
{
    pthread_mutex_lock(&q->lock);
    const struct tb_gpu_queue_counts counts = q->counts;
    pthread_mutex_unlock(&q->lock);
    return counts;
}

enum tb_status tb_cuda_queue_new(struct tb_gpu_memory *m, const struct tb_cuda_queue_user *user,
                                 struct tb_cuda_queue **queue_out)
{
    TB_ASSERT(user->begin != NULL && user->end != NULL && user->fits != NULL);
    struct tb_cuda_queue *q = tb_calloc(1, sizeof *q);
    if (q == NULL) return TB_SITE_NOMEM;
    q->m = m;
    q->user = *user;
    q->last = &q->first;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->asked, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (tb_thread_start(&q->thread, run, q) == 0) {
        *queue_out = q;
        return TB_OK;
    }
    pthread_cond_destroy(&q->asked);
    pthread_mutex_destroy(&q->lock);
    tb_free(q);
    return TB_SITE_NOMEM;
}

void tb_cuda_queue_free(struct tb_cuda_queue *q)
{
    if (q == NULL) return;
    pthread_mutex_lock(&q->lock);
    q->ending = true;
    pthread_cond_signal(&q->asked);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    TB_ASSERT(q->first == NULL && q->busy == 0);
    pthread_cond_destroy(&q->asked);
    pthread_mutex_destroy(&q->lock);
    tb_free(q);
}

/* thread_crew.c - worker threads that take pieces of the oldest unfinished job; what gives way
 * comes after the others. */
#include "intra/client/memory/thread_crew.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/machine.h"
#include "base/thread.h"

struct job {
    struct job *next;
    tb_crew_fn fn;
    void *user;
    uint32_t count;
    _Atomic uint32_t next_piece;
    uint32_t slots;   /* given out so far; under the lock */
    uint32_t helpers; /* threads inside it; under the lock */
    bool task;        /* on the heap, and nobody waits for it */
    bool gives_way;   /* to those with `wanted` */
    bool wanted;      /* counted in the crew's, until its last piece is taken */
    atomic_bool gave; /* way: nobody takes more of it */
};

struct tb_crew {
    pthread_mutex_t lock;
    pthread_cond_t work;  /* a job came, or the pool ends */
    pthread_cond_t ended; /* a helper left a job */
    struct job *first;
    bool stopping;
    _Atomic uint32_t wanted; /* jobs that workers are to take pieces of first */
    uint32_t threads;        /* of the caller's budget; the caller of a job is one of them */
    uint32_t workers;        /* threads that run */
    pthread_t worker[TB_CREW_THREADS_MAX];
};

static bool take_piece(struct tb_crew *crew, struct job *job, uint32_t *piece_out)
{
    if (job->gives_way && atomic_load(&crew->wanted) > 0) atomic_store(&job->gave, true);
    if (atomic_load(&job->gave)) return false;
    *piece_out = atomic_fetch_add_explicit(&job->next_piece, 1, memory_order_relaxed);
    if (*piece_out >= job->count) return false;
    if (job->wanted && *piece_out == job->count - 1) atomic_fetch_sub(&crew->wanted, 1);
    return true;
}

static void work_on(struct tb_crew *crew, struct job *job, uint32_t slot)
{
    uint32_t piece;
    while (take_piece(crew, job, &piece))
        job->fn(job->user, piece, slot);
}

static void unlink_job(struct tb_crew *crew, struct job *job)
{
    for (struct job **at = &crew->first; *at != NULL; at = &(*at)->next) {
        if (*at == job) {
            *at = job->next;
            return;
        }
    }
}

/* The oldest job that still has pieces and room for a helper. Under the lock. */
static struct job *find_job(struct tb_crew *crew)
{
    for (struct job *job = crew->first; job != NULL; job = job->next) {
        const bool left = atomic_load_explicit(&job->next_piece, memory_order_relaxed) < job->count &&
                          !atomic_load(&job->gave);
        if (left && (job->task ? job->helpers == 0 : job->slots < crew->threads)) return job;
    }
    return NULL;
}

static void *worker_main(void *user)
{
    struct tb_crew *crew = user;
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        struct job *job = find_job(crew);
        if (job == NULL) {
            if (crew->stopping) break;
            pthread_cond_wait(&crew->work, &crew->lock);
            continue;
        }
        const uint32_t slot = job->slots++;
        TB_ASSERT(slot < crew->threads || job->task);
        job->helpers++;
        if (job->task) unlink_job(crew, job);
        pthread_mutex_unlock(&crew->lock);
        work_on(crew, job, slot);
        if (job->task) {
            tb_free(job);
            pthread_mutex_lock(&crew->lock);
            continue;
        }
        pthread_mutex_lock(&crew->lock);
        TB_ASSERT(job->helpers > 0);
        if (--job->helpers == 0) pthread_cond_broadcast(&crew->ended);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

enum tb_status tb_crew_new(uint32_t threads, struct tb_crew **crew_out)
{
    struct tb_crew *crew = tb_calloc(1, sizeof *crew);
    if (crew == NULL) return TB_SITE_NOMEM;
    crew->threads = threads == 0 ? tb_cores_allowed() : threads;
    if (crew->threads > TB_CREW_THREADS_MAX) crew->threads = TB_CREW_THREADS_MAX;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work, NULL);
    pthread_cond_init(&crew->ended, NULL);
    /* One worker at least, for tasks; with more than one thread the caller of a job is the missing
     * one. */
    const uint32_t wanted = crew->threads > 1 ? crew->threads - 1 : 1;
    while (crew->workers < wanted && tb_thread_start(&crew->worker[crew->workers], worker_main, crew) == 0)
        crew->workers++;
    if (crew->workers == 0) {
        tb_crew_free(crew);
        return TB_SITE_NOMEM;
    }
    *crew_out = crew;
    return TB_OK;
}

void tb_crew_free(struct tb_crew *crew)
{
    if (crew == NULL) return;
    pthread_mutex_lock(&crew->lock);
    crew->stopping = true;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->workers; i++)
        pthread_join(crew->worker[i], NULL);
    TB_ASSERT(atomic_load(&crew->wanted) == 0);
    TB_ASSERT(crew->first == NULL);
    pthread_cond_destroy(&crew->ended);
    pthread_cond_destroy(&crew->work);
    pthread_mutex_destroy(&crew->lock);
    tb_free(crew);
}

uint32_t tb_crew_slots(const struct tb_crew *crew)
{
    return crew->threads;
}

static void append_job(struct tb_crew *crew, struct job *job)
{
    struct job **at = &crew->first;
    while (*at != NULL)
        at = &(*at)->next;
    *at = job;
}

/* On the caller's stack: until nobody is inside. */
static void run(struct tb_crew *crew, struct job *job)
{
    pthread_mutex_lock(&crew->lock);
    TB_ASSERT(crew->workers > 0);
    append_job(crew, job);
    if (job->count > 1 && crew->threads > 1) pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);

    work_on(crew, job, 0);

    pthread_mutex_lock(&crew->lock);
    unlink_job(crew, job);
    while (job->helpers > 0)
        pthread_cond_wait(&crew->ended, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void tb_crew_run(struct tb_crew *crew, uint32_t count, tb_crew_fn fn, void *user)
{
    struct job job = {.fn = fn, .user = user, .count = count, .slots = 1};
    /* else no worker can help, and nothing gives way for it */
    job.wanted = count > 1 && crew->threads > 1;
    if (job.wanted) atomic_fetch_add(&crew->wanted, 1);
    run(crew, &job);
}

uint32_t tb_crew_run_between(struct tb_crew *crew, uint32_t count, tb_crew_fn fn, void *user)
{
    struct job job = {.fn = fn, .user = user, .count = count, .slots = 1, .gives_way = true};
    run(crew, &job);
    const uint32_t taken = atomic_load(&job.next_piece);
    return taken < count ? taken : count;
}

enum tb_status tb_crew_submit(struct tb_crew *crew, tb_crew_fn fn, void *user)
{
    struct job *job = tb_calloc(1, sizeof *job);
    if (job == NULL) return TB_SITE_NOMEM;
    *job = (struct job){.fn = fn, .user = user, .count = 1, .task = true};
    pthread_mutex_lock(&crew->lock);
    append_job(crew, job);
    pthread_cond_signal(&crew->work);
    pthread_mutex_unlock(&crew->lock);
    return TB_OK;
}

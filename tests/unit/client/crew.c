/* crew.c - every piece runs once, whatever the threads; a task runs although nobody waits for
 * it.
 *
 * Covers: intra/client/memory/thread_crew.c */
#include "intra/client/memory/thread_crew.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "unit/check.h"

#define PIECES 5000

struct counting {
    _Atomic uint32_t ran[PIECES];
    _Atomic uint32_t inside[TB_CREW_THREADS_MAX]; /* by slot */
    _Atomic bool clash;
};

static void count_piece(void *user, uint32_t piece, uint32_t slot)
{
    struct counting *c = user;
    if (atomic_fetch_add(&c->inside[slot], 1) != 0) atomic_store(&c->clash, true);
    atomic_fetch_add(&c->ran[piece], 1);
    atomic_fetch_sub(&c->inside[slot], 1);
}

static void every_piece_runs_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct tb_crew *crew;
        CHECK_OK(tb_crew_new(threads, &crew));
        assert_int_equal(tb_crew_slots(crew), threads);
        static struct counting c;
        for (uint32_t i = 0; i < PIECES; i++)
            atomic_store(&c.ran[i], 0);
        tb_crew_run(crew, PIECES, count_piece, &c);
        for (uint32_t i = 0; i < PIECES; i++)
            assert_int_equal(atomic_load(&c.ran[i]), 1);
        assert_false(atomic_load(&c.clash));
        tb_crew_run(crew, 0, count_piece, &c);
        tb_crew_free(crew);
    }
}

struct caller {
    struct tb_crew *crew;
    struct counting c;
};

static void *run_job(void *user)
{
    struct caller *caller = user;
    tb_crew_run(caller->crew, PIECES, count_piece, &caller->c);
    return NULL;
}

static void two_jobs_at_once(void **state)
{
    (void)state;
    static struct caller callers[2];
    struct tb_crew *crew;
    CHECK_OK(tb_crew_new(3, &crew));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        callers[i].crew = crew;
        pthread_create(&threads[i], NULL, run_job, &callers[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < PIECES; i++)
        for (int k = 0; k < 2; k++)
            assert_int_equal(atomic_load(&callers[k].c.ran[i]), 1);
    tb_crew_free(crew);
}

static void a_task_is_done_before_the_crew_goes(void **state)
{
    (void)state;
    static struct counting c;
    struct tb_crew *crew;
    CHECK_OK(tb_crew_new(1, &crew));
    for (uint32_t i = 0; i < 10; i++)
        CHECK_OK(tb_crew_submit(crew, count_piece, &c));
    tb_crew_free(crew);
    assert_int_equal(atomic_load(&c.ran[0]), 10);
}

/* ---- what nobody waits for gives way ---- */

#define BETWEEN 8u

struct between {
    struct tb_crew *crew;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool inside, open,
        helped; /* a piece in background; it may end; a worker took of the job that is waited for */
    uint32_t ran, ran_before; /* in background; until then */
};

static void tell(struct between *b, bool *what)
{
    pthread_mutex_lock(&b->lock);
    *what = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void await(struct between *b, const bool *what)
{
    pthread_mutex_lock(&b->lock);
    while (!*what)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

static void piece_between(void *user, uint32_t piece, uint32_t slot)
{
    (void)piece, (void)slot;
    struct between *b = user;
    tell(b, &b->inside);
    await(b, &b->open);
    pthread_mutex_lock(&b->lock);
    b->ran++;
    pthread_mutex_unlock(&b->lock);
}

static void task_between(void *user, uint32_t piece, uint32_t slot)
{
    (void)piece, (void)slot;
    struct between *b = user;
    const uint32_t left = BETWEEN - b->ran;
    if (tb_crew_run_between(b->crew, left, piece_between, b) < left)
        CHECK_OK(tb_crew_submit(b->crew, task_between, b));
}

/* The first piece is the caller's, for the only worker is in background: the second is the
 * worker's. */
static void piece_waited_for(void *user, uint32_t piece, uint32_t slot)
{
    (void)slot;
    struct between *b = user;
    if (piece == 0) {
        tell(b, &b->open);
        await(b, &b->helped);
        return;
    }
    pthread_mutex_lock(&b->lock);
    b->ran_before = b->ran;
    pthread_mutex_unlock(&b->lock);
    tell(b, &b->helped);
}

/* P6: a pass does not wait for what is encoded in background, but for the piece in hand. */
static void a_job_that_nobody_waits_for_gives_way(void **state)
{
    (void)state;
    struct between b = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    CHECK_OK(tb_crew_new(2, &b.crew));
    CHECK_OK(tb_crew_submit(b.crew, task_between, &b));
    await(&b, &b.inside);
    tb_crew_run(b.crew, 2, piece_waited_for, &b);
    tb_crew_free(b.crew);
    assert_int_equal(b.ran_before, 1);
    assert_int_equal(b.ran, BETWEEN);
}

static void no_thread_is_a_status(void **state)
{
    (void)state;
    struct tb_crew *crew = NULL;
    tb_fault_arm(TB_FAULT_thread, 1, true);
    CHECK_STATUS(tb_crew_new(4, &crew), TB_SITE_NOMEM);
    tb_fault_arm(TB_FAULT_thread, 0, false);
    assert_null(crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_runs_once),
        cmocka_unit_test(two_jobs_at_once),
        cmocka_unit_test(a_task_is_done_before_the_crew_goes),
        cmocka_unit_test(a_job_that_nobody_waits_for_gives_way),
        cmocka_unit_test(no_thread_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* pool.c - jobs run once each, on so many threads at most, and close waits for them.
 *
 * Covers: intra/pool.c */
#include "intra/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"

#define JOBS 1000

struct counted {
    struct tb_pool_job job;
    uint32_t runs;
};

static void count_run(struct tb_pool_job *job, uint32_t thread)
{
    struct counted *c = (struct counted *)job;
    assert_in_range(thread, 0, 2);
    __atomic_fetch_add(&c->runs, 1, __ATOMIC_RELAXED);
}

static void every_job_runs_once(void **state)
{
    (void)state;
    static struct counted jobs[JOBS];
    struct tb_pool *pool = NULL;
    assert_int_equal(tb_pool_open(3, &pool), TB_OK);
    assert_int_equal(tb_pool_threads(pool), 3);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (struct counted){.job.run = count_run};
        tb_pool_submit(pool, &jobs[i].job);
    }
    tb_pool_close(pool); /* runs what was submitted */
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(jobs[i].runs, 1);
}

static void a_pool_that_cannot_start_is_an_answer(void **state)
{
    (void)state;
    struct tb_pool *pool = NULL;
    assert_int_equal(tb_pool_open(0, &pool), TB_BAD_ARGUMENT);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        tb_fault_arm(TB_FAULT_thread, nth, false);
        assert_int_equal(tb_pool_open(3, &pool), TB_SITE_NOMEM);
    }
    tb_fault_arm(TB_FAULT_thread, 0, false);
    tb_fault_arm(TB_FAULT_malloc, 1, false);
    assert_int_equal(tb_pool_open(3, &pool), TB_SITE_NOMEM);
    tb_fault_arm(TB_FAULT_malloc, 0, false);
    tb_pool_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_runs_once),
        cmocka_unit_test(a_pool_that_cannot_start_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

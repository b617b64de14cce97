/* posts.c - what the pool did comes to the fabric's thread, however much waits there, and
 * by few wake-ups (P6).
 *
 * Linked with a uv_async_send that counts, and with a tb_pool_waiting whose caller may lose its
 * core.
 *
 * Covers: intra/fabric/fabric_queue.c */
#include <semaphore.h>
#include <stdatomic.h>
#include <uv.h>

#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "island.h"

#define JOBS 100

static atomic_uint wakes, done;

int __real_uv_async_send(uv_async_t *async);
int __wrap_uv_async_send(uv_async_t *async);
int __wrap_uv_async_send(uv_async_t *async)
{
    atomic_fetch_add(&wakes, 1);
    return __real_uv_async_send(async);
}

static _Thread_local bool loses_core;

/* Others have 300 ms to do all that they can meanwhile. */
uint32_t __real_tb_pool_waiting(struct tb_pool *pool);
uint32_t __wrap_tb_pool_waiting(struct tb_pool *pool);
uint32_t __wrap_tb_pool_waiting(struct tb_pool *pool)
{
    const uint32_t waiting = __real_tb_pool_waiting(pool);
    for (int ms = 0; loses_core && atomic_load(&done) < JOBS - 1 && ms < 300; ms++)
        rest_1ms();
    return waiting;
}

struct chunk {
    struct tb_pool_job job;
    struct tb_fabric_job done;
    struct tb_fabric *fabric;
    sem_t *waits_for; /* NULL: nothing */
    bool loses_core;  /* between looking at the pool and acting on what it saw */
};

static void on_done(struct tb_fabric_job *job)
{
    (void)job;
    atomic_fetch_add(&done, 1);
}

static void run(struct tb_pool_job *job, uint32_t thread)
{
    struct chunk *c = (struct chunk *)job;
    (void)thread;
    if (c->waits_for != NULL) sem_wait(c->waits_for);
    loses_core = c->loses_core;
    tb_fabric_post_from_pool(c->fabric, &c->done);
    loses_core = false;
}

static void submit(struct tb_fabric *f, struct chunk *c, sem_t *waits_for)
{
    *c = (struct chunk){.job.run = run, .done.run = on_done, .fabric = f, .waits_for = waits_for};
    tb_pool_submit(f->pool, &c->job);
}

static struct tb_fabric *fabric_of(uint32_t threads)
{
    struct tb_fabric *f = NULL;
    struct tb_fabric_options options = {.tcp_address = "127.0.0.1:0", .threads = threads};
    assert_int_equal(tb_name_set(&options.host, "reef"), TB_OK);
    assert_int_equal(tb_fabric_open(&options, &f), TB_OK);
    return f;
}

static void a_queue_of_the_pool_wakes_it_at_its_end(void **state)
{
    (void)state;
    static struct chunk chunks[JOBS];
    struct tb_fabric *f = fabric_of(1);
    sem_t gate;
    sem_init(&gate, 0, 0);
    atomic_store(&wakes, 0);
    atomic_store(&done, 0);
    for (int i = 0; i < JOBS; i++)
        submit(f, &chunks[i], i == 0 ? &gate : NULL);
    sem_post(&gate);
    wait_until(atomic_load(&done) == JOBS);
    assert_int_equal(atomic_load(&wakes), 2); /* the last but one, and the last */
    tb_fabric_close(f);
    sem_destroy(&gate);
}

/* A thread that saw others wait posts after all of them. */
static void one_that_loses_its_core_is_not_forgotten(void **state)
{
    (void)state;
    static struct chunk chunks[JOBS];
    struct tb_fabric *f = fabric_of(2);
    sem_t gate;
    sem_init(&gate, 0, 0);
    atomic_store(&done, 0);
    for (int i = 0; i < JOBS; i++) {
        submit(f, &chunks[i], i < 2 ? &gate : NULL);
        chunks[i].loses_core = i == 0;
    }
    sem_post(&gate);
    sem_post(&gate);
    wait_until(atomic_load(&done) == JOBS);
    tb_fabric_close(f);
    sem_destroy(&gate);
}

static void one_that_is_alone_wakes_it_at_once(void **state)
{
    (void)state;
    struct tb_fabric *f = fabric_of(3);
    struct chunk chunk;
    for (unsigned i = 1; i <= 20; i++) {
        atomic_store(&done, 0);
        submit(f, &chunk, NULL);
        wait_until(atomic_load(&done) == 1);
    }
    tb_fabric_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_of_the_pool_wakes_it_at_its_end),
        cmocka_unit_test(one_that_loses_its_core_is_not_forgotten),
        cmocka_unit_test(one_that_is_alone_wakes_it_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

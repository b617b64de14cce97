/* lock_order.c - the waits of session_lock.h. A switch may hold the lock of its buffers for
 * seconds. Meanwhile no thread waits for that lock under the session's lock, nor does a chunk that
 * lands (P6). Each test holds the buffers' lock in place of a switch.
 *
 * Covers: intra/client/session/session_lock.c, intra/client/follow/patch.c,
 * intra/client/follow/buffer_switch.c */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "intra/client/follow/staging.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"
#include "unit/client/fake_gateway.h"

#define TENSOR 300000u

struct worker {
    struct fake f;
    struct tb_session *s;
    uint8_t *memory[2];
    struct tb_registration *r[2];
    struct tb_subscription *sub;
    struct fake_version *v[3]; /* by number */
};

static void worker_open(struct worker *w, enum tb_update update)
{
    memset(w, 0, sizeof *w);
    fake_open(&w->f);
    w->s = fake_session_open(&w->f, "w", "host-a");
    static const uint64_t shape[] = {TENSOR};
    for (int i = 0; i < 2; i++) {
        w->memory[i] = calloc(1, TENSOR);
        const struct tb_tensor_desc t = {"t0", "U8", 1, shape, w->memory[i]};
        CHECK_OK(tb_register(w->s, &t, 1, &w->r[i]));
    }
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = w->r[0],
                                           .update = (uint32_t)update,
                                           .second = update == TB_UPDATE_SWITCH ? w->r[1] : NULL};
    CHECK_OK(tb_subscribe(w->s, &o, &w->sub));
    w->v[1] = fake_make(&w->f, 1, 1, 1, TENSOR);
    w->v[2] = fake_step(&w->f, 2, w->v[1], 1);
}

static void worker_close(struct worker *w)
{
    tb_session_close(w->s);
    fake_close(&w->f);
    free(w->memory[0]);
    free(w->memory[1]);
}

static void stage(struct worker *w, uint32_t number)
{
    const struct tb_uid uid = fake_uid(w->v[number]);
    if (tb_stage(w->sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&w->f, number);
}

static void activate(struct worker *w, uint32_t number)
{
    const struct tb_uid uid = fake_uid(w->v[number]);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    if (tb_activate(w->sub, &uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
}

/* Bounded: a session whose lock stays taken fails the test. */
static void lock_in_time(struct tb_session *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    assert_int_equal(pthread_mutex_timedlock(&s->lock, &until), 0);
}

/* The newest staging reads, as soon as it has a plan. */
static void wait_until_it_reads(struct worker *w)
{
    for (;;) {
        lock_in_time(w->s);
        const struct tb_staging *st = w->s->stagings;
        const bool reads = st != NULL && st->life == TB_STAGING_READING;
        pthread_mutex_unlock(&w->s->lock);
        if (reads) return;
        sched_yield();
    }
}

/* The session's lock is held while a hop is closed, and that waits for the chunk in hand. So the
 * chunk does not wait for a switch. */
static void a_chunk_lands_while_a_switch_writes(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_PATCH);
    stage(&w, 1);
    activate(&w, 1);
    FAKE_SET(&w.f, no_plan, true);
    const struct tb_uid uid = fake_uid(w.v[2]);
    CHECK_STATUS(tb_stage(w.sub, &uid, 0), TB_AGAIN);
    wait_until_it_reads(&w);
    pthread_rwlock_wrlock(&w.r[0]->target.lock);
    fake_plan(&w.f, 0, 2);
    const int staged = tb_stage(w.sub, &uid, 20000);
    pthread_rwlock_unlock(&w.r[0]->target.lock);
    CHECK_OK(staged);
    fake_go(&w.f, 2);
    activate(&w, 2);
    assert_memory_equal(w.memory[0], w.v[2]->shards[0].bytes, TENSOR);
    worker_close(&w);
}

static void *activate_1(void *user)
{
    activate(user, 1);
    return NULL;
}

/* tb_activate of the active version compares the number of writes to its buffers. Another
 * subscription may write to them meanwhile. */
static void a_switch_beside_a_switch_leaves_the_session_free(void **state)
{
    (void)state;
    struct worker w;
    pthread_t thread;
    worker_open(&w, TB_UPDATE_SWITCH);
    stage(&w, 1);
    activate(&w, 1);
    struct tb_registration *in_use = w.r[w.sub->buffer];
    pthread_rwlock_wrlock(&in_use->target.lock);
    assert_int_equal(pthread_create(&thread, NULL, activate_1, &w), 0);
    /* copies: it waits without the session's lock */
    for (bool copies = false; !copies; sched_yield()) {
        lock_in_time(w.s);
        copies = in_use->passes > 0;
        pthread_mutex_unlock(&w.s->lock);
    }
    pthread_rwlock_unlock(&in_use->target.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_memory_equal(w.memory[w.sub->buffer], w.v[1]->shards[0].bytes, TENSOR);
    worker_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_lands_while_a_switch_writes),
        cmocka_unit_test(a_switch_beside_a_switch_leaves_the_session_free),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

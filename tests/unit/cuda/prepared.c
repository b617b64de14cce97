/* prepared.c - memory that is prepared for a device is pinned before a call needs it: the call pins
 * nothing. Over a driver that is none (fake_cuda.h), which counts.
 *
 * Covers: intra/client/memory/reserve.c intra/client/publish/publish_prepare.c */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "intra/client/memory/registration.h"
#include "unit/client/prepared_rank.h"
#include "unit/cuda/fake_cuda.h"

#define BYTES ((uint64_t)40 << 20)

struct worker {
    struct fake f;
    struct tb_session *s;
    struct tb_registration *r;
    struct tb_run_info run;
    uint8_t *memory; /* of the device */
    uint8_t *truth;
    int published;
};

static struct tb_registration *register_one(struct tb_session *s, void *memory)
{
    const uint64_t shape[] = {BYTES};
    const struct tb_tensor_desc t = {
        .name = "t0", .dtype = "U8", .rank = 1, .shape = shape, .memory = memory};
    struct tb_registration *r = NULL;
    CHECK_OK(tb_register(s, &t, 1, &r));
    return r;
}

static void worker_open(struct worker *w)
{
    memset(w, 0, sizeof *w);
    prepared_let_go();
    fake_cuda_open();
    fake_open(&w->f);
    w->s = prepared_session_of(&w->f, false);
    w->memory = fake_cuda_alloc(0, BYTES);
    w->truth = malloc(BYTES);
    memset(w->truth, 0x5a, BYTES);
    fake_cuda_write(w->memory, w->truth, BYTES);
    w->r = register_one(w->s, w->memory);
    w->run.struct_bytes = sizeof w->run;
    CHECK_OK(tb_run_open(w->s, "policy", "k", &w->run));
}

static void worker_close(struct worker *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    tb_session_close(w->s);
    fake_cuda_free(w->memory);
    free(w->truth);
    fake_close(&w->f);
    fake_cuda_close();
}

static struct tb_publish_options options_of(struct worker *w, uint64_t number, uint32_t mode)
{
    return (struct tb_publish_options){.struct_bytes = sizeof(struct tb_publish_options),
                                       .mode = mode,
                                       .model = "policy",
                                       .run = &w->run.run,
                                       .number = number,
                                       .shard_count = 1,
                                       .registration = w->r,
                                       .timeout_ms = 60000};
}

static void prepare(struct worker *w, uint32_t mode)
{
    const struct tb_publish_options o = options_of(w, 0, mode);
    CHECK_OK(tb_publish_prepare(w->s, &o));
}

static int publish(struct worker *w, uint64_t number, uint32_t mode)
{
    const struct tb_publish_options o = options_of(w, number, mode);
    return tb_publish(w->s, &o, NULL);
}

static void *publish_one(void *user)
{
    struct worker *w = user;
    w->published = publish(w, 1, TB_PUBLISH_SHADOW);
    return NULL;
}

static uint32_t pins(void)
{
    return fake_cuda_calls("cuMemHostRegister");
}

static void must_land(struct worker *w, uint64_t number)
{
    fake_land(&w->f, number);
    assert_memory_equal(fake_version(&w->f, number)->shards[0].bytes, w->truth, BYTES);
}

static void shadows_are_pinned_before_they_are_used(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w);
    prepare(&w, TB_PUBLISH_SHADOW);
    prepared_wait_prepared(w.s);
    assert_int_equal(pins(), 1);
    CHECK_OK(publish(&w, 1, TB_PUBLISH_SHADOW));
    prepared_wait_prepared(w.s);
    assert_int_equal(pins(), 2); /* of the second one, in background */
    for (uint64_t number = 2; number <= 4; number++) {
        must_land(&w, number - 1);
        CHECK_OK(publish(&w, number, TB_PUBLISH_SHADOW));
    }
    assert_int_equal(pins(), 2);
    assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
    const struct tb_reserve_counts counts = prepared_counts_of(w.s);
    assert_int_equal(counts.taken_bytes, 2 * BYTES);
    assert_int_equal(counts.taken_ready_bytes, 2 * BYTES);
    assert_int_equal(counts.made_bytes, 0);
    worker_close(&w);
}

static void the_copy_of_a_device_is_prepared_too(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w);
    prepare(&w, TB_PUBLISH_IN_PLACE);
    prepared_wait_prepared(w.s);
    assert_int_equal(pins(), 1);
    CHECK_OK(publish(&w, 1, TB_PUBLISH_IN_PLACE));
    must_land(&w, 1);
    assert_int_equal(pins(), 1);
    assert_int_equal(prepared_counts_of(w.s).taken_ready_bytes, BYTES);
    prepare(&w, TB_PUBLISH_IN_PLACE); /* a second copy, for a version beside that one */
    prepared_wait_prepared(w.s);
    assert_int_equal(fake_cuda_counts().pinned, 2);
    CHECK_OK(tb_unregister(w.r));
    assert_int_equal(fake_cuda_counts().pinned, 0);
    worker_close(&w);
}

static void staging_is_pinned_before_it_is_used(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w);
    fake_make(&w.f, 1, 1, 1, BYTES);
    const struct tb_uid uid = fake_uid(fake_version(&w.f, 1));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = w.r};
    struct tb_subscription *sub = NULL;
    CHECK_OK(tb_subscribe(w.s, &o, &sub));
    prepared_wait_prepared(w.s);
    assert_int_equal(pins(), 1);
    CHECK_OK(tb_stage(sub, &uid, 60000));
    fake_go(&w.f, 1);
    CHECK_OK(tb_activate(sub, &uid, NULL));
    assert_int_equal(pins(), 1);
    assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
    fake_cuda_read(w.memory, w.truth, BYTES);
    assert_memory_equal(fake_version(&w.f, 1)->shards[0].bytes, w.truth, BYTES);
    worker_close(&w);
}

/* ulimit -l: it is prepared without, and copies are slower. */
static void a_refused_pin_is_no_failure(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w);
    fake_cuda_fail("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
    prepare(&w, TB_PUBLISH_SHADOW);
    prepared_wait_prepared(w.s);
    assert_true(fake_cuda_failed());
    assert_int_equal(fake_cuda_counts().pinned, 0);
    CHECK_OK(publish(&w, 1, TB_PUBLISH_SHADOW));
    assert_int_equal(prepared_counts_of(w.s).taken_ready_bytes, BYTES);
    must_land(&w, 1);
    worker_close(&w);
}

/* The driver pins it: the call waits for that alone, and does not pin it again. */
static void a_publish_during_the_pin_waits_for_it(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w);
    fake_cuda_hold("cuMemHostRegister");
    prepare(&w, TB_PUBLISH_SHADOW);
    while (!fake_cuda_held())
        sched_yield();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, publish_one, &w), 0);
    prepared_wait_ending(w.s);
    fake_cuda_hold(NULL);
    pthread_join(thread, NULL);
    CHECK_OK(w.published);
    prepared_wait_prepared(w.s);
    assert_int_equal(pins(), 2); /* this one, and the second shadow behind the seal */
    assert_int_equal(prepared_counts_of(w.s).made_bytes, 0);
    must_land(&w, 1);
    worker_close(&w);
}

static void unregister_ends_the_pin(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w);
    prepare(&w, TB_PUBLISH_SHADOW);
    CHECK_OK(tb_unregister(w.r));
    assert_int_equal(prepared_reserves_of(w.s), 0);
    assert_int_equal(fake_cuda_counts().pinned, 0);
    worker_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shadows_are_pinned_before_they_are_used),
        cmocka_unit_test(the_copy_of_a_device_is_prepared_too),
        cmocka_unit_test(staging_is_pinned_before_it_is_used),
        cmocka_unit_test(a_refused_pin_is_no_failure),
        cmocka_unit_test(a_publish_during_the_pin_waits_for_it),
        cmocka_unit_test(unregister_ends_the_pin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* frees.c - large memory goes without the session's lock: pages take a third of a second a GiB to
 * go, and meanwhile the session would renew no lease, and answer no call (P6).
 *
 * Linked with a munmap that asks for the lock.
 *
 * Covers: intra/client/memory/buffers.c intra/client/memory/spare_memory.c */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"
#include "unit/client/fake_gateway.h"

/* Memory in huge pages is mapped, and in part unmapped, while it is made: all of these are
 * smaller. */
#define TENSOR 450000u
#define LARGE  ((size_t)1 << 18)

static struct tb_session *watched;
static unsigned frees;

int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes)
{
    if (watched != NULL && bytes >= LARGE) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 5; /* who has it itself waits for ever */
        assert_int_equal(pthread_mutex_timedlock(&watched->lock, &until), 0);
        pthread_mutex_unlock(&watched->lock);
        frees++;
    }
    return __real_munmap(at, bytes);
}

struct world {
    struct fake f;
    struct tb_session *s;
    struct tb_subscription *sub;
};

static void world_open(struct world *w, uint32_t update, struct tb_registration *r)
{
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .update = update, .registration = r};
    CHECK_OK(tb_subscribe(w->s, &o, &w->sub));
    watched = w->s;
    frees = 0;
}

static struct tb_uid make(struct world *w, uint64_t number, uint64_t bytes)
{
    return fake_uid(fake_make(&w->f, number, 1, 2, bytes));
}

/* One that is kept for the next version goes when another is kept, when it does not fit, and
 * with the subscription. */
static void a_staging_and_what_was_kept_of_one(void **state)
{
    (void)state;
    struct world w;
    fake_open(&w.f);
    const struct tb_uid one = make(&w, 1, TENSOR), two = make(&w, 2, TENSOR),
                        larger = make(&w, 3, 2 * TENSOR);
    w.s = fake_session_open(&w.f, "w", NULL);
    world_open(&w, TB_UPDATE_COPY, NULL);
    CHECK_OK(tb_stage(w.sub, &one, 20000));
    CHECK_OK(tb_stage(w.sub, &two, 20000));
    CHECK_OK(tb_release(w.sub, &one));
    assert_int_equal(frees, 0);
    CHECK_OK(tb_release(w.sub, &two));
    assert_int_equal(frees, 1);
    CHECK_OK(tb_stage(w.sub, &larger, 20000));
    assert_int_equal(frees, 2);
    CHECK_OK(tb_release(w.sub, &larger));
    assert_int_equal(frees, 2);
    CHECK_OK(tb_unsubscribe(w.sub));
    assert_int_equal(frees, 3);
    watched = NULL;
    tb_session_close(w.s);
    fake_close(&w.f);
}

static void a_staging_in_slices(void **state)
{
    (void)state;
    struct world w;
    fake_open(&w.f);
    const struct tb_uid one = make(&w, 1, TENSOR);
    w.s = fake_session_open(&w.f, "w", NULL);
    uint8_t *memory = calloc(1, TENSOR);
    const uint64_t shape[] = {TENSOR};
    const struct tb_slice_desc slice = {.struct_bytes = sizeof slice,
                                        .name = "t0",
                                        .dtype = "U8",
                                        .rank = 1,
                                        .shape = shape,
                                        .memory = memory};
    struct tb_registration *r;
    CHECK_OK(tb_register_slices(w.s, &slice, 1, &r));
    world_open(&w, TB_UPDATE_COPY, r);
    CHECK_OK(tb_stage(w.sub, &one, 20000));
    CHECK_OK(tb_release(w.sub, &one));
    assert_int_equal(frees, 1);
    watched = NULL;
    tb_session_close(w.s);
    fake_close(&w.f);
    free(memory);
}

static void a_buffer(void **state)
{
    (void)state;
    struct world w;
    fake_open(&w.f);
    w.s = fake_session_open(&w.f, "w", NULL);
    watched = w.s;
    frees = 0;
    void *memory;
    CHECK_OK(tb_buffer_new(w.s, 2 * LARGE, &memory));
    CHECK_OK(tb_buffer_free(w.s, memory));
    assert_int_equal(frees, 1);
    watched = NULL;
    tb_session_close(w.s);
    fake_close(&w.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_staging_and_what_was_kept_of_one),
        cmocka_unit_test(a_staging_in_slices),
        cmocka_unit_test(a_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

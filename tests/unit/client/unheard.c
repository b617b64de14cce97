/* unheard.c - the last chunk of a version comes just as its hop is closed: what the hop says of it
 * is not heard any more, and the version is whole all the same (P6).
 *
 * Linked with a tb_place_take that may have to wait, and with hops that are closed when all has
 * come.
 *
 * Covers: intra/client/follow/staging_fill.c */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "intra/fabric/fabric_hops.h"
#include "unit/client/subscriber.h"

static atomic_bool held_up; /* no chunk is done with before its hop is to be closed */
static sem_t opened, came;
static _Atomic(tb_hop_fn) listener;

static void say(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    atomic_load (&listener)(user, hop, event);
    if (event->kind == TB_HOP_WHOLE || event->kind == TB_HOP_LOST) sem_post(&came);
}

enum tb_status __real_tb_hop_open(struct tb_fabric *fabric, const struct tb_hop_options *options,
                                  struct tb_hop **hop_out);
enum tb_status __wrap_tb_hop_open(struct tb_fabric *fabric, const struct tb_hop_options *options,
                                  struct tb_hop **hop_out);
enum tb_status __wrap_tb_hop_open(struct tb_fabric *fabric, const struct tb_hop_options *options,
                                  struct tb_hop **hop_out)
{
    struct tb_hop_options mine = *options;
    atomic_store(&listener, options->fn);
    mine.fn = say;
    const enum tb_status status = __real_tb_hop_open(fabric, &mine, hop_out);
    sem_post(&opened);
    return status;
}

enum tb_status __real_tb_place_take(struct tb_place *place, uint32_t chunk, const struct tb_place_came *how);
enum tb_status __wrap_tb_place_take(struct tb_place *place, uint32_t chunk, const struct tb_place_came *how);
enum tb_status __wrap_tb_place_take(struct tb_place *place, uint32_t chunk, const struct tb_place_came *how)
{
    const struct timespec rest = {.tv_nsec = 1000000};
    while (atomic_load(&held_up))
        nanosleep(&rest, NULL);
    return __real_tb_place_take(place, chunk, how);
}

/* Under the session's lock: its thread hears nothing meanwhile. */
void __real_tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out);
void __wrap_tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out);
void __wrap_tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out)
{
    if (atomic_exchange(&held_up, false)) sem_wait(&came);
    __real_tb_hop_close_counted(hop, last_out);
}

static void hold_up(void)
{
    sem_init(&opened, 0, 0);
    sem_init(&came, 0, 0);
    atomic_store(&held_up, true);
}

/* One that reads slices wants nothing more from the new source, which is none of its places'. */
static void a_new_plan_finds_it_whole(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    const struct fake_version *v = fake_make(&f, 1, 1, 2, SUBSCRIBER_TENSOR_BYTES);
    const struct tb_uid uid = fake_uid(v);
    struct tb_session *s = fake_session_open(&f, "w", NULL);
    const uint64_t shape = SUBSCRIBER_TENSOR_BYTES, first = 0;
    struct tb_slice_desc slice = {.struct_bytes = sizeof slice,
                                  .rank = 1,
                                  .name = "t0",
                                  .dtype = "U8",
                                  .shape = &shape,
                                  .first = &first,
                                  .count = &shape,
                                  .memory = malloc(SUBSCRIBER_TENSOR_BYTES)};
    struct tb_registration *registration;
    CHECK_OK(tb_register_slices(s, &slice, 1, &registration));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = registration};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(s, &o, &sub));

    FAKE_SET(&f, no_plan, true);
    CHECK_STATUS(tb_stage(sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_EXPORT, 1); /* its places stand */
    hold_up();
    fake_plan(&f, 0, 1);
    fake_plan(&f, 0, 1);
    CHECK_OK(tb_stage(sub, &uid, 20000));
    assert_int_equal(fake_seen(&f, TB_MSG_HOP_LOST), 0);
    tb_session_close(s);
    fake_close(&f);
    free(slice.memory);
}

/* The base of its differences goes, and with it the hop. */
static void its_base_goes_and_it_is_whole(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, false);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    const struct fake_version *step = fake_step(&w.f, 2, w.v, 2);
    const struct tb_uid uid = fake_uid(step);
    hold_up();
    CHECK_STATUS(tb_stage(w.sub, &uid, 0), TB_AGAIN);
    sem_wait(&opened); /* its hop decodes from the other */
    CHECK_OK(tb_release(w.sub, &w.uid));
    CHECK_OK(tb_stage(w.sub, &uid, 20000));
    assert_int_equal(fake_seen(&w.f, TB_MSG_HOP_LOST), 0);
    subscriber_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_plan_finds_it_whole),
        cmocka_unit_test(its_base_goes_and_it_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* dispatcher.c - what rooms mark is concluded in the same turn of the loop, and never under their
 * feet (P6).
 *
 * Covers: gateway/daemon/dispatcher.c gateway/daemon/persist.c gateway/daemon/catalog_todos.c */
#include <string.h>

#include "base/allocate.h"
#include "gateway/catalog/leases.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

/* The tick draws conclusions by itself: these tests do without. */
static void begin(struct home *h)
{
    home_new_with(h, "{policy: {home: east, publish: [\"unix:*\"]}}", false);
    home_start(h);
    uv_timer_stop(&h->d->tick);
}

static void end(struct home *h)
{
    home_end(h);
    home_free(h);
}

/* A seal that waits for room, of a session that is gone: a request for room takes it away. */
static void seal_parks(struct tb_daemon *d)
{
    struct tb_parked_seal *p = tb_calloc(1, sizeof *p);
    assert_non_null(p);
    d->parked = p;
    d->room_freed = true;
    tb_daemon_wake(d);
}

/* ---- one turn of the loop, looked at from the outside ---- */

struct seen {
    struct tb_daemon *d;
    bool marked, looked, concluded;
};

static void mark(struct seen *seen)
{
    seal_parks(seen->d);
    seen->marked = true;
}

static void look(struct seen *seen)
{
    if (!seen->marked || seen->looked) return;
    seen->looked = true;
    seen->concluded = seen->d->parked == NULL;
    uv_stop(&seen->d->loop);
}

static void timer_marks(uv_timer_t *timer)
{
    mark(timer->data);
}

static void async_marks(uv_async_t *async)
{
    mark(async->data);
}

static void check_looks(uv_check_t *check)
{
    look(check->data);
}

static void prepare_looks(uv_prepare_t *prepare)
{
    look(prepare->data);
}

static void turns_on(uv_idle_t *idle)
{
    (void)idle; /* the loop does not wait */
}

static void a_mark_of_a_timer_is_concluded_before_the_loop_waits(void **state)
{
    (void)state;
    struct home h;
    uv_timer_t timer;
    uv_check_t check;
    uv_idle_t idle;
    begin(&h);
    struct seen seen = {.d = h.d};
    timer.data = check.data = &seen;
    uv_timer_init(&h.d->loop, &timer);
    uv_check_init(&h.d->loop, &check);
    uv_idle_init(&h.d->loop, &idle);
    uv_timer_start(&timer, timer_marks, 0, 0);
    uv_idle_start(&idle, turns_on);
    uv_check_start(&check, check_looks); /* before the daemon's own: the last that was started is the first */
    (void)uv_run(&h.d->loop, UV_RUN_DEFAULT);
    assert_true(seen.looked);
    assert_true(seen.concluded);
    end(&h);
}

static void a_mark_of_an_event_is_concluded_behind_the_events(void **state)
{
    (void)state;
    struct home h;
    uv_async_t async;
    uv_prepare_t prepare;
    begin(&h);
    struct seen seen = {.d = h.d};
    async.data = prepare.data = &seen;
    assert_int_equal(uv_async_init(&h.d->loop, &async, async_marks), 0);
    uv_prepare_init(&h.d->loop, &prepare);
    uv_prepare_start(&prepare, prepare_looks); /* before the daemon's own */
    uv_async_send(&async);
    while (!seen.looked)
        (void)uv_run(&h.d->loop, UV_RUN_NOWAIT);
    assert_true(seen.concluded);
    end(&h);
}

/* ---- no room is called from within another ---- */

static void space_that_is_given_back_is_asked_for_by_the_dispatcher(void **state)
{
    (void)state;
    struct home h;
    const struct tb_version_key key = {.uid = {{1}}, .shard_count = 1};
    begin(&h);
    struct tb_copy *copy = tb_copy_get(h.d, &key);
    assert_non_null(copy);
    tb_copy_ended(copy, TB_SUPERSEDED);
    seal_parks(h.d);
    h.d->room_freed = false;
    (void)tb_copies_tick(h.d);
    assert_null(tb_copy_find(h.d, &key.uid));
    assert_non_null(h.d->parked);
    tb_daemon_turn(h.d);
    assert_null(h.d->parked);
    end(&h);
}

/* ---- answers ---- */

struct answer {
    struct tb_held held;
    bool given;
    enum tb_status status;
    uint32_t rows_left;
};

static void answer_given(struct tb_daemon *d, struct tb_held *held, enum tb_status status)
{
    struct answer *a = (struct answer *)(void *)held;
    a->given = true;
    a->status = status;
    a->rows_left = tb_persist_waiting(d);
}

static void run_open(struct tb_daemon *d)
{
    struct tb_catalog_session c = {.id = {{7}}, .identity = "unix:1000"};
    struct tb_catalog_run_request q = {.session = c.id, .key = "a", .fresh_id = {{9}}};
    struct tb_catalog_run opened;
    bool joined;
    CHECK_OK(tb_name_set(&c.name, "rank"));
    CHECK_OK(tb_name_set(&c.host, "host"));
    CHECK_OK(tb_name_set(&q.model, "policy"));
    CHECK_OK(tb_catalog_session_open(d->catalog, tb_clock_now(), &c));
    CHECK_OK(tb_catalog_run_open(d->catalog, tb_clock_now(), &q, &opened, &joined));
}

/* P3: a row that the catalog wants durable is not queued yet when the answer is: it waits for it
 * all the same. */
static void an_answer_waits_for_what_is_queued_in_its_turn(void **state)
{
    (void)state;
    struct home h;
    begin(&h);
    struct answer a = {.held.fn = answer_given};
    run_open(h.d);
    CHECK_OK(tb_persist_then(h.d, &a.held));
    assert_false(a.given);
    while (!a.given)
        (void)uv_run(&h.d->loop, UV_RUN_ONCE);
    CHECK_OK(a.status);
    assert_int_equal(a.rows_left, 0);
    end(&h);
}

static void an_answer_that_made_no_row_is_given_in_its_turn(void **state)
{
    (void)state;
    struct home h;
    begin(&h);
    struct answer a = {.held.fn = answer_given};
    CHECK_OK(tb_persist_then(h.d, &a.held));
    assert_false(a.given);
    tb_daemon_turn(h.d);
    assert_true(a.given);
    CHECK_OK(a.status);
    end(&h);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mark_of_a_timer_is_concluded_before_the_loop_waits),
        cmocka_unit_test(a_mark_of_an_event_is_concluded_behind_the_events),
        cmocka_unit_test(space_that_is_given_back_is_asked_for_by_the_dispatcher),
        cmocka_unit_test(an_answer_waits_for_what_is_queued_in_its_turn),
        cmocka_unit_test(an_answer_that_made_no_row_is_given_in_its_turn),
    };
    return cmocka_run_group_tests_name("dispatcher", tests, NULL, NULL);
}

/* restarting.c - links that begin anew: until the old ones are closed their streams touch what is
 * offered and land, so nothing of the arena is given away or unmapped (P1).
 *
 * Covers: gateway/daemon/links/link_opening.c gateway/daemon/daemon.c
 * Covers: gateway/daemon/copies/copies.c */
#include <signal.h>

#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/versions.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/sealed_version.h"

static bool in_the_arena(struct sealed *s, const struct tb_id *uid)
{
    return tb_arena_region(s->home.d->arena, uid) != NULL;
}

static void turns(struct tb_daemon *d, uint32_t count)
{
    for (; count > 0; count--, uv_sleep(1)) /* not ONCE: a loop that has ended would wait for ever */
        (void)uv_run(&d->loop, UV_RUN_NOWAIT);
}

static void a_version_that_goes_waits_for_links_that_close(void **state)
{
    struct sealed s;
    (void)state;
    sealed_begin(&s, HOME_MODELS);
    const struct tb_id uid = s.made.key.uid;
    CHECK_OK(tb_catalog_withdraw(s.home.d->catalog, tb_clock_now(), &uid, "test"));
    s.home.d->links_restarting = true;
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (!sealed_view(&s).evicting && tb_clock_now() < until)
        turns(s.home.d, 1);
    turns(s.home.d, 100);
    assert_true(in_the_arena(&s, &uid));
    s.home.d->links_restarting = false;
    while (in_the_arena(&s, &uid) && tb_clock_now() < until)
        turns(s.home.d, 1);
    assert_false(in_the_arena(&s, &uid));
    sealed_end(&s);
}

static bool drains(const struct tb_daemon *d)
{
    return uv_is_active((const uv_handle_t *)&d->tick) != 0;
}

static void a_stop_waits_for_links_that_close(void **state)
{
    struct home h;
    (void)state;
    home_new(&h);
    home_start(&h);
    h.d->links_restarting = true;
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    (void)raise(SIGTERM);
    while (!h.d->draining && tb_clock_now() < until)
        turns(h.d, 1);
    turns(h.d, 100);
    assert_true(h.d->draining && drains(h.d));
    h.d->links_restarting = false;
    while (drains(h.d) && tb_clock_now() < until)
        turns(h.d, 1);
    assert_false(drains(h.d));
    home_end(&h);
    home_free(&h);
}

/* Bytes that the process before held took none of this one's. */
static void chunks_held_at_the_start_are_no_measure_of_the_rest(void **state)
{
    struct sealed s;
    (void)state;
    sealed_begin_with(&s, HOME_MODELS, 60000);
    sealed_land(&s, 0, 2);
    tb_daemon_turn(s.home.d);
    home_end(&s.home);
    home_start(&s.home);
    s.copy = tb_copy_find(s.home.d, &s.made.key.uid);
    assert_non_null(s.copy);
    const struct tb_lag_landing *l = &s.copy->moves.landing;
    assert_true(l->begun && l->held_first > 0);
    assert_int_equal(l->held_first, tb_copy_held_bytes(s.copy));
    sealed_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_that_goes_waits_for_links_that_close),
        cmocka_unit_test(a_stop_waits_for_links_that_close),
        cmocka_unit_test(chunks_held_at_the_start_are_no_measure_of_the_rest),
    };
    return cmocka_run_group_tests_name("daemon.restarting", tests, NULL, NULL);
}

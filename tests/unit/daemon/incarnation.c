/* incarnation.c - a peer that says it has seen a later life of this gateway: that one's word does
 * not end the links of the others (P6).
 *
 * Covers: gateway/daemon/persist.c gateway/daemon/links/link_opening.c */

#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_links.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

static void turns(struct tb_daemon *d, uint32_t count)
{
    for (; count > 0; count--, uv_sleep(1))
        (void)uv_run(&d->loop, UV_RUN_NOWAIT);
}

/* A gateway with links of its own. */
struct linked {
    struct world world; /* of certificates */
    struct home home;
};

static void linked_begin(struct linked *l)
{
    linked_home_begin(&l->home, &l->world, HOME_MODELS);
    assert_non_null(l->home.d->links);
}

static void linked_end(struct linked *l)
{
    linked_home_end(&l->home, &l->world);
}

/* A peer that had seen a later life of this gateway says so, as often as it likes. */
static void a_higher_incarnation_ends_no_link(void **state)
{
    struct linked l;
    (void)state;
    linked_begin(&l);
    struct tb_daemon *d = l.home.d;
    const struct tb_links *links = d->links;
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    tb_persist_incarnation(d, 100);
    while (d->incarnation < 101 && tb_clock_now() < until)
        turns(d, 1);
    assert_int_equal(d->incarnation, 101);
    assert_false(d->links_restarting);
    assert_ptr_equal(d->links, links);
    linked_end(&l);
}

/* The incarnation once a peer's word has been heard. */
static uint64_t after_word(struct tb_daemon *d, uint64_t seen)
{
    const uint64_t before = d->incarnation;
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    tb_persist_incarnation(d, seen);
    while (d->incarnation == before && tb_clock_now() < until)
        turns(d, 1);
    return d->incarnation;
}

/* P7: a number that a peer makes up leaves room for those to come, and does not begin again with 0.
 * P5: and where others had believed such a number and the store was lost since, they are not
 * refused for ever: said again and again, theirs is reached. */
static void a_made_up_number_is_gone_towards(void **state)
{
    const uint64_t step = (uint64_t)1 << 32;
    struct linked l;
    (void)state;
    linked_begin(&l);
    struct tb_daemon *d = l.home.d;
    const uint64_t before = d->incarnation;
    assert_int_equal(after_word(d, UINT64_MAX), before + step);
    assert_int_equal(after_word(d, UINT64_MAX / 2), before + 2 * step);
    assert_int_equal(after_word(d, (uint64_t)1 << 48), before + 3 * step);
    assert_int_equal(after_word(d, before + 4 * step - 2), before + 4 * step - 1);
    linked_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_higher_incarnation_ends_no_link),
        cmocka_unit_test(a_made_up_number_is_gone_towards),
    };
    return cmocka_run_group_tests_name("daemon.incarnation", tests, NULL, NULL);
}

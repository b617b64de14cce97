/* spin.c - looking for completions costs a core only while they come quickly. Virtual time.
 *
 * Covers: intra/verbs/poll_spin.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "intra/verbs/poll_spin.h"

#define LOOK TB_US(1) /* what one look takes */

/* READs complete `gap` apart, `count` of them; how many looks were made in vain. */
static uint32_t vain_looks(struct tb_spin *s, tb_time_ns *now, tb_time_ns gap, uint32_t count)
{
    uint32_t vain = 0;
    for (uint32_t i = 0; i < count; i++) {
        const tb_time_ns at = *now + gap;
        bool again = tb_spin_again(s, i > 0 ? 1 : 0, count - i, *now);
        while (again && *now + LOOK < at) {
            *now += LOOK;
            vain++;
            again = tb_spin_again(s, 0, count - i, *now);
        }
        *now = at; /* seen by looking, or an event woke us */
    }
    assert_false(tb_spin_again(s, 1, 0, *now));
    return vain;
}

static void quick_completions_are_looked_for(void **state)
{
    (void)state;
    struct tb_spin s;
    tb_time_ns now = TB_SECONDS(1);
    tb_spin_init(&s);
    const uint32_t vain = vain_looks(&s, &now, TB_US(10), 1000);
    assert_in_range(vain, 8 * 1000, 10 * 1000); /* all the time */
}

static void slow_ones_are_slept_for(void **state)
{
    (void)state;
    struct tb_spin s;
    tb_time_ns now = TB_SECONDS(1);
    tb_spin_init(&s);
    assert_int_equal(vain_looks(&s, &now, TB_MS(1), 1000), 0);
}

/* Nothing posted: not one look, for however long. */
static void an_idle_queue_burns_nothing(void **state)
{
    (void)state;
    struct tb_spin s;
    tb_time_ns now = TB_SECONDS(1);
    tb_spin_init(&s);
    (void)vain_looks(&s, &now, TB_US(5), 100);
    for (int i = 0; i < 1000; i++, now += TB_MS(1))
        assert_false(tb_spin_again(&s, 0, 0, now));
}

/* The stream stops while READs are posted (the source stands still): looking ends within 100 us. */
static void a_silent_source_is_slept_for(void **state)
{
    (void)state;
    struct tb_spin s;
    tb_time_ns now = TB_SECONDS(1);
    tb_spin_init(&s);
    (void)vain_looks(&s, &now, TB_US(5), 100);
    (void)tb_spin_again(&s, 1, 10, now += TB_US(5));
    (void)tb_spin_again(&s, 1, 10, now += TB_US(5));
    const tb_time_ns from = now;
    while (tb_spin_again(&s, 0, 10, now))
        now += LOOK;
    assert_in_range(now - from, LOOK, 2 * TB_SPIN_GAP + LOOK);
    for (int i = 0; i < 100; i++)
        assert_false(tb_spin_again(&s, 0, 10, now += TB_US(10)));
}

/* One pause ends it, and a handful of quick completions begins it again. */
static void it_begins_again(void **state)
{
    (void)state;
    struct tb_spin s;
    tb_time_ns now = TB_SECONDS(1);
    tb_spin_init(&s);
    (void)tb_spin_again(&s, 1, 10, now);
    (void)tb_spin_again(&s, 1, 10, now += TB_SECONDS(3));
    assert_false(tb_spin_again(&s, 1, 10, now += TB_SECONDS(3)));
    uint32_t quick = 0;
    while (!tb_spin_again(&s, 1, 10, now += TB_US(2)))
        assert_true(++quick < 10);
    assert_in_range(quick, 1, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quick_completions_are_looked_for),
        cmocka_unit_test(slow_ones_are_slept_for),
        cmocka_unit_test(an_idle_queue_burns_nothing),
        cmocka_unit_test(a_silent_source_is_slept_for),
        cmocka_unit_test(it_begins_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

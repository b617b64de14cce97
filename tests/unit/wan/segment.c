/* segment.c - which sizes are tried, and when one is guilty: two connections in a row, and nothing
 * that arrives between.
 *
 * Covers: wan/link/path/segment.c */
#include "wan/link/path/segment.h"

#include "tests/unit/check.h"

static void sizes_go_down_to_what_must_pass(void **state)
{
    (void)state;
    const uint32_t from_own[] = {0, 1360, 1200, 1000, 536, 536, 536};
    for (uint32_t i = 0; i < sizeof from_own / sizeof *from_own; i++)
        assert_int_equal(tb_segment_below(0, i), from_own[i]);
    assert_int_equal(tb_segment_below(8948, 1), 1360);
    assert_int_equal(tb_segment_below(1448, 1), 1360);
    assert_int_equal(tb_segment_below(1360, 1), 1200);
    assert_int_equal(tb_segment_below(1348, 1), 1200); /* 1360 with timestamps */
    assert_int_equal(tb_segment_below(1348, 2), 1000);
    assert_int_equal(tb_segment_below(988, 1), 536);
    assert_int_equal(tb_segment_below(536, 1), 536);
    assert_int_equal(tb_segment_below(536, 0), 536);
}

static void two_stalled_in_a_row_lower_it(void **state)
{
    (void)state;
    struct tb_segment s = {0};
    assert_false(tb_segment_stalled(&s, 1448));
    assert_int_equal(s.bytes_max, 0);
    assert_true(tb_segment_stalled(&s, 1448));
    assert_int_equal(s.bytes_max, 1360);
    assert_int_equal(s.from, 1448);
    assert_true(s.proven);
    assert_false(tb_segment_stalled(&s, 1448)); /* those of the time before go on stalling until they end */
    assert_int_equal(s.bytes_max, 1360);
    assert_true(tb_segment_stalled(&s, 1348)); /* the path has such a fault: one is enough */
    assert_int_equal(s.bytes_max, 1200);
    assert_int_equal(s.from, 1348);
}

static void bytes_that_arrive_between_two_clear_it(void **state)
{
    (void)state;
    struct tb_segment s = {0};
    for (int i = 0; i < 10; i++) {
        assert_false(tb_segment_stalled(&s, 1448));
        tb_segment_moved(&s);
    }
    assert_int_equal(s.bytes_max, 0);
    assert_false(s.proven);
}

static void nothing_is_below_what_must_pass(void **state)
{
    (void)state;
    struct tb_segment s = {.bytes_max = TB_SEGMENT_BYTES_MIN, .proven = true};
    for (int i = 0; i < 5; i++)
        assert_false(tb_segment_stalled(&s, 524));
    assert_int_equal(s.bytes_max, TB_SEGMENT_BYTES_MIN);
}

static void the_lower_word_counts(void **state)
{
    (void)state;
    struct tb_segment s = {0};
    assert_true(tb_segment_told(&s, 1200));
    assert_int_equal(s.bytes_max, 1200);
    assert_true(s.proven);
    assert_false(tb_segment_told(&s, 1200));
    assert_false(tb_segment_told(&s, 1360));
    assert_int_equal(s.bytes_max, 1200);
    assert_true(tb_segment_told(&s, 536));
    assert_int_equal(s.bytes_max, 536);
    struct tb_segment told = {0};
    assert_true(
        tb_segment_told(&told, 1100)); /* one of the time before stalls still, and says nothing of 1100 */
    assert_false(tb_segment_stalled(&told, 1188));
    assert_int_equal(told.bytes_max, 1100);
    struct tb_segment tried = {.bytes_max = 1000}; /* what is tried becomes proven by that word */
    assert_true(tb_segment_told(&tried, 1000));
    assert_true(tried.proven);
    assert_int_equal(tried.bytes_max, 1000);
}

static void stall_twice(struct tb_segment *s)
{
    assert_false(tb_segment_stalled(s, 1448));
    assert_true(tb_segment_stalled(s, 1448));
    assert_int_equal(s->bytes_max, 1360);
}

/* A path that was mended has its own size again, after ten minutes. */
static void after_a_while_the_own_size_is_tried_again(void **state)
{
    (void)state;
    struct tb_segment s = {0};
    const tb_time_ns now = TB_SECONDS(100);
    assert_false(tb_segment_again(&s, now)); /* nothing was found */
    stall_twice(&s);
    assert_false(tb_segment_again(&s, now));
    assert_false(tb_segment_again(&s, now + TB_SEGMENT_AGAIN_MIN - 1));
    assert_int_equal(s.bytes_max, 1360);
    assert_true(tb_segment_again(&s, now + TB_SEGMENT_AGAIN_MIN));
    assert_int_equal(s.bytes_max, 0);
    assert_false(s.proven);
    assert_false(tb_segment_again(&s, now + 100 * TB_SEGMENT_AGAIN_MIN)); /* it passes: no more trials */
    assert_false(tb_segment_stalled(&s, 1348)); /* a connection of the time before is no proof */
    assert_int_equal(s.bytes_max, 0);
}

static void a_trial_that_stalls_is_over_at_once_and_the_next_is_later(void **state)
{
    (void)state;
    struct tb_segment s = {0};
    tb_time_ns now = TB_SECONDS(100), wait = TB_SEGMENT_AGAIN_MIN;
    stall_twice(&s);
    assert_true(tb_segment_stalled(&s, 1348));
    for (int trial = 0; trial < 10; trial++) {
        assert_int_equal(s.bytes_max, 1200);
        assert_true(s.proven);
        assert_false(tb_segment_again(&s, now));
        assert_false(tb_segment_again(&s, now + wait - 1));
        now += wait;
        assert_true(tb_segment_again(&s, now));
        if (trial % 2 == 0)
            assert_true(tb_segment_stalled(&s, 1448)); /* one is enough, and what passed counts */
        else
            assert_true(tb_segment_told(&s, 1200)); /* the peer's word, likewise */
        wait = 2 * wait < TB_SEGMENT_AGAIN_MAX ? 2 * wait : TB_SEGMENT_AGAIN_MAX;
    }
    assert_int_equal(wait, TB_SEGMENT_AGAIN_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_go_down_to_what_must_pass),
        cmocka_unit_test(two_stalled_in_a_row_lower_it),
        cmocka_unit_test(bytes_that_arrive_between_two_clear_it),
        cmocka_unit_test(nothing_is_below_what_must_pass),
        cmocka_unit_test(the_lower_word_counts),
        cmocka_unit_test(after_a_while_the_own_size_is_tried_again),
        cmocka_unit_test(a_trial_that_stalls_is_over_at_once_and_the_next_is_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

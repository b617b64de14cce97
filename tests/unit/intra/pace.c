/* pace.c - the token bucket, in virtual time.
 *
 * Covers: intra/hop/token_bucket.c */
#include "intra/hop/token_bucket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Always hungry for ten seconds of virtual time: what went is the rate, within the burst. */
static void a_hungry_taker_gets_the_rate(void **state)
{
    (void)state;
    struct tb_pace p;
    tb_time_ns now = TB_SECONDS(3), end = TB_SECONDS(13);
    uint64_t total = 0;
    tb_pace_init(&p, 50000000, now);
    while (now < end) {
        const size_t n = tb_pace_take(&p, 1 << 20, now);
        total += n;
        now = n > 0 ? now + 1000 : tb_pace_ready_at(&p, 1 << 20, now);
    }
    assert_in_range(total, 499000000, 500000000 + p.burst_bytes);
}

static void a_rest_that_was_not_used_comes_back(void **state)
{
    (void)state;
    struct tb_pace p;
    tb_pace_init(&p, 1000000, 0);
    assert_int_equal(tb_pace_take(&p, 1000, 0), 0);
    assert_int_equal(tb_pace_take(&p, 1000, TB_MS(1)), 1000);
    assert_int_equal(tb_pace_take(&p, 1000, TB_MS(1)), 0);
    tb_pace_give_back(&p, 1000);
    assert_int_equal(tb_pace_take(&p, 1000, TB_MS(1)), 1000);
}

static void a_long_rest_saves_up_one_burst_only(void **state)
{
    (void)state;
    struct tb_pace p;
    tb_pace_init(&p, 1000000, 0);
    assert_int_equal(tb_pace_take(&p, 1 << 30, TB_SECONDS(1000000)), p.burst_bytes);
}

static void no_rate_is_no_limit(void **state)
{
    (void)state;
    struct tb_pace p;
    tb_pace_init(&p, 0, 0);
    assert_int_equal(tb_pace_take(&p, SIZE_MAX, 0), SIZE_MAX);
    assert_int_equal(tb_pace_ready_at(&p, 1, 5), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hungry_taker_gets_the_rate),
        cmocka_unit_test(a_rest_that_was_not_used_comes_back),
        cmocka_unit_test(a_long_rest_saves_up_one_burst_only),
        cmocka_unit_test(no_rate_is_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

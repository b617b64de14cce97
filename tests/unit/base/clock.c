/* The monotonic clock does not run backwards, arithmetic on it saturates, and random bytes
 * differ.
 * Covers: base/clock.c */
#include "base/clock.h"

#include <string.h>
#include <time.h>

#include "tests/unit/check.h"

static void monotonic(void **state)
{
    (void)state;
    tb_time_ns last = tb_clock_now();
    for (int i = 0; i < 10000; i++) {
        const tb_time_ns now = tb_clock_now();
        assert_true(now >= last);
        last = now;
    }
}

static void wall_is_the_time_of_day(void **state)
{
    (void)state;
    const uint64_t seconds = tb_clock_wall_ms() / 1000;
    const uint64_t want = (uint64_t)time(NULL);
    assert_true(seconds <= want + 1 && seconds + 60 >= want);
}

static void sums_saturate(void **state)
{
    (void)state;
    assert_true(tb_time_add(TB_SECONDS(1), TB_MS(500)) == UINT64_C(1500000000));
    assert_true(tb_time_add(TB_TIME_NEVER, 1) == TB_TIME_NEVER);
    assert_true(tb_time_add(TB_TIME_NEVER - 5, 6) == TB_TIME_NEVER);
    assert_true(tb_time_since(5, 9) == 4 && tb_time_since(9, 5) == 0);
    assert_true(tb_time_min(3, 2) == 2);
}

static void random_bytes_fill_all_and_differ(void **state)
{
    (void)state;
    uint8_t a[1000] = {0};
    uint8_t b[1000] = {0};
    tb_random_bytes(a, sizeof a - 1);
    tb_random_bytes(b, sizeof b - 1);
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(a[999], 0);
    uint8_t any = 0;
    for (size_t i = 960; i < 999; i++)
        any |= a[i];
    assert_int_not_equal(any, 0); /* the end was reached */
    tb_random_bytes(a, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(monotonic),
        cmocka_unit_test(wall_is_the_time_of_day),
        cmocka_unit_test(sums_saturate),
        cmocka_unit_test(random_bytes_fill_all_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

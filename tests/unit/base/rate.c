/* Rates and hours as people write them.
 * Covers: base/rate.c */
#include "base/rate.h"

#include "tests/unit/check.h"

static void rates_are_read_and_written_back(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bits;
        const char *back;
    } good[] = {{"none", 0, "none"},
                {"1Mbit", 1000000, "1Mbit"},
                {"1500Kbit", 1500000, "1500Kbit"},
                {"2000Mbit", 2000000000, "2Gbit"},
                {"1000001bit", 1000001, "1000001bit"},
                {"10000Gbit", TB_RATE_BIT_MAX, "10000Gbit"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t bits = 1;
        char back[TB_RATE_CHARS];
        assert_true(tb_rate_parse(good[i].text, &bits));
        assert_int_equal(bits, good[i].bits);
        tb_rate_format(bits, back);
        assert_string_equal(back, good[i].back);
    }
    static const char *const bad[] = {"",
                                      "0",
                                      "0Mbit",
                                      "999Kbit",
                                      "1mbit",
                                      "1 Mbit",
                                      "-1Mbit",
                                      "Mbit",
                                      "1Mbits",
                                      "1.5Gbit",
                                      "200",
                                      "10001Gbit",
                                      "99999999999999999999Gbit"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bits;
        if (tb_rate_parse(bad[i], &bits)) fail_msg("taken: %s", bad[i]);
    }
}

static void hours_are_read_and_written_back(void **state)
{
    (void)state;
    static const char *const good[] = {"08:00-18:00 50Mbit", "22:30-06:00 none", "00:00-24:00 1Gbit"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tb_rate_window w;
        char back[TB_RATE_CHARS];
        assert_true(tb_rate_window_parse(good[i], &w));
        tb_rate_window_format(&w, back);
        assert_string_equal(back, good[i]);
    }
    static const char *const bad[] = {"",
                                      "08:00-18:00",
                                      "08:00-18:00 ",
                                      "8:00-18:00 1Mbit",
                                      "08:00-25:00 1Mbit",
                                      "08:60-18:00 1Mbit",
                                      "08:00-08:00 1Mbit",
                                      "24:00-08:00 1Mbit",
                                      "08:00 18:00 1Mbit",
                                      "08:00-18:00  1Mbit",
                                      "08:00-18:00 fast"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tb_rate_window w;
        if (tb_rate_window_parse(bad[i], &w)) fail_msg("taken: %s", bad[i]);
    }
}

/* The first window that has the time; also over midnight; else the rate. */
static void the_hour_decides(void **state)
{
    (void)state;
    struct tb_rate_plan p = {.bit_per_s = 7000000, .window_count = 3};
    assert_true(tb_rate_window_parse("22:00-06:00 none", &p.windows[0]));
    assert_true(tb_rate_window_parse("08:00-18:00 50Mbit", &p.windows[1]));
    assert_true(tb_rate_window_parse("17:00-19:00 5Mbit", &p.windows[2]));
    static const struct {
        uint32_t hour, minute;
        uint64_t bits;
    } cases[] = {{0, 0, 0},          {5, 59, 0},       {6, 0, 7000000},  {7, 59, 7000000}, {8, 0, 50000000},
                 {17, 59, 50000000}, {18, 0, 5000000}, {19, 0, 7000000}, {22, 0, 0},       {23, 59, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tb_rate_at(&p, cases[i].hour * 3600 + cases[i].minute * 60), cases[i].bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_read_and_written_back),
        cmocka_unit_test(hours_are_read_and_written_back),
        cmocka_unit_test(the_hour_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Numbers as people read them, and a progress line that fits a terminal.
 * Covers: gateway/cli/output.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/cli/output.h"

static void bytes_have_three_digits(void **state)
{
    (void)state;
    assert_string_equal(tb_show_bytes(0).text, "0 B");
    assert_string_equal(tb_show_bytes(999).text, "999 B");
    assert_string_equal(tb_show_bytes(1000).text, "1.00 kB");
    assert_string_equal(tb_show_bytes(12345678).text, "12.3 MB");
    assert_string_equal(tb_show_bytes(999999999).text, "1.00 GB");
    assert_string_equal(tb_show_bytes(UINT64_MAX).text, "18.4 EB");
}

static void seconds_become_clock_time(void **state)
{
    (void)state;
    assert_string_equal(tb_show_seconds(0.42).text, "0.42 s");
    assert_string_equal(tb_show_seconds(59.2).text, "59 s");
    assert_string_equal(tb_show_seconds(187).text, "3:07");
    assert_string_equal(tb_show_seconds(7387).text, "2:03:07");
}

static void progress_has_share_rate_and_time_left(void **state)
{
    (void)state;
    char line[160];
    tb_progress_line(line, "fetching 12", 50000000, 200000000, 50000000, 2);
    assert_string_equal(line, "fetching 12   25 %  50.0 MB of 200 MB  25.0 MB/s  6.00 s left");
    tb_progress_line(line, "fetching 12", 200000000, 200000000, 200000000, 2);
    assert_string_equal(line, "fetching 12  100 %  200 MB of 200 MB  100 MB/s");
    tb_progress_line(line, "waiting", 0, 0, 0, 61);
    assert_string_equal(line, "waiting  1:01");
    tb_progress_line(line, "x", 0, UINT64_MAX, 0, 0);
    assert_string_equal(line, "x    0 %  0 B of 18.4 EB");
}

static void control_characters_do_not_reach_a_terminal(void **state)
{
    (void)state;
    char out[16];
    tb_show_clean("a\x1b[2J\nb\x7f", out, sizeof out);
    assert_string_equal(out, "a?[2J?b?");
    tb_show_clean("0123456789abcdefgh", out, sizeof out);
    assert_int_equal(strlen(out), 15);
    tb_show_clean("a\xc2\x9b"
                  "1m\xc2\x80\xc2\xa0\xc3\xbc",
                  out, sizeof out); /* U+009B begins a sequence, too */
    assert_string_equal(out, "a?1m?\xc2\xa0\xc3\xbc");
}

/* A text that is cut ends with a whole letter: half of one is no UTF-8. */
static void a_text_is_cut_between_letters(void **state)
{
    (void)state;
    char out[4];
    tb_show_clean("ab\xc3\xbc"
                  "c",
                  out, sizeof out);
    assert_string_equal(out, "ab");
    tb_show_clean("abc", out, sizeof out);
    assert_string_equal(out, "abc");
    tb_show_clean("\xf0\x9f\x90\x9f", out, sizeof out);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_three_digits),
        cmocka_unit_test(seconds_become_clock_time),
        cmocka_unit_test(progress_has_share_rate_and_time_left),
        cmocka_unit_test(control_characters_do_not_reach_a_terminal),
        cmocka_unit_test(a_text_is_cut_between_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

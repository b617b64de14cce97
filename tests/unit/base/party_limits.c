/* P7 P10: the bounds of one address, identity or stranger in a second or a minute: handshakes that
 * fail, frames that are garbled, lines in the log.
 * Covers: base/limits/keyed_rows.c base/limits/handshake_limits.c
 * Covers: base/limits/glitch_budget.c base/limits/line_limits.c */
#include "base/limits/glitch_budget.h"
#include "base/limits/handshake_limits.h"
#include "base/limits/line_limits.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/check.h"

static struct tb_handshake_limits doors;
static struct tb_glitch_budget glitches;
static struct tb_line_limits lines;

static int reset(void **state)
{
    (void)state;
    memset(&doors, 0, sizeof doors);
    memset(&lines, 0, sizeof lines);
    memset(&glitches, 0, sizeof glitches);
    doors.open_each = 32;
    doors.failed_each = 10;
    doors.open_all = 192;
    glitches.most[TB_GLITCH_GARBLED] = 20;
    glitches.most[TB_GLITCH_CANCELLED] = 1000;
    return 0;
}

/* ---- keys ---- */

/* P7: texts whose keys agree in so many bits without a salt have other ones with it, and another
 * salt gives others again. */
static void a_salt_parts_what_was_chosen_to_agree(void **state)
{
    (void)state;
    enum { BUCKETS = 64, CHOSEN = 256 };
    uint32_t found = 0, most = 0, same = 0, counts[BUCKETS] = {0};
    for (uint32_t i = 0; found < CHOSEN; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "model-%u", i);
        if (tb_key_of_text(text) % BUCKETS != 0) continue;
        found++;

        const uint32_t bucket = (uint32_t)(tb_key_of_salted(text, 7) % BUCKETS);
        if (++counts[bucket] > most) most = counts[bucket];
        same += tb_key_of_salted(text, 7) == tb_key_of_salted(text, 8);
    }
    assert_true(most < CHOSEN / 8);
    assert_int_equal(same, 0);
    assert_true(tb_key_of_salted("12345678", 7) != tb_key_of_salted("123456789", 7));
    assert_true(tb_key_of_salted("", 7) != 0);
}

/* ---- handshakes ---- */

static uint32_t opens(uint64_t address, uint32_t wanted, tb_time_ns now)
{
    uint32_t got = 0;
    for (uint32_t i = 0; i < wanted; i++)
        got += tb_handshake_begin(&doors, address, now);
    return got;
}

static void an_address_has_so_many_open(void **state)
{
    (void)state;
    assert_int_equal(opens(7, 100, 1), 32);
    assert_int_equal(doors.refused, 68);
    tb_handshake_end(&doors, 7, 2, true);
    assert_int_equal(opens(7, 100, 2), 1);
}

/* Two such addresses held out a third. */
static void addresses_that_take_all_they_can_leave_room(void **state)
{
    (void)state;
    for (uint64_t address = 1; address <= 6; address++)
        assert_int_equal(opens(address, 100, 1), 32);
    assert_int_equal(opens(7, 100, 1), 0); /* all addresses together */
}

/* limits.handshakes_open may be larger than all that there are. */
static void an_address_has_a_quarter_whatever_is_allowed(void **state)
{
    (void)state;
    doors.open_each = 4096;
    for (uint64_t address = 1; address <= 3; address++)
        assert_int_equal(opens(address, 1000, 1), 48);
    assert_int_equal(opens(4, 1, 1), 1);
}

/* As tb_network_key makes them. */
static uint64_t key_of_ipv4(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return UINT64_C(0xffff) << 32 | a << 24 | b << 16 | c << 8 | d;
}

/* Of 2001:db8:third:fourth::/64. */
static uint64_t key_of_ipv6(uint64_t third, uint64_t fourth)
{
    return UINT64_C(0x20010db8) << 32 | third << 16 | fourth;
}

/* One handshake of each of eight addresses kept out all others that begin as they do. */
static void addresses_of_one_network_have_rows_of_their_own(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        assert_true(tb_handshake_begin(&doors, key_of_ipv4(10, i / 50, 7 * i % 256, i), 1));
    memset(doors.rows, 0, sizeof doors.rows);
    doors.open = 0;
    for (uint64_t i = 0; i < 100; i++)
        assert_true(tb_handshake_begin(&doors, key_of_ipv6(i, 0), 1));
}

/* A party has as many networks of 64 bits as it likes. */
static void a_network_of_48_bits_has_a_quarter(void **state)
{
    (void)state;
    uint32_t open = 0, failed = 0;
    for (uint64_t i = 0; i < 1000; i++)
        open += opens(key_of_ipv6(7, i), 1, 1);
    assert_int_equal(open, 192 / 4);
    assert_int_equal(opens(key_of_ipv6(8, 0), 100, 1), 12);
    assert_int_equal(opens(key_of_ipv4(192, 0, 2, 1), 100, 1), 32);
    tb_handshake_end(&doors, key_of_ipv6(7, 0), 1, true);
    assert_int_equal(opens(key_of_ipv6(7, 9), 100, 1), 1);
    assert_int_equal(reset(NULL), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        if (!tb_handshake_begin(&doors, key_of_ipv6(7, i), 1)) continue;
        tb_handshake_end(&doors, key_of_ipv6(7, i), 1, false);
        failed++;
    }
    assert_int_equal(failed, 4 * 10);
    assert_true(tb_handshake_begin(&doors, key_of_ipv6(8, 0), 1));
}

/* Two of its addresses kept out all others. */
static void an_address_has_a_quarter_of_its_network(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(opens(key_of_ipv6(7, i), 100, 1), 192 / 16);
    assert_int_equal(opens(key_of_ipv6(7, 3), 1, 1), 1);
    assert_int_equal(reset(NULL), 0);
    for (uint64_t i = 0; i < 3; i++)
        for (uint32_t n = 0; n < 100; n++)
            if (tb_handshake_begin(&doors, key_of_ipv6(7, i), 1))
                tb_handshake_end(&doors, key_of_ipv6(7, i), 1, false);
    assert_true(tb_handshake_begin(&doors, key_of_ipv6(7, 3), 1));
}

static bool needed(const void *row, tb_time_ns now)
{
    (void)row, (void)now;
    return true;
}

/* Which eight places the row of an address has, without a salt. */
static ptrdiff_t places_of(uint64_t address)
{
    static struct tb_handshake_row rows[TB_HANDSHAKE_ROWS];
    memset(rows, 0, sizeof rows);
    const struct tb_handshake_row *row =
        tb_keyed_get(rows, TB_HANDSHAKE_ROWS, sizeof *row, tb_key_join(address, 0), 1, needed);
    return (row - rows) / (ptrdiff_t)TB_KEYED_WAYS;
}

/* A handshake of each of so many addresses whose rows have the victim's places. */
static void fill_places_of(uint64_t victim)
{
    uint32_t begun = 0;
    for (uint64_t address = victim + 1; begun < TB_KEYED_WAYS; address++)
        if (places_of(address) == places_of(victim)) begun += tb_handshake_begin(&doors, address, 1);
}

/* Where a row stands follows from what no stranger knows. */
static void addresses_cannot_be_chosen_that_take_anothers_row(void **state)
{
    (void)state;
    fill_places_of(7);
    assert_false(tb_handshake_begin(&doors, 7, 1)); /* so it would be */
    assert_int_equal(reset(NULL), 0);
    doors.salt = UINT64_C(0x5ca1ab1e0ddba11);
    fill_places_of(7);
    assert_true(tb_handshake_begin(&doors, 7, 1));
}

static void good_handshakes_cost_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        assert_true(tb_handshake_begin(&doors, 7, 1));
        tb_handshake_end(&doors, 7, 1, true);
    }
}

/* How many of an address begin and fail in a time, tried each millisecond. */
static uint32_t fail_for(uint64_t address, tb_time_ns from, uint32_t ms)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ms; i++) {
        if (!tb_handshake_begin(&doors, address, from + TB_MS(i))) continue;
        tb_handshake_end(&doors, address, from + TB_MS(i), false);
        count++;
    }
    return count;
}

static void failed_ones_are_ten_a_second(void **state)
{
    (void)state;
    assert_int_equal(fail_for(7, TB_SECONDS(1), 10), 10);
    assert_int_equal(fail_for(7, TB_SECONDS(1) + TB_MS(10), 990), 9 + 1);
    assert_int_equal(fail_for(7, TB_SECONDS(100), 10), 10); /* after a rest */
    assert_true(tb_handshake_begin(&doors, 8, TB_SECONDS(100) + TB_MS(10)));
}

static void any_number_of_addresses_fail_so_many_times_a_second(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (uint32_t address = 1; address <= 3000; address++)
        count += fail_for(address, TB_SECONDS(1), 1);
    assert_int_equal(count, 16 * 10);
}

/* All that may be open of an address fails, as often as it is let in. */
static void fail_all(uint64_t address, tb_time_ns now)
{
    const uint32_t begun = opens(address, 100, now);
    for (uint32_t i = 0; i < begun; i++)
        tb_handshake_end(&doors, address, now, false);
}

/* Four addresses that failed as fast as they may kept out all others. */
static void addresses_that_fail_all_the_time_leave_room(void **state)
{
    (void)state;
    for (uint32_t ms = 0; ms < 10000; ms++) {
        const tb_time_ns now = TB_SECONDS(1) + TB_MS(ms);
        for (uint64_t address = 1; address <= 8; address++)
            fail_all(address, now);
        assert_true(tb_handshake_begin(&doors, 9, now));
        tb_handshake_end(&doors, 9, now, true);
    }
}

/* ---- glitches ---- */

static bool glitched(uint64_t identity, enum tb_glitch_kind kind, uint32_t times, tb_time_ns now)
{
    bool shut = false;
    for (uint32_t i = 0; i < times; i++)
        shut |= tb_glitch_note(&glitches, identity, kind, now);
    return shut;
}

static void twenty_garbled_frames_a_minute_shut_out(void **state)
{
    (void)state;
    assert_false(glitched(7, TB_GLITCH_GARBLED, 19, 1));
    assert_false(glitched(7, TB_GLITCH_GARBLED, 19, 1 + TB_SECONDS(60))); /* another minute */
    assert_false(glitched(8, TB_GLITCH_GARBLED, 19, 1 + TB_SECONDS(60)));
    assert_int_equal(tb_glitch_shut(&glitches, 7, 1 + TB_SECONDS(60)), 0);
    assert_true(glitched(7, TB_GLITCH_GARBLED, 1, 2 + TB_SECONDS(60)));
    assert_int_equal(tb_glitch_shut(&glitches, 7, 2 + TB_SECONDS(60)), TB_SECONDS(10));
    assert_int_equal(tb_glitch_shut(&glitches, 8, 2 + TB_SECONDS(60)), 0);
    assert_int_equal(tb_glitch_shut(&glitches, 7, 2 + TB_SECONDS(70)), 0);
}

static void a_thousand_cancelled_requests_shut_out(void **state)
{
    (void)state;
    assert_false(glitched(7, TB_GLITCH_CANCELLED, 999, 1));
    assert_false(glitched(7, TB_GLITCH_GARBLED, 19, 1)); /* each kind by itself */
    assert_true(glitched(7, TB_GLITCH_CANCELLED, 1, 1));
    assert_int_equal(glitches.shut, 1);
}

static void each_time_is_twice_as_long(void **state)
{
    (void)state;
    static const uint32_t seconds[] = {10, 20, 40, 80, 160, 320, 600, 600};
    tb_time_ns now = 1;
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        assert_true(glitched(7, TB_GLITCH_GARBLED, 20, now));
        assert_int_equal(tb_glitch_shut(&glitches, 7, now), TB_SECONDS(seconds[i]));
        assert_false(glitched(7, TB_GLITCH_GARBLED, 100, now + 1)); /* what comes late counts for nothing */
        now += TB_SECONDS(seconds[i]);
        assert_int_equal(tb_glitch_shut(&glitches, 7, now), 0);
    }
    now += TB_SECONDS(600);
    assert_true(glitched(7, TB_GLITCH_GARBLED, 20, now));
    assert_int_equal(tb_glitch_shut(&glitches, 7, now), TB_SECONDS(10));
}

/* Many identities do not let one that is shut out in again. */
static void others_push_out_nobody_that_is_shut_out(void **state)
{
    (void)state;
    assert_true(glitched(7, TB_GLITCH_GARBLED, 20, 1));
    for (uint64_t other = 100; other < 100000; other++)
        (void)glitched(other, TB_GLITCH_GARBLED, 1, 2);
    assert_true(tb_glitch_shut(&glitches, 7, 3) > 0);
}

/* ---- lines ---- */

static uint32_t wrote(const char *event, const char *party, enum tb_line_party kind, uint32_t times,
                      tb_time_ns now)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < times; i++)
        count += tb_line_take(&lines, event, party, kind, now);
    return count;
}

static void lines_of_a_party_are_few_and_summed(void **state)
{
    (void)state;
    static const char event[] = "session.denied";
    struct tb_line_sum sum;
    const tb_time_ns at = TB_SECONDS(1);
    assert_int_equal(wrote(event, "unix:7", TB_LINE_OF_IDENTITY, 1000, at), TB_LINE_BURST);
    assert_int_equal(wrote(event, "unix:8", TB_LINE_OF_IDENTITY, 5, at), 5);
    assert_int_equal(wrote("session.open", "unix:7", TB_LINE_OF_IDENTITY, 5, at), 5);
    assert_int_equal(wrote(event, "unix:7", TB_LINE_OF_IDENTITY, 1000, at + TB_SECONDS(2)),
                     2 * TB_LINE_PER_S);
    assert_false(tb_line_sum_due(&lines, at + TB_SECONDS(2), &sum));
    assert_true(tb_line_sum_due(&lines, at + TB_LINE_TELL_EVERY, &sum));
    assert_string_equal(sum.event, event);
    assert_string_equal(sum.party, "unix:7");
    assert_int_equal(sum.lines, 2000 - TB_LINE_BURST - 2 * TB_LINE_PER_S);
    assert_int_equal(lines.suppressed, sum.lines);
    assert_false(tb_line_sum_due(&lines, at + 10 * TB_LINE_TELL_EVERY, &sum));
}

/* The rest of a millisecond is not lost: lines that come all the time get their two a second. */
static void lines_that_come_all_the_time_are_two_a_second(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (uint32_t i = 0; i < 20000; i++) /* each half millisecond for ten seconds */
        count +=
            tb_line_take(&lines, "hop.lost", "unix:7", TB_LINE_OF_IDENTITY, TB_SECONDS(1) + i * TB_US(500));
    assert_in_range(count, TB_LINE_BURST + 10 * TB_LINE_PER_S - 1, TB_LINE_BURST + 10 * TB_LINE_PER_S);
}

static void any_number_of_strangers_write_few_lines(void **state)
{
    (void)state;
    uint32_t count = 0;
    struct tb_line_sum sum;
    for (uint32_t i = 0; i < 5000; i++) {
        char address[32];
        (void)snprintf(address, sizeof address, "10.0.%u.%u", i / 250, i % 250);
        count += tb_line_take(&lines, "link.stranger_refused", address, TB_LINE_OF_STRANGER, TB_SECONDS(1));
    }
    assert_int_equal(count, 2 * TB_LINE_BURST);
    assert_true(tb_line_sum_due(&lines, TB_SECONDS(20), &sum));
    assert_string_equal(sum.party, "strangers");
    assert_int_equal(sum.lines, 5000 - 2 * TB_LINE_BURST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_salt_parts_what_was_chosen_to_agree),
        cmocka_unit_test_setup(an_address_has_so_many_open, reset),
        cmocka_unit_test_setup(addresses_that_take_all_they_can_leave_room, reset),
        cmocka_unit_test_setup(an_address_has_a_quarter_whatever_is_allowed, reset),
        cmocka_unit_test_setup(addresses_of_one_network_have_rows_of_their_own, reset),
        cmocka_unit_test_setup(a_network_of_48_bits_has_a_quarter, reset),
        cmocka_unit_test_setup(an_address_has_a_quarter_of_its_network, reset),
        cmocka_unit_test_setup(addresses_cannot_be_chosen_that_take_anothers_row, reset),
        cmocka_unit_test_setup(good_handshakes_cost_nothing, reset),
        cmocka_unit_test_setup(failed_ones_are_ten_a_second, reset),
        cmocka_unit_test_setup(any_number_of_addresses_fail_so_many_times_a_second, reset),
        cmocka_unit_test_setup(addresses_that_fail_all_the_time_leave_room, reset),
        cmocka_unit_test_setup(twenty_garbled_frames_a_minute_shut_out, reset),
        cmocka_unit_test_setup(a_thousand_cancelled_requests_shut_out, reset),
        cmocka_unit_test_setup(each_time_is_twice_as_long, reset),
        cmocka_unit_test_setup(others_push_out_nobody_that_is_shut_out, reset),
        cmocka_unit_test_setup(lines_of_a_party_are_few_and_summed, reset),
        cmocka_unit_test_setup(lines_that_come_all_the_time_are_two_a_second, reset),
        cmocka_unit_test_setup(any_number_of_strangers_write_few_lines, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Addresses that race: which is dialled when, as a trace in virtual time.
 * Covers: base/dial_race.c */
#include "base/dial_race.h"

#include <stdio.h>

#include "tests/unit/check.h"

/* Each address is open after `open_ms`, fails after `fail_ms`, or (both 0) never says anything. */
struct address {
    uint32_t open_ms, fail_ms;
};

struct run {
    struct tb_race race;
    const struct address *addresses;
    tb_time_ns dialled[16];
    bool ended[16];
    char trace[512];
    size_t used;
};

static void say(struct run *r, uint32_t ms, const char *what, uint32_t index)
{
    r->used += (size_t)snprintf(r->trace + r->used, sizeof r->trace - r->used, "%u %s %u\n", ms, what, index);
}

/* True: the race is over. */
static bool step(struct run *r, uint32_t ms)
{
    for (uint32_t i = 0; i < r->race.next; i++) {
        const struct address *a = &r->addresses[i];
        const uint32_t age = (uint32_t)((TB_MS(ms) - r->dialled[i]) / TB_MS(1));
        if (r->ended[i]) continue;
        if (a->open_ms > 0 && age >= a->open_ms) {
            tb_race_won(&r->race);
            say(r, ms, "won", i);
            return true;
        }
        if (a->fail_ms == 0 || age < a->fail_ms) continue;
        r->ended[i] = true;
        say(r, ms, "failed", i);
        if (!tb_race_failed(&r->race, TB_MS(ms))) continue;
        say(r, ms, "lost", i);
        return true;
    }
    for (uint32_t at; (at = tb_race_due(&r->race, TB_MS(ms))) != TB_RACE_NONE;) {
        r->dialled[at] = TB_MS(ms);
        say(r, ms, "dial", at);
    }
    return false;
}

static void race(struct run *r, const struct address *addresses, uint32_t count)
{
    *r = (struct run){.addresses = addresses};
    tb_race_begin(&r->race, count, 0);
    for (uint32_t ms = 0; ms < 5000; ms += 10)
        if (step(r, ms)) return;
    say(r, 5000, "still on", r->race.open);
}

static void a_good_address_is_the_only_one_dialled(void **state)
{
    (void)state;
    struct run r;
    race(&r, (const struct address[]){{80, 0}, {80, 0}}, 2);
    assert_string_equal(r.trace, "0 dial 0\n80 won 0\n");
}

/* P6: one that swallows everything costs 250 ms. */
static void silence_costs_its_delay(void **state)
{
    (void)state;
    struct run r;
    race(&r, (const struct address[]){{0, 0}, {0, 0}, {80, 0}}, 3);
    assert_string_equal(r.trace, "0 dial 0\n250 dial 1\n500 dial 2\n580 won 2\n");
}

static void a_slow_one_is_not_given_up_for_the_next(void **state)
{
    (void)state;
    struct run r;
    race(&r, (const struct address[]){{300, 0}, {200, 0}}, 2);
    assert_string_equal(r.trace, "0 dial 0\n250 dial 1\n300 won 0\n");
}

static void a_failure_begins_the_next_at_once(void **state)
{
    (void)state;
    struct run r;
    race(&r, (const struct address[]){{0, 10}, {0, 10}, {50, 0}}, 3);
    assert_string_equal(r.trace, "0 dial 0\n10 failed 0\n10 dial 1\n20 failed 1\n20 dial 2\n70 won 2\n");
}

static void the_race_is_lost_with_the_last(void **state)
{
    (void)state;
    struct run r;
    race(&r, (const struct address[]){{0, 400}, {0, 20}}, 2);
    assert_string_equal(r.trace, "0 dial 0\n250 dial 1\n270 failed 1\n400 failed 0\n400 lost 0\n");
}

/* The winner said no after all (a certificate, a BYE): what was not dialled yet is, what was
 * outrun is not again. */
static void a_winner_that_fails_is_followed_by_the_rest(void **state)
{
    (void)state;
    struct tb_race r;
    tb_race_begin(&r, 3, 0);
    assert_int_equal(tb_race_due(&r, 0), 0);
    assert_int_equal(tb_race_due(&r, TB_MS(250)), 1);
    tb_race_won(&r);
    assert_int_equal(tb_race_due(&r, TB_SECONDS(9)), TB_RACE_NONE);
    assert_false(tb_race_failed(&r, TB_SECONDS(9)));
    assert_int_equal(tb_race_due(&r, TB_SECONDS(9)), 2);
    assert_true(tb_race_failed(&r, TB_SECONDS(10)));
    assert_int_equal(tb_race_due(&r, TB_SECONDS(20)), TB_RACE_NONE);
    assert_false(tb_race_failed(&r, TB_SECONDS(20))); /* over is over */
    tb_race_begin(&r, 1, TB_SECONDS(30));
    tb_race_end(&r);
    assert_int_equal(tb_race_due(&r, TB_SECONDS(30)), TB_RACE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_address_is_the_only_one_dialled),
        cmocka_unit_test(silence_costs_its_delay),
        cmocka_unit_test(a_slow_one_is_not_given_up_for_the_next),
        cmocka_unit_test(a_failure_begins_the_next_at_once),
        cmocka_unit_test(the_race_is_lost_with_the_last),
        cmocka_unit_test(a_winner_that_fails_is_followed_by_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

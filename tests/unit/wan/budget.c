/* A day's bytes: counted, warned of, held, and never more than the budget however often
 * the gateway is killed.
 *
 * Covers: wan/send/budget.c */
#include "wan/send/budget.h"

#include "tests/unit/check.h"

static void it_warns_and_then_holds(void **state)
{
    (void)state;
    struct tb_budget b = {.day_bytes = 1000, .day = 7};
    assert_string_equal(tb_budget_state_name(tb_budget_state(&b)), "ok");
    tb_budget_count(&b, 7, 799);
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_OK);
    tb_budget_count(&b, 7, 1);
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_WARNED);
    assert_int_equal(tb_budget_left(&b), 200);
    tb_budget_count(&b, 7, 250); /* parcels that were on their way */
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_HELD);
    assert_int_equal(tb_budget_left(&b), 0);
    b.day_bytes = 2000; /* an operator */
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_OK);
    b.day_bytes = 0;
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_NONE);
    assert_int_equal(tb_budget_left(&b), UINT64_MAX);
}

/* Less than a chunk is left: that is the hold. It outlives a kill, and ends with the day. */
static void too_little_is_nothing(void **state)
{
    (void)state;
    struct tb_budget b = {.day_bytes = 1000, .day = 7};
    uint64_t bytes = 0;
    tb_budget_count(&b, 7, 950);
    assert_true(tb_budget_save(&b, &bytes));
    assert_int_equal(bytes, 953);
    b.short_bytes = 51;
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_HELD);
    assert_true(tb_budget_save(&b, &bytes));
    assert_int_equal(bytes, 1000);
    assert_false(tb_budget_save(&b, &bytes));
    b.short_bytes = 50;
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_WARNED);
    b.short_bytes = 51;
    tb_budget_count(&b, 8, 0);
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_OK);
}

static void a_new_day_begins_with_nothing(void **state)
{
    (void)state;
    struct tb_budget b = {.day_bytes = 1000, .day = 7, .used_bytes = 1000};
    tb_budget_count(&b, 6, 0); /* a clock that went back */
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_HELD);
    tb_budget_count(&b, 8, 10);
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_OK);
    assert_int_equal(tb_budget_left(&b), 990);
}

/* P6: a clock that was days ahead holds nothing up for days once it is right again, nor is what was
 * sent meanwhile forgotten. */
static void a_clock_that_was_days_ahead_holds_for_a_day(void **state)
{
    (void)state;
    struct tb_budget b = {.day_bytes = 1000, .day = 7};
    uint64_t bytes = 0;
    tb_budget_count(&b, 12, 1000);
    assert_true(tb_budget_save(&b, &bytes));
    tb_budget_count(&b, 7, 0);
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_HELD);
    assert_int_equal(b.day, 7);
    assert_true(tb_budget_save(&b, &bytes)); /* or a restart would find the day that was a mistake */
    assert_int_equal(bytes, 1000);
    assert_false(tb_budget_save(&b, &bytes));
    tb_budget_count(&b, 8, 10);
    assert_int_equal(tb_budget_state(&b), TB_BUDGET_OK);
    assert_int_equal(tb_budget_left(&b), 990);
}

static void bytes_written_down_count_today(void **state)
{
    (void)state;
    struct tb_budget b = {.day_bytes = 1000};
    tb_budget_restore(&b, 7, 600, 7);
    assert_int_equal(tb_budget_left(&b), 400);
    tb_budget_restore(&b, 6, 600, 7);
    assert_int_equal(tb_budget_left(&b), 1000);
    tb_budget_restore(&b, 8, 600, 7); /* around midnight, by a clock that went back a little */
    assert_int_equal(tb_budget_left(&b), 400);
    tb_budget_restore(&b, 700, 600, 7); /* a clock was wrong by years: that holds nothing up */
    assert_int_equal(tb_budget_left(&b), 1000);
}

/* P3: killed after each parcel, it has sent no more than the budget and that parcel; killed
 * rarely, nearly all of it. */
static void kills_do_not_stretch_it(void **state)
{
    (void)state;
    for (uint32_t life_parcels = 1; life_parcels <= 1000; life_parcels *= 10) {
        struct tb_budget b = {.day_bytes = 1 << 20};
        uint64_t disk = 0, sent = 0;
        tb_budget_restore(&b, 7, 0, 7);
        for (uint32_t i = 0; i < 5000; i++) {
            if (i % life_parcels == 0) tb_budget_restore(&b, 7, disk, 7);
            if (tb_budget_left(&b) == 0) continue;
            sent += 1024;
            tb_budget_count(&b, 7, 1024);
            (void)tb_budget_save(&b, &disk); /* on the disk before the next parcel */
            assert_true(disk >= b.used_bytes);
        }
        assert_in_range(sent, life_parcels >= 100 ? (1 << 20) * 15 / 16 : 1 << 17, (1 << 20) + 1024);
    }
}

static void little_is_written(void **state)
{
    (void)state;
    struct tb_budget b = {.day_bytes = 1 << 30, .day = 7};
    uint32_t writes = 0;
    for (uint32_t i = 0; i < (1u << 30) / 4096 + 1000; i++) {
        uint64_t bytes = 0;
        tb_budget_count(&b, 7, 4096);
        writes += tb_budget_save(&b, &bytes);
    }
    assert_in_range(writes, 200, 1400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_warns_and_then_holds),
        cmocka_unit_test(too_little_is_nothing),
        cmocka_unit_test(a_new_day_begins_with_nothing),
        cmocka_unit_test(a_clock_that_was_days_ahead_holds_for_a_day),
        cmocka_unit_test(bytes_written_down_count_today),
        cmocka_unit_test(kills_do_not_stretch_it),
        cmocka_unit_test(little_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* lag.c - one reason for each site that is behind, and a range or no estimate. */
#include "gateway/daemon/lag.h"

#include "tests/unit/check.h"

static void the_first_reason_that_holds_is_the_one(void **state)
{
    (void)state;
    struct tb_lag_facts f = {.heard = false,
                             .behind = true,
                             .store_down = true,
                             .linked = false,
                             .lacks_room = true,
                             .unsealed = true,
                             .spent = true,
                             .asked = true,
                             .begun = false,
                             .still = true};
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_UNHEARD);
    f.heard = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_STORE);
    f.store_down = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_LINK_DOWN);
    f.linked = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_NO_ROOM);
    f.lacks_room = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_UNSEALED);
    f.unsealed = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_DAY_SPENT);
    f.spent = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_MANIFESTS);
    f.asked = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_QUEUED);
    f.begun = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_STALLED);
    f.still = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_CROSSING);
    f.behind = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_NONE);
    assert_string_equal(tb_lag_name(TB_LAG_NO_ROOM), "no_room");
    assert_string_equal(tb_lag_why(TB_LAG_CROSSING), "it is on its way");
}

/* A link may have been idle for long when a version begins on it. */
static void what_just_began_does_not_stand(void **state)
{
    (void)state;
    struct tb_lag_pace p = {0};
    assert_false(tb_lag_stands(&p, TB_SECONDS(10)));
    for (int i = 0; i < 3; i++)
        tb_lag_look(&p, 100);
    assert_true(tb_lag_still(&p));
    assert_false(tb_lag_stands(&p, 0));
    assert_false(tb_lag_stands(&p, TB_SECONDS(3) - 1));
    assert_true(tb_lag_stands(&p, TB_SECONDS(3)));
    tb_lag_look(&p, 101);
    assert_false(tb_lag_stands(&p, TB_SECONDS(3)));
}

static void an_estimate_is_a_range_or_none(void **state)
{
    (void)state;
    struct tb_lag_pace p = {0};
    struct tb_lag_eta eta;
    assert_false(tb_lag_estimate(&p, 1000, &eta));
    tb_lag_look(&p, 100);
    assert_false(tb_lag_estimate(&p, 1000, &eta)); /* one second says nothing */
    tb_lag_look(&p, 300);
    assert_true(tb_lag_estimate(&p, 1000, &eta));
    assert_true(eta.low_s == 5 && eta.high_s == 10);
    assert_false(tb_lag_still(&p));
    tb_lag_look(&p, 300);
    assert_false(tb_lag_estimate(&p, 1000, &eta)); /* a second without anything: who knows */
    assert_false(tb_lag_still(&p));
    tb_lag_look(&p, 300);
    assert_true(tb_lag_still(&p));
    for (uint64_t bytes = 400; bytes <= 800; bytes += 100)
        tb_lag_look(&p, bytes);
    assert_true(tb_lag_estimate(&p, 1000, &eta)); /* the silence is more than five seconds ago */
    assert_true(eta.low_s == 10 && eta.high_s == 10);
    tb_lag_look(&p, 0); /* another version: what it counts begins anew */
    assert_false(tb_lag_estimate(&p, 1000, &eta));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_reason_that_holds_is_the_one),
        cmocka_unit_test(what_just_began_does_not_stand),
        cmocka_unit_test(an_estimate_is_a_range_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* When a crossing may be given up, and that this ends, however wrong the estimates are.
 *
 * Covers: gateway/catalog/crossing_abandonment.c */
#include "gateway/catalog/crossing_abandonment.h"

#include "tests/unit/check.h"

static bool ask(struct tb_abandon *a, uint64_t left, uint64_t newer)
{
    return tb_abandon_ask(a, &(struct tb_abandon_view){left, newer});
}

static void only_what_is_clearly_sooner_is_taken(void **state)
{
    (void)state;
    struct tb_abandon a = {0};
    assert_false(ask(&a, 1000, 1000)); /* a whole new version against a whole old one */
    assert_false(ask(&a, 1000, 900));  /* within the error of an estimate */
    assert_false(ask(&a, 0, 0));
    assert_false(ask(&a, 10, 1000));
    assert_true(ask(&a, 1000, 20)); /* a delta against a first copy */
}

/* The promise has to be beaten too. A newer version that is sooner only because the crossing got
 * slower is not sooner than the promise. */
static void a_promised_time_is_beaten_or_kept(void **state)
{
    (void)state;
    struct tb_abandon a = {0};
    assert_true(ask(&a, 1000, 500));
    tb_abandon_came(&a, 100);
    assert_false(ask(&a, 2000, 390)); /* it turned out larger than it was said to be */
    assert_true(ask(&a, 2000, 340));
    tb_abandon_came(&a, 400);
    assert_false(ask(&a, 2000, 1)); /* its time is over: nothing is sooner than that */
    tb_abandon_whole(&a);
    assert_true(ask(&a, 2000, 1));
}

/* P6: a trainer that publishes without end, and an estimate that always says "soon". */
static void giving_up_ends(void **state)
{
    (void)state;
    for (uint64_t liar = 1; liar <= 1000; liar *= 10) {
        struct tb_abandon a = {0};
        uint32_t given_up = 0;
        for (uint32_t i = 0; i < 100000; i++)
            given_up += ask(&a, UINT64_C(1) << 40, (UINT64_C(1) << 39) / liar + i % 7);
        assert_in_range(given_up, 1, 2);
        /* Each one estimated as less than the one before: what is there to promise shrinks by
         * an eighth each time. */
        a = (struct tb_abandon){0};
        given_up = 0;
        for (uint64_t newer = UINT64_C(1) << 40; newer > 0; newer -= newer / 100 + 1)
            given_up += ask(&a, UINT64_C(1) << 41, newer);
        assert_in_range(given_up, 2, 41 * 6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_clearly_sooner_is_taken),
        cmocka_unit_test(a_promised_time_is_beaten_or_kept),
        cmocka_unit_test(giving_up_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

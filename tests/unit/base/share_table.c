/* P7: one owner has a quarter of a table, and the last quarter is for those that a site cannot do
 * without.
 * Covers: base/limits/share_table.c */
#include "base/limits/share_table.h"

#include <string.h>

#include "tests/unit/check.h"

#define BOUND 64u

static struct tb_share places[256];

static struct tb_share_table table_of(uint32_t bound)
{
    struct tb_share_table t;
    memset(places, 0, sizeof places);
    assert_true(tb_share_places(bound) <= 256);
    tb_share_init(&t, tb_share_places(bound) != 0 ? places : NULL, bound);
    return t;
}

static uint32_t takes(struct tb_share_table *t, uint64_t owner, bool preferred, uint32_t wanted)
{
    uint32_t got = 0;
    while (got < wanted && tb_share_room(t, owner, preferred)) {
        tb_share_take(t, owner);
        got++;
    }
    return got;
}

static void one_owner_has_a_quarter(void **state)
{
    (void)state;
    struct tb_share_table t = table_of(BOUND);
    assert_int_equal(takes(&t, 7, false, BOUND), BOUND / 4);
    assert_int_equal(takes(&t, 7, true, BOUND), 0); /* a publisher, too */
    assert_int_equal(takes(&t, 8, true, BOUND), BOUND / 4);
    tb_share_give(&t, 7);
    assert_int_equal(takes(&t, 7, false, BOUND), 1);
}

static void any_number_of_others_leave_a_quarter(void **state)
{
    (void)state;
    struct tb_share_table t = table_of(BOUND);
    uint32_t got = 0;
    for (uint64_t owner = 1; owner <= BOUND; owner++)
        got += takes(&t, owner, false, 1);
    assert_int_equal(got, BOUND - BOUND / 4);
    assert_int_equal(takes(&t, 999, true, BOUND), BOUND / 4);
    assert_int_equal(t.used, BOUND);
    assert_int_equal(takes(&t, 1000, true, 1), 0); /* of a full table nobody has a share */
}

static void our_own_rows_have_no_share(void **state)
{
    (void)state;
    struct tb_share_table t = table_of(BOUND);
    assert_int_equal(takes(&t, TB_SHARE_OURS, false, 2 * BOUND), 2 * BOUND);
    assert_int_equal(t.used, 0);
}

static void a_small_table_is_not_divided(void **state)
{
    (void)state;
    struct tb_share_table t = table_of(TB_SHARE_LEAST - 1);
    assert_null(t.places);
    assert_int_equal(tb_share_most(&t), TB_SHARE_LEAST - 1);
    assert_int_equal(takes(&t, 7, false, TB_SHARE_LEAST), TB_SHARE_LEAST);
    tb_share_give(&t, 7);
}

/* Against a list, with owners that share places and come and go in any order. */
static void counts_are_right_as_owners_come_and_go(void **state)
{
    (void)state;
    struct tb_share_table t = table_of(BOUND);
    uint32_t has[40] = {0}, all = 0;
    uint32_t chance = 12345;
    for (int step = 0; step < 20000; step++) {
        chance = chance * 1664525u + 1013904223u;
        const uint32_t i = (chance >> 8) % 40;
        const uint64_t owner = 1 + (uint64_t)i * 4096;
        const bool gives = (chance >> 20) % 2 != 0;
        if (gives && has[i] > 0) {
            tb_share_give(&t, owner);
            has[i]--, all--;
        } else if (!gives && tb_share_room(&t, owner, true) && all < BOUND) {
            tb_share_take(&t, owner);
            has[i]++, all++;
        }
        assert_int_equal(t.used, all);
        for (uint32_t j = 0; step % 100 == 0 && j < 40; j++)
            assert_int_equal(tb_share_used(&t, 1 + (uint64_t)j * 4096), has[j]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_owner_has_a_quarter),
        cmocka_unit_test(any_number_of_others_leave_a_quarter),
        cmocka_unit_test(our_own_rows_have_no_share),
        cmocka_unit_test(a_small_table_is_not_divided),
        cmocka_unit_test(counts_are_right_as_owners_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* lag_verdict.c - the worst row is the first, nothing unknown is fine, and each reason has its
 * advice (P10).
 *
 * Covers: gateway/cli/operator/lag_verdict.c */
#include "gateway/cli/operator/lag_verdict.h"

#include <stdio.h>
#include <string.h>

#include "gateway/daemon/links/lag.h"
#include "tests/unit/check.h"

static json_t *row(const char *site, const char *reason, bool known, int versions, double seconds)
{
    json_t *r = known ? json_pack("{s:s,s:s,s:b,s:i,s:f}", "site", site, "reason", reason, "known", 1,
                                  "versions", versions, "seconds", seconds)
                      : json_pack("{s:s,s:s,s:b,s:n,s:n}", "site", site, "reason", reason, "known", 0,
                                  "versions", "seconds");
    assert_non_null(r);
    return r;
}

static void expect_order(const json_t *rows, const char *sites)
{
    char found[256] = "";
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *site = json_string_value(json_object_get(json_array_get(rows, i), "site"));
        const size_t used = strlen(found);
        (void)snprintf(found + used, sizeof found - used, "%s ", site);
    }
    assert_string_equal(found, sites);
}

static void the_worst_row_is_the_first(void **state)
{
    (void)state;
    json_t *rows = json_array();
    json_array_append_new(rows, row("well", "up-to-date", true, 0, 0));
    json_array_append_new(rows, row("wanted", "pinned", true, 9, 900));
    json_array_append_new(rows, row("silent", "unknown", false, 0, 0));
    json_array_append_new(rows, row("idle", "worker-not-activating", true, 0, 0));
    json_array_append_new(rows, row("late", "link-down", true, 1, 40));
    json_array_append_new(rows, row("later", "no-room", true, 2, 41));
    json_array_append_new(rows, row("well too", "up-to-date", true, 0, 0));
    tb_lag_verdict_sort(rows);
    expect_order(rows, "later late silent idle wanted well well too ");
    tb_lag_verdict_sort(rows);
    expect_order(rows, "later late silent idle wanted well well too ");
    json_decref(rows);
}

static void a_strangers_word_is_sorted_too(void **state)
{
    (void)state;
    tb_lag_verdict_sort(NULL);
    json_t *rows = json_pack("[i,n,{s:i},{}]", 1, "reason", 7);
    assert_non_null(rows);
    tb_lag_verdict_sort(rows);
    assert_int_equal(json_array_size(rows), 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(tb_lag_verdict_severity(json_array_get(rows, i), 1, 2), TB_LAG_NOT_KNOWN);
    json_decref(rows);
}

static void expect_severity(json_t *r, enum tb_lag_severity expected)
{
    assert_int_equal(tb_lag_verdict_severity(r, 30, 120), expected);
    json_decref(r);
}

static void how_long_it_is_behind_counts(void **state)
{
    (void)state;
    expect_severity(row("a", "up-to-date", true, 0, 500), TB_LAG_FINE);
    expect_severity(row("a", "crossing", true, 1, 29.9), TB_LAG_FINE);
    expect_severity(row("a", "crossing", true, 1, 30), TB_LAG_WARNING);
    expect_severity(row("a", "link-down", true, 1, 120), TB_LAG_CRITICAL);
    expect_severity(row("a", "pinned", true, 5, 900), TB_LAG_FINE);
    expect_severity(row("a", "no-subscriber", true, 5, 900), TB_LAG_FINE);
    expect_severity(row("a", "link-down", false, 5, 900), TB_LAG_NOT_KNOWN);
    expect_severity(row("a", "unknown", true, 0, 0), TB_LAG_NOT_KNOWN);
    assert_int_equal(tb_lag_verdict_worse(TB_LAG_NOT_KNOWN, TB_LAG_CRITICAL), TB_LAG_CRITICAL);
    assert_int_equal(tb_lag_verdict_worse(TB_LAG_WARNING, TB_LAG_NOT_KNOWN), TB_LAG_NOT_KNOWN);
    assert_int_equal(tb_lag_verdict_worse(TB_LAG_WARNING, TB_LAG_FINE), TB_LAG_WARNING);
}

/* A new reason gets its advice here, or its place in this list. */
static void each_reason_has_its_advice(void **state)
{
    (void)state;
    static const char *const nothing[] = {"up-to-date", "crossing", "no-subscriber"};
    for (uint16_t reason = 0; reason < TB_LAG_REASON_END; reason++) {
        bool is_nothing = false;
        for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
            is_nothing |= strcmp(nothing[i], tb_lag_name(reason)) == 0;
        if ((tb_lag_verdict_advice(tb_lag_name(reason)) == NULL) != is_nothing)
            fail_msg("%s: advice is %s", tb_lag_name(reason), is_nothing ? "there" : "missing");
    }
    assert_null(tb_lag_verdict_advice("of a later release"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_row_is_the_first),
        cmocka_unit_test(a_strangers_word_is_sorted_too),
        cmocka_unit_test(how_long_it_is_behind_counts),
        cmocka_unit_test(each_reason_has_its_advice),
    };
    return cmocka_run_group_tests_name("lag_verdict", tests, NULL, NULL);
}

/* grant_table.c - tokens that workers were asked to accept: which answer counts, and that the
 * table is empty again afterwards (P7).
 *
 * Covers: gateway/daemon/sessions/grant_table.c */
#include "gateway/daemon/sessions/grant_table.h"

#include "tests/unit/check.h"

#define BOUND 3u

static const struct tb_id owner = {{1}}, stranger = {{2}};

static void answered(struct tb_daemon *d, const struct tb_grant_wait *grant, enum tb_status status)
{
    (void)d, (void)grant, (void)status;
}

static struct tb_grant_wait grant_of(uint8_t token, tb_time_ns deadline)
{
    return (struct tb_grant_wait){
        .token = {{token}}, .owner = owner, .deadline = deadline, .answer = answered};
}

static void put(struct tb_grant_table *t, uint8_t token, tb_time_ns deadline)
{
    const struct tb_grant_wait grant = grant_of(token, deadline);
    CHECK_OK(tb_grants_put(t, BOUND, &grant));
    tb_grants_check(t);
}

static bool take(struct tb_grant_table *t, const struct tb_id *from, uint8_t token)
{
    struct tb_grant_wait out;
    const bool taken = tb_grants_take(t, from, &(struct tb_id){{token}}, &out);
    assert_true(!taken || (out.token.bytes[0] == token && out.next == NULL));
    tb_grants_check(t);
    return taken;
}

static void an_answer_counts_once(void **state)
{
    (void)state;
    struct tb_grant_table t = {0};
    put(&t, 7, 100);
    put(&t, 8, 100);
    assert_true(take(&t, &owner, 7));
    assert_false(take(&t, &owner, 7));
    assert_true(take(&t, &owner, 8));
    assert_null(t.first);
}

static void an_answer_counts_from_the_owner_alone(void **state)
{
    (void)state;
    struct tb_grant_table t = {0};
    put(&t, 7, 100);
    assert_false(take(&t, &stranger, 7));
    assert_false(take(&t, &owner, 9));
    assert_true(take(&t, &owner, 7));
}

static void a_row_is_late_at_its_deadline(void **state)
{
    (void)state;
    struct tb_grant_table t = {0};
    struct tb_grant_wait late;
    put(&t, 7, 100);
    put(&t, 8, 200);
    assert_false(tb_grants_take_late(&t, 99, &late));
    assert_true(tb_grants_take_late(&t, 100, &late));
    assert_int_equal(late.token.bytes[0], 7);
    assert_false(tb_grants_take_late(&t, 100, &late));
    assert_false(take(&t, &owner, 7));
    assert_true(take(&t, &owner, 8));
}

static void a_token_that_was_dropped_is_stale(void **state)
{
    (void)state;
    struct tb_grant_table t = {0};
    put(&t, 7, 100);
    put(&t, 8, 100);
    tb_grants_drop(&t, &(struct tb_id){{7}});
    tb_grants_check(&t);
    assert_false(take(&t, &owner, 7));
    assert_true(take(&t, &owner, 8));
}

static void use_returns_to_its_start(void **state)
{
    (void)state;
    struct tb_grant_table t = {0};
    for (uint8_t token = 1; token <= BOUND; token++)
        put(&t, token, 100);
    const struct tb_grant_wait more = grant_of(BOUND + 1, 100);
    CHECK_STATUS(tb_grants_put(&t, BOUND, &more), TB_SITE_NOMEM);
    assert_int_equal(t.gauge.refused, 1);
    assert_int_equal(t.gauge.used, BOUND);
    assert_true(take(&t, &owner, 2));
    CHECK_OK(tb_grants_put(&t, BOUND, &more)); /* there is room again */
    tb_grants_free(&t);
    tb_grants_check(&t);
    assert_int_equal(t.gauge.used, 0);
    assert_int_equal(t.gauge.most, BOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_counts_once),
        cmocka_unit_test(an_answer_counts_from_the_owner_alone),
        cmocka_unit_test(a_row_is_late_at_its_deadline),
        cmocka_unit_test(a_token_that_was_dropped_is_stale),
        cmocka_unit_test(use_returns_to_its_start),
    };
    return cmocka_run_group_tests_name("grant_table", tests, NULL, NULL);
}

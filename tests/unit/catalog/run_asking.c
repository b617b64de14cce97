/* When a home whose store is new may open a run, has to wait, or refuses.
 *
 * Covers: gateway/catalog/run_asking.c */
#include "gateway/catalog/run_asking.h"

#include "tests/unit/check.h"

static const struct tb_run_asking two = {.asked = 3, .until = TB_RUN_ASKING_WAIT};

static void every_peer_that_may_read_answers_first(void **state)
{
    (void)state;
    struct tb_run_asking a = two;
    assert_int_equal(tb_run_asking_judge(&a, 0, 0), TB_RUN_ASKING_WAIT_ON);
    a.told = 1;
    assert_int_equal(tb_run_asking_judge(&a, 0, 0), TB_RUN_ASKING_WAIT_ON);
    assert_int_equal(tb_run_asking_left(&a), 2);
    a.told = 3;
    assert_int_equal(tb_run_asking_judge(&a, 0, 0), TB_RUN_ASKING_OPEN);
}

static void a_home_without_readers_waits_for_nobody(void **state)
{
    (void)state;
    const struct tb_run_asking alone = {.told = 4};
    assert_int_equal(tb_run_asking_judge(&alone, 0, 0), TB_RUN_ASKING_OPEN);
}

static void the_wait_is_30_s(void **state)
{
    (void)state;
    assert_int_equal(TB_RUN_ASKING_WAIT, TB_SECONDS(30));
    assert_int_equal(tb_run_asking_judge(&two, 0, TB_SECONDS(30) - 1), TB_RUN_ASKING_WAIT_ON);
    assert_int_equal(tb_run_asking_judge(&two, 0, TB_SECONDS(30)), TB_RUN_ASKING_REFUSE);
}

/* A peer of an older protocol never answers: once only such peers are left, nobody waits. */
static void peers_without_the_question_are_not_waited_for(void **state)
{
    (void)state;
    struct tb_run_asking a = two;
    assert_int_equal(tb_run_asking_judge(&a, 2, 0), TB_RUN_ASKING_WAIT_ON);
    a.told = 1;
    assert_int_equal(tb_run_asking_judge(&a, 2, 0), TB_RUN_ASKING_REFUSE);
    assert_int_equal(tb_run_asking_judge(&two, 7, 0), TB_RUN_ASKING_REFUSE);
}

static void an_operator_overrides(void **state)
{
    (void)state;
    struct tb_run_asking a = two;
    a.forced = true;
    assert_int_equal(tb_run_asking_judge(&a, 0, 0), TB_RUN_ASKING_OPEN);
    assert_int_equal(tb_run_asking_judge(&a, 3, TB_SECONDS(60)), TB_RUN_ASKING_OPEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_peer_that_may_read_answers_first),
        cmocka_unit_test(a_home_without_readers_waits_for_nobody),
        cmocka_unit_test(the_wait_is_30_s),
        cmocka_unit_test(peers_without_the_question_are_not_waited_for),
        cmocka_unit_test(an_operator_overrides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* P1 P7: the work that a reporter of damaged chunks can make for their holder.
 * Covers: base/damage_reports.c */
#include "base/damage_reports.h"

#include "tests/unit/check.h"

static const struct tb_id v1 = {{1}}, v2 = {{2}};

static bool reported(struct tb_doubts *d, tb_time_ns now, const struct tb_id *uid, uint64_t reporter,
                     uint32_t chunk)
{
    const struct tb_doubt doubt = {.uid = *uid, .reporter = reporter, .chunk = chunk, .at = now};
    return tb_doubts_take(d, &doubt);
}

static void a_chunk_is_digested_once_a_second(void **state)
{
    (void)state;
    struct tb_doubts d = {0};
    assert_true(reported(&d, 1, &v1, 7, 3));
    assert_false(reported(&d, 1, &v1, 8, 3));
    assert_false(reported(&d, TB_DOUBTS_EVERY, &v1, 7, 3));
    assert_true(reported(&d, TB_DOUBTS_EVERY, &v2, 7, 3)); /* another version's */
    assert_true(reported(&d, TB_DOUBTS_EVERY + 1, &v1, 7, 3));
    assert_false(reported(&d, TB_DOUBTS_EVERY + 2, &v1, 7, 3));
}

static void shards_and_holders_have_chunks_of_one_number(void **state)
{
    (void)state;
    struct tb_doubts d = {0};
    struct tb_doubt doubt = {.uid = v1, .shard = 0, .chunk = 3, .at = 1};
    assert_true(tb_doubts_take(&d, &doubt));
    doubt.shard = 1;
    assert_true(tb_doubts_take(&d, &doubt));
    assert_false(tb_doubts_take(&d, &doubt));
    doubt.holder = 5; /* another copy of it */
    assert_true(tb_doubts_take(&d, &doubt));
}

/* P7: a liar that names another chunk each time costs a bounded number of digests a second, and
 * leaves some to the others. */
static void a_liar_uses_up_its_own_looks(void **state)
{
    (void)state;
    struct tb_doubts d = {0};
    uint32_t taken = 0;
    for (uint32_t chunk = 0; chunk < 1000; chunk++)
        taken += reported(&d, 1 + chunk, &v1, 7, chunk);
    assert_int_equal(taken, TB_DOUBTS_EACH);
    assert_true(reported(&d, 2000, &v2, 8, 0));
}

static void many_liars_use_up_all_looks_of_a_second(void **state)
{
    (void)state;
    struct tb_doubts d = {0};
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 1000; i++)
        taken += reported(&d, 1, &v1, i, i);
    assert_int_equal(taken, TB_DOUBTS_MAX);
    assert_false(reported(&d, TB_DOUBTS_EVERY, &v1, 2000, 2000));
    for (uint32_t i = 0; i < 1000; i++)
        taken += reported(&d, TB_DOUBTS_EVERY + 1, &v1, i, i);
    assert_int_equal(taken, 2 * TB_DOUBTS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_digested_once_a_second),
        cmocka_unit_test(shards_and_holders_have_chunks_of_one_number),
        cmocka_unit_test(a_liar_uses_up_its_own_looks),
        cmocka_unit_test(many_liars_use_up_all_looks_of_a_second),
    };
    return cmocka_run_group_tests_name("unit.base.damage_reports", tests, NULL, NULL);
}

/* codec_trial.c - every way but raw is tried, and a speed that is not known stays not known.
 *
 * Covers: wan/send/codec_trial.c */
#include "wan/send/codec_trial.h"

#include "base/fault.h"
#include "tests/unit/check.h"

static void every_way_has_speeds(void **state)
{
    (void)state;
    struct tb_choice_speed speeds[TB_WAYS];
    struct tb_choice c;
    tb_choice_trial(speeds);
    assert_true(speeds[TB_WAY_RAW].encode == 0);
    for (int w = TB_WAY_RAW + 1; w < TB_WAY_CHAINED; w++)
        assert_true(speeds[w].encode > 0 && speeds[w].decode > 0);
    tb_choice_init(&c, TB_CHOICE_AUTO, 2);
    const double saving = c.ways[TB_KIND_F32][TB_WAY_GAPS].saving;
    tb_choice_seed(&c, speeds);
    assert_true(c.ways[TB_KIND_F32][TB_WAY_GAPS].encode == speeds[TB_WAY_GAPS].encode);
    assert_true(c.ways[TB_KIND_F32][TB_WAY_GAPS].saving == saving);
}

static void without_memory_nothing_is_known(void **state)
{
    (void)state;
    struct tb_choice_speed speeds[TB_WAYS];
    for (uint64_t at = 1; at < 5; at++) {
        tb_fault_arm(TB_FAULT_malloc, at, false);
        tb_choice_trial(speeds);
        tb_fault_arm(TB_FAULT_malloc, 0, false);
        assert_true(speeds[TB_WAY_PLANES].encode == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_has_speeds),
        cmocka_unit_test(without_memory_nothing_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

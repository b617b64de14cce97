/* reference_life.c - tests of gateway/catalog/lives/reference_life.c: every pair of state and
 * event, the legal and the refused. The lists here are the test's own.
 *
 * Covers: gateway/catalog/lives/reference_life.c */
#include "gateway/catalog/lives/reference_life.h"

#include "check.h"

#define NO (-1) /* the pair is refused */

/* clang-format off */
static const int sights[TB_SIGHT_END][TB_SIGHT_EVENT_END] = {
    /*             is hidden         leads             is going       comes back */
    /* in sight */ {TB_SIGHT_HIDDEN, NO,               NO,            NO},
    /* hidden   */ {NO,              TB_SIGHT_ANSWERS, TB_SIGHT_GOES, TB_SIGHT_IN_SIGHT},
    /* answers  */ {NO,              NO,               TB_SIGHT_GOES, TB_SIGHT_IN_SIGHT},
    /* goes     */ {NO,              NO,               TB_SIGHT_GOES, TB_SIGHT_IN_SIGHT},
};
static const int readings[TB_READING_END][TB_READING_EVENT_END] = {
    /*          wants            is sent           gives up           is done */
    /* rests  */ {TB_READING_ASKS, NO,               NO,                TB_READING_RESTS},
    /* asks   */ {TB_READING_ASKS, TB_READING_READS, NO,                TB_READING_RESTS},
    /* reads  */ {TB_READING_ASKS, NO,               TB_READING_YIELDS, TB_READING_RESTS},
    /* yields */ {TB_READING_ASKS, NO,               NO,                TB_READING_RESTS},
};
static const int standings[TB_STANDING_END][TB_STANDING_EVENT_END] = {
    /*             is put aside        is planned            is slow */
    /* keeps up */ {TB_STANDING_ASIDE, TB_STANDING_KEEPS_UP, TB_STANDING_SLOW},
    /* aside    */ {TB_STANDING_ASIDE, TB_STANDING_KEEPS_UP, TB_STANDING_SLOW},
    /* slow     */ {TB_STANDING_SLOW,  TB_STANDING_SLOW,     NO},
};
/* clang-format on */

static void a_sight_takes_the_listed_steps_and_no_other(void **state)
{
    (void)state;
    for (int in = 0; in < TB_SIGHT_END; in++)
        for (int on = 0; on < TB_SIGHT_EVENT_END; on++) {
            const int then = sights[in][on] == NO ? TB_SIGHT_END : sights[in][on];
            assert_int_equal(tb_sight_after((enum tb_sight)in, (enum tb_sight_event)on), then);
        }
}

static void a_reading_takes_the_listed_steps_and_no_other(void **state)
{
    (void)state;
    for (int in = 0; in < TB_READING_END; in++)
        for (int on = 0; on < TB_READING_EVENT_END; on++) {
            const int then = readings[in][on] == NO ? TB_READING_END : readings[in][on];
            assert_int_equal(tb_reading_after((enum tb_reading)in, (enum tb_reading_event)on), then);
        }
}

static void a_standing_takes_the_listed_steps_and_no_other(void **state)
{
    (void)state;
    for (int in = 0; in < TB_STANDING_END; in++)
        for (int on = 0; on < TB_STANDING_EVENT_END; on++) {
            const int then = standings[in][on] == NO ? TB_STANDING_END : standings[in][on];
            assert_int_equal(tb_standing_after((enum tb_standing)in, (enum tb_standing_event)on), then);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sight_takes_the_listed_steps_and_no_other),
        cmocka_unit_test(a_reading_takes_the_listed_steps_and_no_other),
        cmocka_unit_test(a_standing_takes_the_listed_steps_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

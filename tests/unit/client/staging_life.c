/* staging_life.c - the life of a staged version: every pair of state and event is in the table, or
 * is refused (P2, P4).
 *
 * Covers: intra/client/follow/staging_life.c */
#include "intra/client/follow/staging_life.h"

#include "tests/unit/life_walk.h"

#define LIVES  TB_STAGING_LIVES
#define EVENTS TB_STAGING_EVENTS

/* clang-format off */
enum { ASKED, MANIFESTS, PREPARING, PREPARED, READING, WHOLE, FAILING, FAILED, LEFT, NO };
enum { DESCRIBED, SUBMITTED, PLACED, UNPLACED, OPENED, LANDED, READ_AGAIN, FAILS, LEAVES };

static const int expected[LIVES][EVENTS] = {
    [ASKED]     = { MANIFESTS, NO,        NO,       NO,     NO,      NO,    NO,      FAILED,  NO },
    [MANIFESTS] = { NO,        PREPARING, NO,       NO,     NO,      NO,    NO,      FAILED,  NO },
    [PREPARING] = { NO,        NO,        PREPARED, FAILED, NO,      NO,    NO,      FAILING, NO },
    [PREPARED]  = { NO,        NO,        NO,       NO,     READING, NO,    NO,      FAILED,  NO },
    [READING]   = { NO,        NO,        NO,       NO,     NO,      WHOLE, READING, FAILED,  NO },
    [WHOLE]     = { NO,        NO,        NO,       NO,     NO,      NO,    READING, FAILED,  NO },
    [FAILING]   = { NO,        NO,        FAILED,   FAILED, NO,      NO,    NO,      FAILING, NO },
    [FAILED]    = { NO,        NO,        NO,       NO,     NO,      NO,    NO,      FAILED,  LEFT },
    [LEFT]      = { NO,        NO,        NO,       NO,     NO,      NO,    NO,      LEFT,    NO },
};
/* clang-format on */

static enum tb_staging_life after(int life, int event)
{
    return tb_staging_after((enum tb_staging_life)life, (enum tb_staging_event)event);
}

static int expected_after(int life, int event)
{
    return expected[life][event];
}

static int told(int life, int event)
{
    return (int)after(life, event);
}

static int stepped(int life, int event)
{
    enum tb_staging_life now = (enum tb_staging_life)life;
    tb_staging_step(&now, (enum tb_staging_event)event);
    return (int)now;
}

static const struct life_walk walk = {LIVES, EVENTS, expected_after, told, stepped};

static void each_pair_has_its_row_or_is_refused(void **state)
{
    (void)state;
    life_walk_pairs(&walk);
}

static void an_illegal_step_ends_the_process(void **state)
{
    (void)state;
    life_walk_steps(&walk);
}

/* P2: a version that failed is never read or whole again. */
static void a_failure_is_legal_everywhere_and_final(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++) {
        assert_true(tb_staging_has_failed(after(life, FAILS)));
        for (int event = 0; event < EVENTS; event++)
            if (tb_staging_has_failed((enum tb_staging_life)life) && expected[life][event] != NO)
                assert_true(tb_staging_has_failed(after(life, event)));
    }
}

/* The task that has a staging is the only one that takes it out of preparing. */
static void only_the_task_ends_preparing(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++)
        for (int event = 0; event < EVENTS; event++) {
            if (expected[life][event] == NO || !tb_staging_is_preparing((enum tb_staging_life)life)) continue;
            const bool task = event == PLACED || event == UNPLACED;
            assert_int_equal(tb_staging_is_preparing(after(life, event)), !task);
        }
}

static void an_open_staging_has_places_and_no_failed_one_does(void **state)
{
    (void)state;
    for (int i = 0; i < LIVES; i++) {
        const enum tb_staging_life life = (enum tb_staging_life)i;
        if (tb_staging_is_open(life)) assert_true(tb_staging_has_places(life));
        if (tb_staging_has_places(life)) assert_false(tb_staging_has_failed(life));
        if (tb_staging_has_places(life)) assert_false(tb_staging_is_preparing(life));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_has_its_row_or_is_refused),
        cmocka_unit_test(an_illegal_step_ends_the_process),
        cmocka_unit_test(a_failure_is_legal_everywhere_and_final),
        cmocka_unit_test(only_the_task_ends_preparing),
        cmocka_unit_test(an_open_staging_has_places_and_no_failed_one_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

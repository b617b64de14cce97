/* reserve_life.c - the life of prepared memory: every pair of state and event is in the table, or
 * is refused.
 *
 * Covers: intra/client/memory/reserve_life.c */
#include "intra/client/memory/reserve_life.h"

#include "tests/unit/life_walk.h"

#define LIVES  TB_RESERVE_LIVES
#define EVENTS TB_RESERVE_EVENTS

/* clang-format off */
enum { QUEUED, FILLING, READY, REFUSED, ENDING, DROPPED, FREE, NO };
enum { TURN, GIVES_WAY, ENDS, FAILS, LEAVES };

static const int expected[LIVES][EVENTS] = {
    [QUEUED]  = { FILLING, NO,     NO,    NO,      DROPPED },
    [FILLING] = { NO,      QUEUED, READY, REFUSED, ENDING },
    [READY]   = { NO,      NO,     NO,    NO,      FREE },
    [REFUSED] = { NO,      NO,     NO,    NO,      FREE },
    [ENDING]  = { NO,      NO,     FREE,  FREE,    NO },
    [DROPPED] = { FREE,    NO,     NO,    NO,      NO },
    [FREE]    = { NO,      NO,     NO,    NO,      NO },
};
/* clang-format on */

static int expected_after(int life, int event)
{
    return expected[life][event];
}

static int told(int life, int event)
{
    return (int)tb_reserve_after((enum tb_reserve_life)life, (enum tb_reserve_event)event);
}

static int stepped(int life, int event)
{
    enum tb_reserve_life now = (enum tb_reserve_life)life;
    tb_reserve_step(&now, (enum tb_reserve_event)event);
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

/* The row stays in the list until the call that waits for the task has seen its end. */
static void a_row_that_leaves_is_nobody_elses(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++)
        assert_int_equal(tb_reserve_is_leaving((enum tb_reserve_life)life), expected[life][LEAVES] == NO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_has_its_row_or_is_refused),
        cmocka_unit_test(a_row_that_leaves_is_nobody_elses),
        cmocka_unit_test(an_illegal_step_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

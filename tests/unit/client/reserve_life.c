/* reserve_life.c - the life of prepared memory: every pair of state and event is in the table, or
 * is refused.
 *
 * Covers: intra/client/memory/reserve_life.c */
#include "intra/client/memory/reserve_life.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/check.h"

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

static void each_pair_has_its_row_or_is_refused(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++) {
        for (int event = 0; event < EVENTS; event++) {
            const int after = (int)tb_reserve_after((enum tb_reserve_life)life, (enum tb_reserve_event)event);
            if (after != expected[life][event]) fail_msg("state %d on event %d: %d", life, event, after);
        }
    }
}

/* True: the step was taken. A child takes it, because an illegal one ends the process. */
static bool takes_step(int life, int event)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        enum tb_reserve_life now = (enum tb_reserve_life)life;
        (void)close(STDERR_FILENO);
        tb_reserve_step(&now, (enum tb_reserve_event)event);
        _exit((int)now == expected[life][event] ? 0 : 1);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (WIFSIGNALED(ended)) assert_int_equal(WTERMSIG(ended), SIGABRT);
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

static void an_illegal_step_ends_the_process(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++)
        for (int event = 0; event < EVENTS; event++)
            assert_int_equal(takes_step(life, event), expected[life][event] != NO);
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

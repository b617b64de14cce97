/* copy_life.c - the two lives of a copy: every pair of state and event is in its table, or is
 * refused.
 *
 * Covers: gateway/daemon/copies/copy_life.c */
#include "gateway/daemon/copies/copy_life.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/check.h"

/* clang-format off */
enum { RESTS, ASKED, ROOM, CROSSES, WHOLE, P_LEAVES, W_LEAVES, NO };

/* By state, then by event in the order of the header. */
static const int lives[TB_COPY_LIVES][TB_COPY_EVENTS] = {
    /*             ASKS   NEEDS_ROOM BEGINS   STOPS  FILLS  SHRINKS   IS_EVICTED */
    [RESTS]    = { ASKED, NO,        CROSSES, RESTS, WHOLE, RESTS,    P_LEAVES },
    [ASKED]    = { ASKED, ROOM,      CROSSES, RESTS, WHOLE, ASKED,    P_LEAVES },
    [ROOM]     = { ASKED, NO,        CROSSES, RESTS, WHOLE, ROOM,     P_LEAVES },
    [CROSSES]  = { ASKED, NO,        CROSSES, RESTS, WHOLE, CROSSES,  P_LEAVES },
    [WHOLE]    = { NO,    NO,        WHOLE,   NO,    NO,    RESTS,    W_LEAVES },
    [P_LEAVES] = { NO,    NO,        NO,      NO,    NO,    P_LEAVES, NO },
    [W_LEAVES] = { NO,    NO,        NO,      NO,    NO,    P_LEAVES, NO },
};

enum { UNREADY, READY, DUE, OFFERED, NONE };

static const int servings[TB_COPY_SERVINGS][TB_COPY_SERVING_EVENTS] = {
    /*            IS_READY SERVES   IS_OFFERED IS_NOT_OFFERED IS_RETRACTED */
    [UNREADY] = { READY,   NONE,    NONE,      NONE,          UNREADY },
    [READY]   = { READY,   DUE,     NONE,      NONE,          READY },
    [DUE]     = { DUE,     DUE,     OFFERED,   READY,         READY },
    [OFFERED] = { OFFERED, OFFERED, NONE,      NONE,          READY },
};
/* clang-format on */

static enum tb_copy_life life_after(int life, int event)
{
    return tb_copy_life_after((enum tb_copy_life)life, (enum tb_copy_event)event);
}

static enum tb_copy_serving serving_after(int serving, int event)
{
    return tb_copy_serving_after((enum tb_copy_serving)serving, (enum tb_copy_serving_event)event);
}

static void each_pair_has_its_row_or_is_refused(void **state)
{
    (void)state;
    for (int life = 0; life < TB_COPY_LIVES; life++)
        for (int event = 0; event < TB_COPY_EVENTS; event++)
            if ((int)life_after(life, event) != lives[life][event])
                fail_msg("life %d on event %d: %d", life, event, (int)life_after(life, event));
    for (int serving = 0; serving < TB_COPY_SERVINGS; serving++)
        for (int event = 0; event < TB_COPY_SERVING_EVENTS; event++)
            if ((int)serving_after(serving, event) != servings[serving][event])
                fail_msg("serving %d on event %d: %d", serving, event, (int)serving_after(serving, event));
}

static void life_step(int from, int event)
{
    enum tb_copy_life life = (enum tb_copy_life)from;
    tb_copy_life_step(&life, (enum tb_copy_event)event);
    _exit((int)life == lives[from][event] ? 0 : 1);
}

static void serving_step(int from, int event)
{
    enum tb_copy_serving serving = (enum tb_copy_serving)from;
    tb_copy_serving_step(&serving, (enum tb_copy_serving_event)event);
    _exit((int)serving == servings[from][event] ? 0 : 1);
}

/* True: the step was taken. A child takes it, because an illegal one ends the process. */
static bool takes_step(void (*step)(int from, int event), int from, int event)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(STDERR_FILENO);
        step(from, event);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (WIFSIGNALED(ended)) assert_int_equal(WTERMSIG(ended), SIGABRT);
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

static void an_illegal_step_ends_the_process(void **state)
{
    (void)state;
    for (int life = 0; life < TB_COPY_LIVES; life++)
        for (int event = 0; event < TB_COPY_EVENTS; event++)
            assert_int_equal(takes_step(life_step, life, event), lives[life][event] != NO);
    for (int serving = 0; serving < TB_COPY_SERVINGS; serving++)
        for (int event = 0; event < TB_COPY_SERVING_EVENTS; event++)
            assert_int_equal(takes_step(serving_step, serving, event), servings[serving][event] != NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_has_its_row_or_is_refused),
        cmocka_unit_test(an_illegal_step_ends_the_process),
    };
    return cmocka_run_group_tests_name("copy_life", tests, NULL, NULL);
}

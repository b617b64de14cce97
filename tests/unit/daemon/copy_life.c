/* copy_life.c - the two lives of a copy: every pair of state and event is in its table, or is
 * refused.
 *
 * Covers: gateway/daemon/copies/copy_life.c */
#include "gateway/daemon/copies/copy_life.h"

#include "tests/unit/life_walk.h"

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

static int life_expected(int life, int event)
{
    return lives[life][event];
}

static int life_after(int life, int event)
{
    return (int)tb_copy_life_after((enum tb_copy_life)life, (enum tb_copy_event)event);
}

static int life_step(int from, int event)
{
    enum tb_copy_life life = (enum tb_copy_life)from;
    tb_copy_life_step(&life, (enum tb_copy_event)event);
    return (int)life;
}

static int serving_expected(int serving, int event)
{
    return servings[serving][event];
}

static int serving_after(int serving, int event)
{
    return (int)tb_copy_serving_after((enum tb_copy_serving)serving, (enum tb_copy_serving_event)event);
}

static int serving_step(int from, int event)
{
    enum tb_copy_serving serving = (enum tb_copy_serving)from;
    tb_copy_serving_step(&serving, (enum tb_copy_serving_event)event);
    return (int)serving;
}

static const struct life_walk life_walk = {TB_COPY_LIVES, TB_COPY_EVENTS, life_expected, life_after,
                                           life_step};
static const struct life_walk serving_walk = {TB_COPY_SERVINGS, TB_COPY_SERVING_EVENTS, serving_expected,
                                              serving_after, serving_step};

static void each_pair_has_its_row_or_is_refused(void **state)
{
    (void)state;
    life_walk_pairs(&life_walk);
    life_walk_pairs(&serving_walk);
}

static void an_illegal_step_ends_the_process(void **state)
{
    (void)state;
    life_walk_steps(&life_walk);
    life_walk_steps(&serving_walk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_has_its_row_or_is_refused),
        cmocka_unit_test(an_illegal_step_ends_the_process),
    };
    return cmocka_run_group_tests_name("copy_life", tests, NULL, NULL);
}

/* hop_life.c - the life of a hop: every pair of state and event is in the table, or is refused.
 *
 * Covers: intra/hop/hop_life.c */
#include "intra/hop/hop_life.h"

#include "tests/unit/life_walk.h"

#define LIVES  TB_HOP_LIVES
#define EVENTS TB_HOP_LIFE_EVENTS

/* clang-format off */
enum { OPENING, REDIALLING, OPEN, WHOLE, LOSING, LOST, CLOSING, CLOSED, NO };

/* By state, then by event in the order of the header. */
static const int expected[LIVES][EVENTS] = {
    /*               OPENED REFUSED     REDIAL   WHOLE  LOSE    CLOSE    ENDED */
    [OPENING]    = { OPEN,  REDIALLING, NO,      NO,    LOSING, CLOSING, NO },
    [REDIALLING] = { NO,    NO,         OPENING, NO,    NO,     CLOSING, NO },
    [OPEN]       = { OPEN,  NO,         NO,      WHOLE, LOSING, CLOSING, NO },
    [WHOLE]      = { WHOLE, NO,         NO,      NO,    LOSING, CLOSING, NO },
    [LOSING]     = { NO,    NO,         NO,      NO,    NO,     CLOSING, LOST },
    [LOST]       = { NO,    NO,         NO,      NO,    NO,     CLOSED,  NO },
    [CLOSING]    = { NO,    NO,         NO,      NO,    NO,     NO,      CLOSED },
    [CLOSED]     = { NO,    NO,         NO,      NO,    NO,     NO,      NO },
};
/* clang-format on */

static enum tb_hop_life after(int life, int event)
{
    return tb_hop_life_after((enum tb_hop_life)life, (enum tb_hop_life_event)event);
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
    enum tb_hop_life now = (enum tb_hop_life)life;
    tb_hop_life_step(&now, (enum tb_hop_life_event)event);
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

/* A hop that ends goes on ending, and asks for nothing. */
static void an_ending_hop_never_opens_again(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++) {
        if (tb_hop_life_is_open((enum tb_hop_life)life))
            assert_false(tb_hop_life_ends((enum tb_hop_life)life));
        if (!tb_hop_life_ends((enum tb_hop_life)life)) continue;
        for (int event = 0; event < EVENTS; event++)
            if (after(life, event) != LIVES) assert_true(tb_hop_life_ends(after(life, event)));
    }
}

/* P6: the owner may close a hop at any time, once, and hears nothing from then on. */
static void a_hop_may_be_closed_in_every_state(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++) {
        const enum tb_hop_life next = after(life, TB_HOP_ON_CLOSE);
        if (tb_hop_life_is_silent((enum tb_hop_life)life))
            assert_int_equal(next, LIVES);
        else
            assert_true(tb_hop_life_is_silent(next));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_has_its_row_or_is_refused),
        cmocka_unit_test(an_illegal_step_ends_the_process),
        cmocka_unit_test(an_ending_hop_never_opens_again),
        cmocka_unit_test(a_hop_may_be_closed_in_every_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* publication_life.c - the life of a sealed shard: every pair of state and event is in the
 * table, or is refused (P4).
 *
 * Covers: intra/client/publish/publication_life.c */
#include "intra/client/publish/publication_life.h"

#include "tests/unit/life_walk.h"

#define LIVES  TB_PUBLICATION_LIVES
#define EVENTS TB_PUBLICATION_EVENTS

/* clang-format off */
enum { NO, NEW, CLAIMED, STANDING, ENDED, ENDED_CLAIMED, HIDING, HIDDEN, SUSPENDED, RETURNING, REMOVING };
#define IN(life)  [TB_PUBLICATION_##life]
#define ON(event) [TB_PUBLICATION_##event]

/* The state behind each event; an event that is not here is illegal. */
static const int table[LIVES][EVENTS] = {
    IN(NEW) =           { ON(TAKEN) = CLAIMED, ON(LOST) = NEW, ON(REMOVE) = REMOVING },
    IN(CLAIMED) =       { ON(TAKEN) = CLAIMED, ON(LOST) = ENDED_CLAIMED, ON(RELEASE) = STANDING },
    IN(STANDING) =      { ON(CLAIM) = CLAIMED, ON(LOST) = ENDED, ON(HIDE) = HIDING,
                          ON(REMOVE) = REMOVING },
    IN(ENDED) =         { ON(CLAIM) = ENDED_CLAIMED, ON(LOST) = ENDED, ON(HIDE) = HIDDEN,
                          ON(REMOVE) = REMOVING },
    IN(ENDED_CLAIMED) = { ON(TAKEN) = CLAIMED, ON(LOST) = ENDED_CLAIMED, ON(RELEASE) = ENDED },
    IN(HIDING) =        { ON(LOST) = HIDDEN, ON(ANSWERED) = HIDDEN, ON(CLOSED) = SUSPENDED },
    IN(HIDDEN) =        { ON(LOST) = HIDDEN, ON(ANSWERED) = HIDDEN, ON(CLOSED) = SUSPENDED },
    IN(SUSPENDED) =     { ON(LOST) = SUSPENDED, ON(RETURN) = RETURNING, ON(REMOVE) = REMOVING },
    IN(RETURNING) =     { ON(LOST) = RETURNING, ON(RETURNED) = STANDING, ON(REMOVE) = REMOVING },
    IN(REMOVING) =      { ON(LOST) = REMOVING },
};
/* clang-format on */

static int expected(int life, int event)
{
    return table[life][event] == NO ? LIVES : table[life][event] - 1;
}

static enum tb_publication_life after(int life, int event)
{
    return tb_publication_after((enum tb_publication_life)life, (enum tb_publication_event)event);
}

static int told(int life, int event)
{
    return (int)after(life, event);
}

static int stepped(int life, int event)
{
    enum tb_publication_life now = (enum tb_publication_life)life;
    tb_publication_step(&now, (enum tb_publication_event)event);
    return (int)now;
}

static const struct life_walk walk = {LIVES, EVENTS, expected, told, stepped};

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

/* A gateway may refuse an announcement at any time, and nothing becomes announced or sealed by
 * that. */
static void a_loss_is_legal_everywhere(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++) {
        const enum tb_publication_life next = after(life, TB_PUBLICATION_LOST);
        assert_int_not_equal(next, LIVES);
        assert_false(tb_publication_is_announced(next));
        assert_int_equal(tb_publication_is_busy(next),
                         tb_publication_is_busy((enum tb_publication_life)life));
    }
}

static void an_announced_publication_is_sealed(void **state)
{
    (void)state;
    for (int life = 0; life < LIVES; life++)
        if (tb_publication_is_announced((enum tb_publication_life)life))
            assert_true(tb_publication_is_sealed((enum tb_publication_life)life));
}

/* From each state the shard can be removed, and no busy state is one that a call cannot leave. */
static void each_state_leads_to_the_end(void **state)
{
    (void)state;
    for (int first = 0; first < LIVES; first++) {
        bool reached[LIVES] = {false};
        reached[first] = true;
        for (int round = 0; round < LIVES; round++)
            for (int life = 0; life < LIVES; life++)
                for (int event = 0; reached[life] && event < EVENTS; event++)
                    if (after(life, event) != LIVES) reached[after(life, event)] = true;
        assert_true(reached[TB_PUBLICATION_REMOVING]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_has_its_row_or_is_refused),
        cmocka_unit_test(an_illegal_step_ends_the_process),
        cmocka_unit_test(a_loss_is_legal_everywhere),
        cmocka_unit_test(an_announced_publication_is_sealed),
        cmocka_unit_test(each_state_leads_to_the_end),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

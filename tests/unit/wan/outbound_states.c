/* outbound_states.c - all pairs of the table of a crossing that a peer draws.
 *
 * Covers: wan/send/outbound_states.c */
#include "wan/send/outbound_states.h"

#include "tests/unit/check.h"

#define WANTED          TB_OUTBOUND_WANTED
#define ON_BASE         TB_OUTBOUND_ON_BASE
#define PUSHED          TB_OUTBOUND_PUSHED
#define STARTED         TB_OUTBOUND_STARTED
#define STARTED_ON_BASE TB_OUTBOUND_STARTED_ON_BASE

/* The table once more, by hand: -1 is refused, and changes nothing. */
static void every_pair_of_state_and_event(void **state)
{
    (void)state;
    static const int then[TB_OUTBOUND_STATES][TB_OUTBOUND_EVENTS] = {
        /* BASE, PUSH, START */
        [WANTED] = {ON_BASE, -1, STARTED},    [ON_BASE] = {-1, PUSHED, STARTED_ON_BASE},
        [PUSHED] = {-1, -1, STARTED_ON_BASE}, [STARTED] = {-1, -1, -1},
        [STARTED_ON_BASE] = {-1, -1, -1},
    };
    for (int from = 0; from < TB_OUTBOUND_STATES; from++)
        for (int event = 0; event < TB_OUTBOUND_EVENTS; event++) {
            enum tb_outbound_state s = (enum tb_outbound_state)from;
            const bool legal = tb_outbound_state_step(&s, (enum tb_outbound_event)event);
            assert_int_equal(legal, then[from][event] >= 0);
            assert_int_equal(s, legal ? then[from][event] : from);
        }
}

/* A base that was named stays named, and a crossing that started stays started. */
static void nothing_is_forgotten(void **state)
{
    (void)state;
    for (int from = 0; from < TB_OUTBOUND_STATES; from++)
        for (int event = 0; event < TB_OUTBOUND_EVENTS; event++) {
            const enum tb_outbound_state before = (enum tb_outbound_state)from;
            enum tb_outbound_state s = before;
            if (!tb_outbound_state_step(&s, (enum tb_outbound_event)event)) continue;
            assert_true(tb_outbound_state_on_base(s) ==
                        (tb_outbound_state_on_base(before) || event == TB_OUTBOUND_EVENT_BASE));
            assert_true(tb_outbound_state_started(s) ==
                        (tb_outbound_state_started(before) || event == TB_OUTBOUND_EVENT_START));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_state_and_event),
        cmocka_unit_test(nothing_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* stream_states.c - all pairs of both tables, and the lives that a stream can have.
 *
 * Covers: wan/stream/stream_states.c wan/stream/stream_life.c */
#include "wan/stream/stream_states.h"

#include "tests/unit/check.h"

#define OPENING TB_STREAM_STATE_OPENING
#define WAITING TB_STREAM_STATE_WAITING
#define GREETED TB_STREAM_STATE_GREETED
#define BOUND   TB_STREAM_STATE_BOUND
#define CLOSING TB_STREAM_STATE_CLOSING
#define GONE    TB_STREAM_STATE_GONE

/* The table once more, by hand: -1 is refused, and changes nothing. */
static void every_pair_of_state_and_event(void **state)
{
    (void)state;
    static const int then[TB_STREAM_STATES][TB_STREAM_EVENTS] = {
        /* EARLY, GREET, ACCEPT, ANSWERED, CLOSE, ENDED */
        [OPENING] = {WAITING, GREETED, BOUND, -1, CLOSING, GONE},
        [WAITING] = {-1, GREETED, -1, -1, CLOSING, GONE},
        [GREETED] = {-1, -1, -1, BOUND, CLOSING, GONE},
        [BOUND] = {-1, -1, -1, -1, CLOSING, GONE},
        [CLOSING] = {-1, -1, -1, -1, CLOSING, GONE},
        [GONE] = {-1, -1, -1, -1, -1, -1},
    };
    for (int from = 0; from < TB_STREAM_STATES; from++)
        for (int event = 0; event < TB_STREAM_EVENTS; event++) {
            enum tb_stream_state s = (enum tb_stream_state)from;
            const bool legal = tb_stream_state_step(&s, (enum tb_stream_event)event);
            assert_int_equal(legal, then[from][event] >= 0);
            assert_int_equal(s, legal ? then[from][event] : from);
        }
}

/* P7: a peer that answers a BIND that was not sent has no stream. */
static void an_answer_to_no_question_is_refused(void **state)
{
    (void)state;
    enum tb_stream_state s = TB_STREAM_STATE_OPENING;
    assert_true(tb_stream_state_step(&s, TB_STREAM_EVENT_EARLY));
    assert_false(tb_stream_state_step(&s, TB_STREAM_EVENT_ANSWERED));
    assert_true(tb_stream_state_step(&s, TB_STREAM_EVENT_GREET));
    assert_true(tb_stream_state_step(&s, TB_STREAM_EVENT_ANSWERED));
    assert_false(tb_stream_state_step(&s, TB_STREAM_EVENT_ANSWERED)); /* nor a second time */
}

/* From each state a stream can be GONE, and nothing leads back from there. */
static void each_stream_ends(void **state)
{
    (void)state;
    for (int from = 0; from < TB_STREAM_STATE_GONE; from++) {
        enum tb_stream_state s = (enum tb_stream_state)from;
        assert_true(tb_stream_state_step(&s, TB_STREAM_EVENT_ENDED));
        assert_int_equal(s, TB_STREAM_STATE_GONE);
    }
}

#define NONE    TB_STREAM_FAREWELL_NONE
#define RETIRED TB_STREAM_FAREWELL_RETIRED
#define TOLD    TB_STREAM_FAREWELL_TOLD
#define HEARD   TB_STREAM_FAREWELL_HEARD
#define BOTH    TB_STREAM_FAREWELL_BOTH

/* Likewise of the farewell. A peer may say STREAM_GONE again: that is never refused. */
static void every_pair_of_farewell_and_word(void **state)
{
    (void)state;
    static const int then[TB_STREAM_FAREWELLS][TB_STREAM_WORDS] = {
        /* RETIRE, TELL, HEAR */
        [NONE] = {RETIRED, TOLD, HEARD}, [RETIRED] = {-1, -1, BOTH}, [TOLD] = {-1, -1, BOTH},
        [HEARD] = {-1, BOTH, HEARD},     [BOTH] = {-1, -1, BOTH},
    };
    for (int from = 0; from < TB_STREAM_FAREWELLS; from++)
        for (int word = 0; word < TB_STREAM_WORDS; word++) {
            enum tb_stream_farewell f = (enum tb_stream_farewell)from;
            const bool legal = tb_stream_farewell_step(&f, (enum tb_stream_word)word);
            assert_int_equal(legal, then[from][word] >= 0);
            assert_int_equal(f, legal ? then[from][word] : from);
            assert_int_equal(tb_stream_farewell_heard(f), f == HEARD || f == BOTH);
            assert_int_equal(tb_stream_farewell_told(f), f == RETIRED || f == TOLD || f == BOTH);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_state_and_event),
        cmocka_unit_test(an_answer_to_no_question_is_refused),
        cmocka_unit_test(each_stream_ends),
        cmocka_unit_test(every_pair_of_farewell_and_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

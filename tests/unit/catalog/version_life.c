/* version_life.c - tests of gateway/catalog/lives/version_life.c: every pair of state and event,
 * the legal and the refused. The lists here are the test's own, so a row too many is found as
 * well as one too few.
 *
 * Covers: gateway/catalog/lives/version_life.c */
#include "gateway/catalog/lives/version_life.h"

#include "check.h"

struct pair {
    int in, on, then;
};

/* The next state of a pair by the list; -1: the pair is refused. */
static int then_of(const struct pair *pairs, size_t count, int in, int on)
{
    for (size_t i = 0; i < count; i++)
        if (pairs[i].in == in && pairs[i].on == on) return pairs[i].then;
    return -1;
}
#define THEN(pairs, in, on) then_of(pairs, sizeof(pairs) / sizeof(pairs)[0], in, on)

static const struct pair lives[] = {
    {TB_LIFE_OPEN, TB_VERSION_BECOMES_READY, TB_LIFE_READY},
    {TB_LIFE_READY, TB_VERSION_BECOMES_KEPT, TB_LIFE_KEPT},
    {TB_LIFE_READY, TB_VERSION_IS_EVICTED, TB_LIFE_RETIRED},
    {TB_LIFE_KEPT, TB_VERSION_IS_EVICTED, TB_LIFE_RETIRED},
    {TB_LIFE_OPEN, TB_VERSION_IS_UNHELD, TB_LIFE_UNHELD},
    {TB_LIFE_READY, TB_VERSION_IS_UNHELD, TB_LIFE_UNHELD},
    {TB_LIFE_KEPT, TB_VERSION_IS_UNHELD, TB_LIFE_UNHELD},
    {TB_LIFE_UNHELD, TB_VERSION_IS_OFFERED_OPEN, TB_LIFE_OPEN},
    {TB_LIFE_UNHELD, TB_VERSION_IS_OFFERED, TB_LIFE_READY},
    {TB_LIFE_OPEN, TB_VERSION_IS_LOST, TB_LIFE_LOST},
    {TB_LIFE_READY, TB_VERSION_IS_LOST, TB_LIFE_LOST},
    {TB_LIFE_KEPT, TB_VERSION_IS_LOST, TB_LIFE_LOST},
};

/* Home may break, withdraw or abandon what has not ended here, or has only left. */
static bool ends_by_word(int in)
{
    return in <= TB_LIFE_UNHELD;
}

static int life_then(int in, int on)
{
    if (on == TB_VERSION_IS_BROKEN) return ends_by_word(in) ? TB_LIFE_BROKEN : -1;
    if (on == TB_VERSION_IS_WITHDRAWN) return ends_by_word(in) ? TB_LIFE_WITHDRAWN : -1;
    if (on == TB_VERSION_IS_ABANDONED) return ends_by_word(in) ? TB_LIFE_ABANDONED : -1;
    return THEN(lives, in, on);
}

static void a_life_takes_the_listed_steps_and_no_other(void **state)
{
    (void)state;
    for (int in = 0; in < TB_LIFE_END; in++)
        for (int on = 0; on < TB_VERSION_EVENT_END; on++) {
            const int then = life_then(in, on);
            assert_int_equal(tb_version_life_after((enum tb_version_life)in, (enum tb_version_event)on),
                             then != -1 ? then : TB_LIFE_END);
        }
}

static const struct pair copies[] = {
    {TB_VERSION_COPY_NONE, TB_VERSION_COPY_RESERVED, TB_VERSION_COPY_HERE},
    {TB_VERSION_COPY_HERE, TB_VERSION_COPY_RESERVED, TB_VERSION_COPY_HERE},
    {TB_VERSION_COPY_LEAVING, TB_VERSION_COPY_RESERVED, TB_VERSION_COPY_LEAVING},
    {TB_VERSION_COPY_HERE, TB_VERSION_COPY_EVICTED, TB_VERSION_COPY_LEAVING},
    {TB_VERSION_COPY_LEAVING, TB_VERSION_COPY_GIVEN_BACK, TB_VERSION_COPY_NONE},
};

static void a_copy_takes_the_listed_steps_and_no_other(void **state)
{
    (void)state;
    for (int in = 0; in < TB_VERSION_COPY_END; in++)
        for (int on = 0; on < TB_VERSION_COPY_EVENT_END; on++) {
            const int then = THEN(copies, in, on);
            assert_int_equal(tb_version_copy_after((enum tb_version_copy)in, (enum tb_version_copy_event)on),
                             then != -1 ? then : TB_VERSION_COPY_END);
        }
}

static const struct pair crossings[] = {
    {TB_VERSION_CROSSING_NONE, TB_VERSION_CROSSING_ASKS, TB_VERSION_CROSSING_ASKED},
    {TB_VERSION_CROSSING_NONE, TB_VERSION_CROSSING_BEGINS, TB_VERSION_CROSSING_BEGUN},
    {TB_VERSION_CROSSING_ASKED, TB_VERSION_CROSSING_BEGINS, TB_VERSION_CROSSING_BEGUN},
    {TB_VERSION_CROSSING_NONE, TB_VERSION_CROSSING_UNASKS, TB_VERSION_CROSSING_NONE},
    {TB_VERSION_CROSSING_ASKED, TB_VERSION_CROSSING_UNASKS, TB_VERSION_CROSSING_NONE},
    {TB_VERSION_CROSSING_BEGUN, TB_VERSION_CROSSING_UNASKS, TB_VERSION_CROSSING_BEGUN},
    {TB_VERSION_CROSSING_NONE, TB_VERSION_CROSSING_SHRINKS, TB_VERSION_CROSSING_NONE},
    {TB_VERSION_CROSSING_ASKED, TB_VERSION_CROSSING_SHRINKS, TB_VERSION_CROSSING_ASKED},
    {TB_VERSION_CROSSING_BEGUN, TB_VERSION_CROSSING_SHRINKS, TB_VERSION_CROSSING_NONE},
    {TB_VERSION_CROSSING_NONE, TB_VERSION_CROSSING_STOPS, TB_VERSION_CROSSING_NONE},
    {TB_VERSION_CROSSING_ASKED, TB_VERSION_CROSSING_STOPS, TB_VERSION_CROSSING_NONE},
    {TB_VERSION_CROSSING_BEGUN, TB_VERSION_CROSSING_STOPS, TB_VERSION_CROSSING_NONE},
};

static void a_crossing_takes_the_listed_steps_and_no_other(void **state)
{
    (void)state;
    for (int in = 0; in < TB_VERSION_CROSSING_END; in++)
        for (int on = 0; on < TB_VERSION_CROSSING_EVENT_END; on++) {
            const int then = THEN(crossings, in, on);
            assert_int_equal(
                tb_version_crossing_after((enum tb_version_crossing)in, (enum tb_version_crossing_event)on),
                then != -1 ? then : TB_VERSION_CROSSING_END);
        }
}

static const struct pair searches[] = {
    {TB_VERSION_SEARCH_NONE, TB_VERSION_SEARCH_TRIES, TB_VERSION_SEARCH_TRYING},
    {TB_VERSION_SEARCH_TRYING, TB_VERSION_SEARCH_TRIES, TB_VERSION_SEARCH_TRYING},
    {TB_VERSION_SEARCH_DONE, TB_VERSION_SEARCH_TRIES, TB_VERSION_SEARCH_DONE},
    {TB_VERSION_SEARCH_TRYING, TB_VERSION_SEARCH_IS_ENOUGH, TB_VERSION_SEARCH_DONE},
    {TB_VERSION_SEARCH_NONE, TB_VERSION_SEARCH_BEGINS_ANEW, TB_VERSION_SEARCH_NONE},
    {TB_VERSION_SEARCH_TRYING, TB_VERSION_SEARCH_BEGINS_ANEW, TB_VERSION_SEARCH_NONE},
    {TB_VERSION_SEARCH_DONE, TB_VERSION_SEARCH_BEGINS_ANEW, TB_VERSION_SEARCH_NONE},
};

static void a_search_takes_the_listed_steps_and_no_other(void **state)
{
    (void)state;
    for (int in = 0; in < TB_VERSION_SEARCH_END; in++)
        for (int on = 0; on < TB_VERSION_SEARCH_EVENT_END; on++) {
            const int then = THEN(searches, in, on);
            assert_int_equal(
                tb_version_search_after((enum tb_version_search)in, (enum tb_version_search_event)on),
                then != -1 ? then : TB_VERSION_SEARCH_END);
        }
}

static void a_version_of_the_store_is_told_as_it_was_but_kept(void **state)
{
    (void)state;
    for (int s = TB_VERSION_OPEN; s < TB_CATALOG_STATE_END; s++) {
        const int told = tb_version_life_state(tb_version_life_restored((enum tb_catalog_state)s));
        assert_int_equal(told, s == TB_VERSION_KEPT ? TB_VERSION_READY : s);
    }
    assert_int_equal(tb_version_life_state(TB_LIFE_UNHELD), TB_VERSION_RETIRED);
}

static void an_end_that_is_told_is_an_event(void **state)
{
    (void)state;
    for (int s = TB_VERSION_ENDED_LOST; s < TB_CATALOG_STATE_END; s++) {
        const enum tb_version_life life =
            tb_version_life_after(TB_LIFE_OPEN, tb_version_life_event((enum tb_catalog_state)s));
        assert_int_equal(tb_version_life_state(life), s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_life_takes_the_listed_steps_and_no_other),
        cmocka_unit_test(a_copy_takes_the_listed_steps_and_no_other),
        cmocka_unit_test(a_crossing_takes_the_listed_steps_and_no_other),
        cmocka_unit_test(a_search_takes_the_listed_steps_and_no_other),
        cmocka_unit_test(a_version_of_the_store_is_told_as_it_was_but_kept),
        cmocka_unit_test(an_end_that_is_told_is_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* planner_pace.c - tests of how intra/planner.c judges rates: a slow member, and one that leads all
 * others.
 *
 * Covers: intra/planner.c */
#include "planner_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK UINT64_C(10) /* bytes */

/* It tells its rate, so long after it told it before. */
static bool judge(struct site *s, uint32_t reader, struct tb_planner_pace *pace, tb_time_ns later)
{
    const struct tb_planner_question q = {.members = s->members,
                                          .count = s->count,
                                          .reader = reader,
                                          .fan_out = s->fan_out,
                                          .now = pace->at + later,
                                          .chunk_bytes = CHUNK};
    return tb_planner_slow(&q, pace);
}

static bool alone(struct site *s, uint32_t reader)
{
    const struct tb_planner_question q = {.members = s->members, .count = s->count, .reader = reader};
    return tb_planner_alone(&q);
}

/* P6: a worker that holds up those behind it is found once the others could have had eight chunks,
 * which are 0.8 s at their rate; one that is held up is not blamed. */
static void under_half_of_the_median_for_8_chunks_is_slow(void **state)
{
    (void)state;
    struct site s;
    struct tb_planner_pace paces[8] = {{0}};
    site_init(&s, 1);
    for (uint32_t host = 1; host <= 5; host++)
        s.members[site_join(&s, "w", host)].bytes_per_s = host < 4 ? 100 : 40; /* 4 holds up 5 */
    assert_false(judge(&s, 4, &paces[4], TB_SECONDS(100))); /* it may have waited for most of that */
    assert_false(judge(&s, 4, &paces[4], TB_MS(400)));
    assert_false(judge(&s, 4, &paces[4], TB_MS(399)));
    assert_true(judge(&s, 4, &paces[4], TB_MS(1)));
    for (uint32_t i = 1; i <= 5; i++) { /* the twin: all others, however long */
        for (uint32_t times = 0; i != 4 && times < 3; times++)
            assert_false(judge(&s, i, &paces[i], TB_SECONDS(100)));
    }
    s.members[4].bytes_per_s = 51; /* it came back: judged anew from here on */
    assert_false(judge(&s, 4, &paces[4], TB_SECONDS(1)));
    s.members[4].bytes_per_s = 40;
    assert_false(judge(&s, 4, &paces[4], TB_MS(799)));
    assert_true(judge(&s, 4, &paces[4], TB_MS(1)));
}

/* P6: a worker that gets nothing although its source has more, while others do; told twice, as all
 * may stand still at first. */
static void a_worker_that_gets_nothing_though_there_is_more_is_slow(void **state)
{
    (void)state;
    struct site s;
    struct tb_planner_pace paces[8] = {{0}};
    site_init(&s, 1);
    for (uint32_t host = 1; host <= 5; host++) {
        const uint32_t w = site_join(&s, "w", host);
        s.members[w].bytes_per_s = host < 4 ? 100 : 0; /* 4 holds up 5 */
        s.members[w].held_chunks = host < 4 ? 9 : 5;
    }
    assert_false(judge(&s, 4, &paces[4], TB_SECONDS(100)));
    assert_false(judge(&s, 4, &paces[4], TB_SECONDS(100)));
    assert_true(judge(&s, 4, &paces[4], TB_MS(1)));
    tb_planner_waited(&paces[4], paces[4].at + TB_SECONDS(1));
    assert_false(judge(&s, 4, &paces[4], TB_SECONDS(1))); /* for much of that it waited */
    assert_false(judge(&s, 4, &paces[4], TB_MS(799)));
    assert_true(judge(&s, 4, &paces[4], TB_MS(1)));
    for (uint32_t times = 0; times < 10; times++) /* the twins: one that is behind it, */
        assert_false(judge(&s, 5, &paces[5], TB_SECONDS(100)));
    s.members[3].held_chunks = 5; /* one that has all that its source has, */
    for (uint32_t times = 0; times < 10; times++)
        assert_false(judge(&s, 4, &paces[4], TB_SECONDS(100)));
    s.members[3].held_chunks = 9; /* and one that stands still as all do */
    for (uint32_t i = 1; i < 4; i++)
        s.members[i].bytes_per_s = 0;
    for (uint32_t times = 0; times < 10; times++)
        assert_false(judge(&s, 4, &paces[4], TB_SECONDS(100)));
}

/* Where all are slow nobody is, nor is one that has nobody beside it. */
static void a_worker_as_slow_as_the_others_is_not_slow(void **state)
{
    (void)state;
    struct site s;
    struct tb_planner_pace pace = {0};
    site_init(&s, 2);
    const uint32_t a = site_join(&s, "a", 1);
    s.members[a].bytes_per_s = 1;
    for (uint32_t times = 0; times < 10; times++)
        assert_false(judge(&s, a, &pace, TB_SECONDS(100)));
    const uint32_t b = site_join(&s, "b", 2);
    s.members[b].bytes_per_s = 2;
    for (uint32_t times = 0; times < 10; times++)
        assert_false(judge(&s, a, &pace, TB_SECONDS(100)));
}

/* The first member of a chain cannot be compared with another. A member that follows can, and so
 * can one with a chain beside it. */
static void a_worker_that_leads_all_others_is_alone(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    for (uint32_t host = 1; host <= 3; host++)
        s.members[site_join(&s, "w", host)].bytes_per_s = 10;
    assert_true(alone(&s, 1) && !alone(&s, 2) && !alone(&s, 3));
    s.members[3].bytes_per_s = 4; /* much of its first word it waited for a first chunk */
    assert_true(alone(&s, 1));
    s.members[3].steady = true; /* it is held up by somebody else */
    assert_false(alone(&s, 1));
    s.members[3].slow = true; /* that one is known */
    assert_true(alone(&s, 1));
    s.members[3].slow = false;
    s.members[3].bytes_per_s = 5;
    assert_true(alone(&s, 1));
    s.members[1].readers = 2; /* each gets half of its NIC */
    s.members[3].bytes_per_s = 4;
    assert_true(alone(&s, 1));
    s.members[3].bytes_per_s = 1; /* under half of that share */
    s.members[3].steady = true;
    assert_false(alone(&s, 1));
    s.members[1].readers = 1;
    s.members[3].bytes_per_s = 10;
    const uint32_t beside = site_join(&s, "d", 4);
    s.members[beside].upstream = 0;
    assert_true(alone(&s, 1)); /* that one has told no rate */
    s.members[beside].bytes_per_s = 10;
    assert_false(alone(&s, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(under_half_of_the_median_for_8_chunks_is_slow),
        cmocka_unit_test(a_worker_that_gets_nothing_though_there_is_more_is_slow),
        cmocka_unit_test(a_worker_as_slow_as_the_others_is_not_slow),
        cmocka_unit_test(a_worker_that_leads_all_others_is_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

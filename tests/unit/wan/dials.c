/* dials.c - which dial ends which, and when the next may begin: a link by itself, without a connection (P6). */
#include <string.h>

#include "tests/unit/check.h"
#include "wan/link.h"

/* A link in mid-race: both addresses were dialled and neither has answered. */
struct racing {
    struct tb_links links;
    struct link link;
};

static void begin(struct racing *r)
{
    memset(r, 0, sizeof *r);
    r->link.links = &r->links;
    tb_race_begin(&r->link.race, 2, 0);
    for (tb_time_ns now = 0; r->link.race.next < 2; now += TB_RACE_DELAY)
        (void)tb_race_due(&r->link.race, now);
}

static void won_by(struct racing *r, bool racing)
{
    struct conn won = {.links = &r->links, .link = &r->link, .dialled = true, .racing = racing};
    link_dial_won(&won);
}

/* P5: its other dials are closed, so nothing would end it; while it is on the name is not asked for, and a peer that moved is lost. */
static void a_fresh_dial_that_opens_ends_the_race(void **state)
{
    static struct racing r;
    (void)state;
    begin(&r);
    won_by(&r, false);
    assert_false(r.link.race.on);
}

static void the_races_own_dial_is_looked_at_first(void **state)
{
    static struct racing r;
    (void)state;
    begin(&r);
    won_by(&r, true);
    assert_true(r.link.race.on);
    assert_int_equal(r.link.race.open, 1);
    assert_true(tb_race_failed(&r.link.race, TB_SECONDS(1))); /* and none is left */
}

static void without_a_race_none_begins(void **state)
{
    static struct racing r;
    (void)state;
    begin(&r);
    tb_race_end(&r.link.race);
    won_by(&r, true);
    assert_false(r.link.race.on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_dial_that_opens_ends_the_race),
        cmocka_unit_test(the_races_own_dial_is_looked_at_first),
        cmocka_unit_test(without_a_race_none_begins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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

/* Whether a fresh dial begins beside one that opened so long ago. There is no room for a connection, so it fails at once. */
static bool dials_beside(tb_time_ns opened_ago)
{
    static struct racing r;
    begin(&r);
    r.links.conn_count = LINK_CONNS_MAX;
    r.link.address_count = 1;
    r.link.life.state = TB_LINK_SILENT;
    r.link.life.config.silent = TB_SECONDS(1);
    struct conn open = {.links = &r.links,
                        .link = &r.link,
                        .dialled = true,
                        .identity.kind = TB_IDENTITY_GATEWAY,
                        .opened_at = tb_clock_now() - opened_ago,
                        .greet_by = TB_TIME_NEVER};
    r.links.conns = &open;
    link_dial(&r.link);
    return r.link.stats.dials > 0;
}

/* P6: a path that goes away between a dial and its HELLO. */
static void an_open_dial_without_hello_is_waited_for_as_long_as_a_session(void **state)
{
    (void)state;
    assert_false(dials_beside(0));
    assert_true(dials_beside(TB_SECONDS(1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_dial_that_opens_ends_the_race),
        cmocka_unit_test(the_races_own_dial_is_looked_at_first),
        cmocka_unit_test(without_a_race_none_begins),
        cmocka_unit_test(an_open_dial_without_hello_is_waited_for_as_long_as_a_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* dials.c - which dial ends which, and when the next may begin: a link by itself,
 * without a connection (P6).
 *
 * Covers: wan/link/path/link_dial.c wan/link/path/segment_attempt.c wan/link/session/link_conn.c */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/net/chan_facts.h"
#include "tests/unit/check.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/path/link_dial.h"
#include "wan/link/session/link_conn.h"

/* A link in mid-race: both addresses were dialled and neither has answered. */
struct racing {
    struct tb_links links;
    struct tb_link link;
};

static void begin(struct racing *r)
{
    memset(r, 0, sizeof *r);
    r->link.path.has_address = true;
    r->link.links = &r->links;
    tb_race_begin(&r->link.path.race, 2, 0);
    for (tb_time_ns now = 0; r->link.path.race.next < 2; now += TB_RACE_DELAY)
        (void)tb_race_due(&r->link.path.race, now);
}

static void won_by(struct racing *r, bool racing)
{
    struct tb_link_conn won = {.links = &r->links, .link = &r->link, .dialled = true, .racing = racing};
    tb_link_dial_won(&won);
}

/* P5: its other dials are closed, so nothing would end it; while it is on the name is not asked
 * for, and a peer that moved is lost. */
static void a_fresh_dial_that_opens_ends_the_race(void **state)
{
    static struct racing r;
    (void)state;
    begin(&r);
    won_by(&r, false);
    assert_false(r.link.path.race.on);
}

static void the_races_own_dial_is_looked_at_first(void **state)
{
    static struct racing r;
    (void)state;
    begin(&r);
    won_by(&r, true);
    assert_true(r.link.path.race.on);
    assert_int_equal(r.link.path.race.open, 1);
    assert_true(tb_race_failed(&r.link.path.race, TB_SECONDS(1))); /* and none is left */
}

static void without_a_race_none_begins(void **state)
{
    static struct racing r;
    (void)state;
    begin(&r);
    tb_race_end(&r.link.path.race);
    won_by(&r, true);
    assert_false(r.link.path.race.on);
}

/* Whether a fresh dial begins beside this one. There is no memory for a connection,
 * so it fails at once. */
static bool dials_beside(const struct tb_link_conn *beside)
{
    static struct racing r;
    begin(&r);
    r.link.path.address_count = 1;
    r.link.session.life.state = TB_LINK_SILENT;
    r.link.session.life.config.silent = TB_SECONDS(1);
    struct tb_link_conn c = *beside;
    c.links = &r.links;
    c.link = &r.link;
    c.dialled = true;
    r.links.conns = &c;
    tb_fault_arm(TB_FAULT_malloc, 1, true);
    tb_link_dial(&r.link);
    tb_fault_arm(TB_FAULT_malloc, 0, false);
    return r.link.stats.dials > 0;
}

static bool dials_beside_opened(tb_time_ns ago)
{
    const struct tb_link_conn open = {
        .identity.kind = TB_IDENTITY_GATEWAY, .opened_at = tb_clock_now() - ago, .greet_by = TB_TIME_NEVER};
    return dials_beside(&open);
}

/* TCP was answered so long ago, and the dial began so long before that. */
static bool dials_beside_connected(tb_time_ns ago, tb_time_ns took)
{
    const tb_time_ns at = tb_clock_now() - ago;
    const struct tb_link_conn connected = {.connected_at = at, .greet_by = at - took + LINK_GREET_BY};
    return dials_beside(&connected);
}

/* P6: a client that fills the port of a gateway keeps others away from it, and not it from its
 * peers. */
static void strangers_take_no_room_of_ours(void **state)
{
    static struct racing r;
    (void)state;
    begin(&r);
    r.links.accepted_count = LINK_CONNS_MAX;
    assert_false(tb_links_have_room(&r.links, NULL));
    assert_true(tb_links_have_room(&r.links, &r.link));
    r.link.session.conn_count = LINK_CONNS_PER_PEER; /* the twin: a peer has so many and no more */
    assert_false(tb_links_have_room(&r.links, &r.link));
}

/* The other way round: peers that are silent, each of which is dialled as often as may be, keep
 * nobody away who comes. */
static void our_dials_take_no_room_of_those_who_come(void **state)
{
    static struct racing r;
    static struct tb_link silent[LINK_CONNS_MAX / LINK_CONNS_PER_PEER + 1];
    (void)state;
    begin(&r);
    CHECK_OK(tb_tls_new_ephemeral(&r.links.options.tls));
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++)
        for (uint32_t dial = 0; dial < LINK_CONNS_PER_PEER; dial++)
            assert_non_null(tb_link_conn_new(&r.links, &silent[i]));
    assert_true(tb_links_have_room(&r.links, NULL));
    struct tb_link_conn *came = tb_link_conn_new(&r.links, NULL);
    assert_non_null(came);
    assert_int_equal(r.links.accepted_count, 1);
    came->link = &silent[0]; /* it has shown whose it is: came, all the same */
    silent[0].session.conn_count++;
    while (r.links.conns != NULL)
        tb_link_conn_free(r.links.conns);
    assert_int_equal(r.links.accepted_count, 0);
    assert_int_equal(silent[0].session.conn_count, 0);
    tb_tls_free(r.links.options.tls);
}

/* P6: a path that goes away between a dial and its HELLO. */
static void an_open_dial_without_hello_is_waited_for_as_long_as_a_session(void **state)
{
    (void)state;
    assert_false(dials_beside_opened(0));
    assert_true(dials_beside_opened(TB_SECONDS(1)));
}

/* P6: a path that was away for seconds: the first SYN that arrives is one that TCP repeats, of a
 * dial that is as old as that. */
static void a_dial_that_is_answered_late_is_answered(void **state)
{
    (void)state;
    assert_false(dials_beside_connected(0, 0));
    assert_false(dials_beside_connected(0, TB_SECONDS(3)));
    assert_false(dials_beside_connected(0, LINK_GREET_BY - TB_SECONDS(1)));
    assert_true(dials_beside_connected(TB_SECONDS(1), 0)); /* its TLS does not get through */
    assert_true(dials_beside_connected(TB_SECONDS(1), TB_SECONDS(3)));
    assert_true(dials_beside_connected(0, LINK_GREET_BY - TB_MS(900))); /* it ends before it can be greeted */
    assert_true(
        dials_beside(&(const struct tb_link_conn){.greet_by = TB_TIME_NEVER})); /* nothing came from there */
}

/* ---- a name that says other addresses while its session is up ---- */

struct moving {
    struct racing r;
    struct tb_link_conn session;
};

static struct tb_address address(uint8_t last)
{
    struct tb_address a = {.bytes = 8};
    memset(&a.any, last, 8);
    return a;
}

static void be_up(struct moving *m, bool dialled)
{
    memset(m, 0, sizeof *m);
    m->r.link.path.has_address = true;
    m->r.link.links = &m->r.links;
    m->r.link.session.conn_count = LINK_CONNS_PER_PEER; /* no room: each dial is counted, and fails at once */
    m->session = (struct tb_link_conn){
        .links = &m->r.links, .link = &m->r.link, .dialled = dialled, .address = address(1)};
    m->r.link.session.control = &m->session;
    m->r.link.session.life.state = TB_LINK_UP;
}

/* The name says `last` alone; how many dials that makes. */
static uint64_t dials_after(struct moving *m, uint8_t last, tb_time_ns now)
{
    const uint64_t before = m->r.link.stats.dials;
    const struct tb_address a = address(last);
    tb_link_take_addresses(&m->r.link, &a, 1, now);
    return m->r.link.stats.dials - before;
}

/* P6: an address that will be taken away is left while it still works. One answer without the
 * address may be another part of many. */
static void a_session_follows_its_name(void **state)
{
    static struct moving m;
    (void)state;
    be_up(&m, true);
    assert_int_equal(dials_after(&m, 1, TB_SECONDS(1)), 0);
    assert_int_equal(dials_after(&m, 2, TB_SECONDS(2)), 0);
    assert_int_equal(dials_after(&m, 2, TB_SECONDS(3)), 1);
    assert_true(tb_link_is_up(&m.r.link)); /* the dial failed, and nothing else did */
    assert_int_equal(m.r.link.session.life.state, TB_LINK_UP);
    assert_int_equal(dials_after(&m, 2, TB_SECONDS(8)), 0); /* not again at once */
    assert_int_equal(dials_after(&m, 2, TB_SECONDS(40)), 1);
}

static void answers_that_come_back_move_nothing(void **state)
{
    static struct moving m;
    (void)state;
    be_up(&m, true);
    for (unsigned i = 1; i < 10; i++)
        assert_int_equal(dials_after(&m, (uint8_t)(1 + i % 2), TB_SECONDS(i)), 0);
}

static void a_session_that_the_peer_dialled_stays(void **state)
{
    static struct moving m;
    (void)state;
    be_up(&m, false);
    for (unsigned i = 1; i < 5; i++)
        assert_int_equal(dials_after(&m, 2, TB_SECONDS(i)), 0);
}

/* The state of a link whose only dial ended unreachable, having come so far. */
static enum tb_link_session_state after_a_dial_that_came(enum tb_chan_reach reach, tb_time_ns *next_ms_out)
{
    static struct racing r;
    memset(&r, 0, sizeof r);
    r.link.links = &r.links;
    r.link.session.life.state = TB_LINK_DIALLING;
    r.link.session.life.config = (struct tb_link_session_config){.can_dial = true,
                                                                 .retry_min = TB_MS(100),
                                                                 .retry_max = TB_SECONDS(5),
                                                                 .fresh_dial = TB_MS(250),
                                                                 .silent = TB_SECONDS(1)};
    const tb_time_ns now = tb_clock_now();
    r.link.session.life.next_dial_at = now + TB_SECONDS(60);
    tb_link_dial_ended(&r.link, false, TB_PEER_UNREACHABLE, reach);
    *next_ms_out = tb_time_since(now, r.link.session.life.next_dial_at) / TB_MS(1);
    return r.link.session.life.state;
}

/* P6: "no" is the peer's word. A router that leads nowhere, or a device of ours that is
 * down, has not said it. */
static void only_the_peer_says_no(void **state)
{
    (void)state;
    tb_time_ns next_ms = 0;
    assert_int_equal(after_a_dial_that_came(TB_CHAN_HEARD, &next_ms), TB_LINK_RESTING);
    assert_int_equal(after_a_dial_that_came(TB_CHAN_UNHEARD, &next_ms), TB_LINK_DIALLING);
    assert_int_equal(next_ms, 60000);
    assert_int_equal(after_a_dial_that_came(TB_CHAN_NOWHERE, &next_ms), TB_LINK_DIALLING);
    assert_in_range(next_ms, 100, 10000);
}

/* Of a race whose addresses all failed, one that answered is an answer. */
static void an_answer_of_one_address_counts(void **state)
{
    static struct racing r;
    (void)state;
    for (int answers = 0; answers < 2; answers++) {
        begin(&r);
        r.link.session.life.state = TB_LINK_DIALLING;
        r.link.session.life.config.can_dial = true;
        r.link.path.race_reach = TB_CHAN_NOWHERE;
        tb_link_dial_ended(&r.link, true, TB_PEER_UNREACHABLE, answers ? TB_CHAN_HEARD : TB_CHAN_UNHEARD);
        tb_link_dial_ended(&r.link, true, TB_PEER_UNREACHABLE, TB_CHAN_NOWHERE);
        assert_false(r.link.path.race.on);
        assert_int_equal(r.link.session.life.state, answers ? TB_LINK_RESTING : TB_LINK_DIALLING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_dial_that_opens_ends_the_race),
        cmocka_unit_test(the_races_own_dial_is_looked_at_first),
        cmocka_unit_test(without_a_race_none_begins),
        cmocka_unit_test(strangers_take_no_room_of_ours),
        cmocka_unit_test(our_dials_take_no_room_of_those_who_come),
        cmocka_unit_test(an_open_dial_without_hello_is_waited_for_as_long_as_a_session),
        cmocka_unit_test(a_dial_that_is_answered_late_is_answered),
        cmocka_unit_test(a_session_follows_its_name),
        cmocka_unit_test(answers_that_come_back_move_nothing),
        cmocka_unit_test(a_session_that_the_peer_dialled_stays),
        cmocka_unit_test(only_the_peer_says_no),
        cmocka_unit_test(an_answer_of_one_address_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* links_sessions.c - which sessions begin: certificates, identities, incarnations, two dials at
 * once.
 *
 * Covers: wan/link/session/link_session_life.c wan/link/session/link_frames.c
 * Covers: wan/link/session/link_control.c wan/link/links_options.c */
#include <stdio.h>
#include <unistd.h>

#include "check.h"
#include "links_pair.h"
#include "wan/link/links_stats.h"

/* Both dial; one session stays: the one that the lexically smaller URI dialled. */
static void of_two_sessions_one_stays(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 5, 1, 8 << 20);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", true);
    site_peer(east, west, true, false);
    site_peer(west, east, true, true);
    site_start(east);
    site_start(west);
    BOTH_UP(&w, west, east);
    world_turns(&w.net, 100);
    WORLD_UNTIL(&w.net, site_stats(east, 0).dialled_by_us && !site_stats(west, 0).dialled_by_us);
    const uint64_t sessions = site_stats(east, 0).sessions;
    assert_true(sessions <= 2);
    assert_int_equal(east->ups, 1);
    assert_int_equal(east->downs, 0);
    site_publish(east, &t);
    WORLD_UNTIL(&w.net, west->landed == 1);
    assert_int_equal(site_stats(east, 0).sessions, sessions);
    links_world_fini(&w);
    truth_free(&t);
}

/* P8: nothing is told of a model that the peer may not read. */
static void a_peer_without_the_right_hears_nothing(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    p->east->deny = true;
    pair_publish(p);
    BOTH_UP(&p->w, p->west, p->east);
    WORLD_UNTIL(&p->w.net, site_stats(p->west, 0).refused == 1);
    world_turns(&p->w.net, 20);
    assert_int_equal(p->west->versions, 0);
    assert_int_equal(site_stats(p->east, 0).refused, 1);
}

/* P8: a CA that nobody trusts. West's own CA signed it, but east does not know that CA. */
static void a_wrong_ca_gets_no_session(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    world_issue(&p->w.net, "evil", "gw", "tombolo://evil/gw");
    p->east->tls = world_tls(&p->w.net, "east", "gw", "east"); /* trusts its own alone */
    pair_start(p);
    WORLD_UNTIL(&p->w.net,
                tb_links_strangers_refused(p->east->links) >= 2 && site_stats(p->west, 0).dials_failed >= 2);
    assert_int_equal(p->east->ups + p->west->ups, 0);
}

/* P8: a good certificate of a site that is no peer. */
static void a_wrong_site_gets_no_session(void **state)
{
    (void)state;
    struct links_world w;
    links_world_init(&w);
    struct site *east = site_new(&w, "east", true), *south = site_new(&w, "south", false);
    struct site *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(south, east, true, true);
    site_start(east);
    site_start(south);
    WORLD_UNTIL(&w.net, tb_links_strangers_refused(east->links) >= 2);
    assert_int_equal(south->ups + east->ups, 0);
    links_world_fini(&w);
}

/* P8: the dialler expects a site, and another answers at that address. */
static void a_dialler_checks_the_identity_that_answers(void **state)
{
    (void)state;
    struct links_world w;
    links_world_init(&w);
    struct site *east = site_new(&w, "east", true), *south = site_new(&w, "south", true);
    struct site *west = site_new(&w, "west", false);
    site_peer(south, west, false, false);
    site_peer(west, east, true, true);
    snprintf(west->addresses[0], sizeof west->addresses[0], "127.0.0.1:%u", south->port);
    site_start(south);
    site_start(west);
    WORLD_UNTIL(&w.net, site_stats(west, 0).dials_failed >= 2);
    assert_int_equal(south->ups + west->ups, 0);
    CHECK_STATUS(site_stats(west, 0).last_why, TB_OK); /* there never was a session */
    links_world_fini(&w);
}

/* P8: an expired certificate. */
static void an_expired_certificate_gets_no_session(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    p->west->tls = world_tls_expiring(&p->w.net, "west", "soon", "tombolo://west/gw", "west");
    char why[256];
    CHECK_OK(tb_tls_add_site_ca(p->west->tls, &p->east->options.site, world_path(&p->w.net, "east", "ca.crt"),
                                why));
    const uint64_t expires = tb_tls_expires_wall_s(p->west->tls);
    WORLD_UNTIL(&p->w.net, tb_clock_wall_ms() / 1000 > expires);
    pair_start(p);
    WORLD_UNTIL(&p->w.net, tb_links_strangers_refused(p->east->links) >= 2);
    assert_int_equal(p->east->ups + p->west->ups, 0);
}

/* P7, P10: garbage in clear on the port costs a connection and a line each, and hurts nobody. */
static void plaintext_garbage_is_refused(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    pair_start(p);
    struct tb_address at;
    assert_true(tb_links_address(p->east->links, &at));
    const char garbage[] = "GET / HTTP/1.1\r\nHost: east\r\n\r\n";
    int fds[8];
    for (int i = 0; i < 8; i++) {
        fds[i] = raw_connect(&at);
        assert_int_equal(write(fds[i], garbage, sizeof garbage), sizeof garbage);
    }
    WORLD_UNTIL(&p->w.net, tb_links_strangers_refused(p->east->links) == 8);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    site_publish(p->east, &p->t);
    WORLD_UNTIL(&p->w.net, p->west->landed == 1);
}

/* A catalog that restarted from an older state is refused, with the number it has to get above. */
static void an_older_incarnation_is_refused(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    p->west->options.incarnation = 9;
    pair_up(p);
    site_close(p->west);
    p->west->options.incarnation = 8;
    site_start(p->west);
    WORLD_UNTIL(&p->w.net, p->west->refused_by_peer > 0);
    CHECK_STATUS(p->west->refused_why, TB_PEER_STALE);
    assert_int_equal(p->west->refused_detail, 9);
    tb_links_set_incarnation(p->west->links, 10);
    WORLD_UNTIL(&p->w.net, p->west->ups == 2);
}

/* The twin: the acceptor is in the session already when the dialler judges its HELLO, and
 * hears of it all the same. */
static void an_older_incarnation_of_the_acceptor_is_told(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    p->east->options.incarnation = 9;
    pair_up(p);
    site_close(p->east);
    p->east->options.incarnation = 8;
    site_start(p->east);
    WORLD_UNTIL(&p->w.net, p->east->refused_by_peer > 0);
    CHECK_STATUS(p->east->refused_why, TB_PEER_STALE);
    assert_int_equal(p->east->refused_detail, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_sessions_one_stays),
        PAIR_TEST(a_peer_without_the_right_hears_nothing),
        PAIR_TEST(a_wrong_ca_gets_no_session),
        cmocka_unit_test(a_wrong_site_gets_no_session),
        cmocka_unit_test(a_dialler_checks_the_identity_that_answers),
        PAIR_TEST(an_expired_certificate_gets_no_session),
        PAIR_TEST(plaintext_garbage_is_refused),
        PAIR_TEST(an_older_incarnation_is_refused),
        PAIR_TEST(an_older_incarnation_of_the_acceptor_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* links_why.c - the reason that a link shows: each failure of a dial or a handshake has its name
 * at both ends, a session that comes up clears it, and a link that is down says since when (P10).
 *
 * Covers: wan/link/path/link_why.c wan/link/session/link_twin.c */
#include "rogue.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_stats.h"

struct two {
    struct links_world w;
    struct site *east, *west;
};

static void two_init(struct two *t)
{
    links_world_init(&t->w);
    t->east = site_new(&t->w, "east", true);
    t->west = site_new(&t->w, "west", true);
}

/* Only west dials; east knows where west lives. */
static void west_dials(struct two *t)
{
    site_peer(t->west, t->east, true, true);
    site_peer(t->east, t->west, false, true);
}

static void only_trusts_itself(struct two *t, struct site *s)
{
    s->tls = world_tls(&t->w.net, s->name, "gw", s->name);
}

static bool says(const struct site *s, enum tb_links_why why)
{
    const struct tb_links_stats stats = site_stats(s, 0);
    return !stats.up && stats.why == why;
}

static void names(const struct site *s, const char *one, const char *two)
{
    const struct tb_links_stats stats = site_stats(s, 0);
    if (strstr(stats.error, one) == NULL || strstr(stats.error, two) == NULL)
        fail_msg("%s says: %s", s->name, stats.error);
}

static void a_closed_port_is_named(void **state)
{
    (void)state;
    struct two t;
    two_init(&t);
    west_dials(&t);
    site_start(t.west);
    WORLD_UNTIL(&t.w.net, says(t.west, TB_LINKS_WHY_REFUSED));
    names(t.west, "tombolo://east/gw at 127.0.0.1:", "refused");
    assert_false(site_stats(t.west, 0).turned_away);
    const tb_time_ns since = site_stats(t.west, 0).state_since;
    assert_true(since > 0);
    site_start(t.east); /* and a session clears it */
    BOTH_UP(&t.w, t.east, t.west);
    const struct tb_links_stats up = site_stats(t.west, 0);
    assert_int_equal(up.why, TB_LINKS_WHY_NONE);
    assert_string_equal(up.error, "");
    assert_true(up.state_since > since);
    site_close(t.east);
    WORLD_UNTIL(&t.w.net, !site_stats(t.west, 0).up);
    assert_true(site_stats(t.west, 0).state_since >= up.state_since);
    assert_int_not_equal(site_stats(t.west, 0).why, TB_LINKS_WHY_NONE);
    links_world_fini(&t.w);
}

/* The dialler does not trust the acceptor: the alert comes before its certificate, and its
 * address says who it is. */
static void a_dialler_that_does_not_trust_is_named_at_both_ends(void **state)
{
    (void)state;
    struct two t;
    two_init(&t);
    site_peer(t.west, t.east, true, true);
    site_peer(t.east, t.west, true, true);
    only_trusts_itself(&t, t.west);
    t.west->port = 0; /* so what east dials is a closed port: the refused certificate says more */
    site_start(t.east);
    site_start(t.west);
    WORLD_UNTIL(&t.w.net, says(t.west, TB_LINKS_WHY_TLS) && says(t.east, TB_LINKS_WHY_TLS));
    names(t.west, "tombolo://east/gw at 127.0.0.1:", "the peer's certificate: ");
    names(t.east, "tombolo://west/gw at 127.0.0.1:", "does not accept the certificate of tombolo://east/gw");
    assert_true(site_stats(t.west, 0).turned_away && site_stats(t.east, 0).turned_away);
    const uint64_t dials = site_stats(t.east, 0).dials_failed;
    WORLD_UNTIL(&t.w.net, site_stats(t.east, 0).dials_failed > dials);
    assert_true(says(t.east, TB_LINKS_WHY_TLS));
    links_world_fini(&t.w);
}

/* The acceptor does not trust the dialler: whom its certificate claims to be is who it is told
 * of. */
static void an_acceptor_that_does_not_trust_is_named_at_both_ends(void **state)
{
    (void)state;
    struct two t;
    two_init(&t);
    west_dials(&t);
    only_trusts_itself(&t, t.east);
    site_start(t.east);
    site_start(t.west);
    WORLD_UNTIL(&t.w.net, says(t.west, TB_LINKS_WHY_TLS) && says(t.east, TB_LINKS_WHY_TLS));
    names(t.west, "does not accept the certificate of tombolo://west/gw", "no CA that is trusted there");
    names(t.east, "tombolo://west/gw at 127.0.0.1:", "the peer's certificate: ");
    links_world_fini(&t.w);
}

/* West expects another gateway of east's site than is there. */
static void another_gateway_at_the_address_is_named(void **state)
{
    (void)state;
    struct two t;
    two_init(&t);
    site_peer(t.west, t.east, true, true);
    site_peer(t.east, t.west, true, true);
    CHECK_OK(tb_name_set(&t.west->peers[0].gateway, "other"));
    t.west->port = 0;
    site_start(t.east);
    site_start(t.west);
    WORLD_UNTIL(&t.w.net, says(t.west, TB_LINKS_WHY_IDENTITY) && says(t.east, TB_LINKS_WHY_IDENTITY));
    names(t.west, "the peer is tombolo://east/gw, expected tombolo://east/other", "127.0.0.1:");
    names(t.east, "tombolo://west/gw at 127.0.0.1:", "not the one of the gateway that is expected there");
    links_world_fini(&t.w);
}

/* East expects another gateway of west's site than dials it: west hears that it is no peer
 * there. */
static void another_gateway_that_dials_is_named(void **state)
{
    (void)state;
    struct two t;
    two_init(&t);
    west_dials(&t);
    CHECK_OK(tb_name_set(&t.east->peers[0].gateway, "other"));
    site_start(t.east);
    site_start(t.west);
    WORLD_UNTIL(&t.w.net, says(t.west, TB_LINKS_WHY_REFUSED) && says(t.east, TB_LINKS_WHY_IDENTITY));
    names(t.west, "tombolo://east/gw has no tombolo://west/gw among its peers", "");
    names(t.east, "tombolo://west/gw came from 127.0.0.1:", "where tombolo://west/other is expected");
    links_world_fini(&t.w);
}

/* A certificate that ends while both run: the session ends with it, and its dates are the
 * reason at both ends. */
static void a_certificate_that_ends_is_named(void **state)
{
    (void)state;
    struct two t;
    char why[256];
    two_init(&t);
    west_dials(&t);
    t.west->tls = world_tls_expiring(&t.w.net, "west", "short", "tombolo://west/gw", "west");
    CHECK_OK(
        tb_tls_add_site_ca(t.west->tls, &t.east->options.site, world_path(&t.w.net, "east", "ca.crt"), why));
    site_start(t.east);
    site_start(t.west);
    WORLD_UNTIL(&t.w.net, says(t.west, TB_LINKS_WHY_CLOCK) && says(t.east, TB_LINKS_WHY_CLOCK));
    /* the dials after it fail for that, too */
    WORLD_UNTIL(&t.w.net, strstr(site_stats(t.east, 0).error, "has expired, at 20") != NULL);
    WORLD_UNTIL(&t.w.net, strstr(site_stats(t.west, 0).error, "does not accept") != NULL);
    names(t.west, "the certificate of tombolo://west/gw: it has expired", "");
    links_world_fini(&t.w);
}

/* P8: a denied reader is told at both ends, for as long as the session lasts in
 * which it was said. */
static void a_right_that_lacks_is_told(void **state)
{
    (void)state;
    struct two t;
    two_init(&t);
    west_dials(&t);
    t.east->deny = true;
    site_start(t.east);
    site_start(t.west);
    WORLD_UNTIL(&t.w.net, tb_links_denied(t.west->links, 0, &t.w.model));
    assert_string_equal(tb_links_denied_at(t.west->links, 0, 0)->text, "policy");
    assert_null(tb_links_denied_at(t.west->links, 0, 1));
    assert_string_equal(tb_links_refused_at(t.east->links, 0, 0)->text, "policy");
    assert_null(tb_links_refused_at(t.east->links, 0, 1));
    assert_false(tb_links_denied(t.east->links, 0, &t.w.model)); /* west lets east read */
    site_close(t.east);
    WORLD_UNTIL(&t.w.net, !site_stats(t.west, 0).up);
    assert_false(tb_links_denied(t.west->links, 0, &t.w.model));
    t.east->deny = false;
    site_start(t.east);
    BOTH_UP(&t.w, t.east, t.west);
    world_turns(&t.w.net, 50);
    assert_false(tb_links_denied(t.west->links, 0, &t.w.model));
    assert_null(tb_links_refused_at(t.east->links, 0, 0));
    links_world_fini(&t.w);
}

/* P7: a peer that asks for models without end, or denies what nobody asked for, takes no
 * more than its place. */
static void models_without_end_are_bounded(void **state)
{
    (void)state;
    struct rogue r;
    char name[32];
    rogue_init(&r);
    rogue_greet(&r);
    for (unsigned i = 0; i < TB_LINKS_REFUSED_MAX + 10; i++) {
        snprintf(name, sizeof name, "made-up-%u", i);
        ROGUE_SEND(&r, TB_FRAME_SUBSCRIBE, tb_frame_subscribe, .model = rogue_name(name));
    }
    ROGUE_SEND(&r, TB_FRAME_DENIED, tb_frame_denied, .model = rogue_name("made-up"));
    WORLD_UNTIL(&r.w.net, site_stats(r.east, 0).refused == TB_LINKS_REFUSED_MAX + 11);
    assert_non_null(tb_links_refused_at(r.east->links, 0, TB_LINKS_REFUSED_MAX - 1));
    assert_null(tb_links_refused_at(r.east->links, 0, TB_LINKS_REFUSED_MAX));
    assert_null(tb_links_denied_at(r.east->links, 0, 0));
    rogue_fini(&r);
}

/* P6: two gateways are west. The first keeps the session, the second hears why, and nothing flaps;
 * once the first is gone the second comes up. */
static void check_twins(const struct tb_links_options *first, const struct tb_links_options *second)
{
    struct two t;
    two_init(&t);
    west_dials(&t);
    struct site *twin = site_new(&t.w, "north", false);
    twin->options.site = t.west->options.site;
    twin->options.life = second->life;
    twin->options.process = second->process;
    twin->options.incarnation = 7; /* it counted further: that makes it no better */
    t.west->options.life = first->life;
    t.west->options.process = first->process;
    site_peer(twin, t.east, true, true);
    site_start(t.east);
    site_start(t.west);
    BOTH_UP(&t.w, t.east, t.west);
    twin->tls = tb_tls_ref(t.west->tls);
    site_start(twin);
    WORLD_UNTIL(&t.w.net, says(twin, TB_LINKS_WHY_TWIN));
    names(twin, "another gateway is tombolo://west/gw, too", "the session with tombolo://east/gw");
    const struct tb_links_stats east = site_stats(t.east, 0);
    assert_true(east.up);
    assert_int_equal(east.why, TB_LINKS_WHY_TWIN);
    names(t.east, "two gateways are tombolo://west/gw: the one at 127.0.0.1:", "stop one of the two");
    const uint64_t dials = site_stats(twin, 0).dials_failed;
    WORLD_UNTIL(&t.w.net, site_stats(twin, 0).dials_failed >= dials + 5);
    assert_int_equal(site_stats(t.east, 0).sessions, 1);
    assert_int_equal(t.west->downs, 0);
    assert_int_equal(site_stats(t.west, 0).why, TB_LINKS_WHY_NONE);
    site_close(t.west);
    WORLD_UNTIL(&t.w.net, site_stats(twin, 0).up);
    assert_int_equal(site_stats(twin, 0).why, TB_LINKS_WHY_NONE);
    WORLD_UNTIL(&t.w.net, site_stats(t.east, 0).up && site_stats(t.east, 0).why == TB_LINKS_WHY_NONE);
    links_world_fini(&t.w);
}

static void a_twin_is_named_at_both_ends(void **state)
{
    (void)state;
    check_twins(&(struct tb_links_options){.life = {{1}}}, &(struct tb_links_options){.life = {{2}}});
}

/* The same of a twin whose arena file was cloned: its life is the same, and its process another. */
static void a_twin_with_a_cloned_arena_is_named_too(void **state)
{
    (void)state;
    check_twins(&(struct tb_links_options){.life = {{1}}, .process = {{1}}},
                &(struct tb_links_options){.life = {{1}}, .process = {{2}}});
}

/* A peer that restarted without its arena, and whose old connection nobody closed, is let in once
 * that has been silent. */
static void a_restart_without_a_goodbye_is_no_twin(void **state)
{
    (void)state;
    struct rogue r;
    rogue_init(&r);
    rogue_greet(&r); /* and it answers no heartbeat */
    WORLD_UNTIL(&r.w.net, site_stats(r.east, 0).up);
    struct site *again = site_new(&r.w, "north", false);
    again->options.site = r.west->options.site;
    again->options.life.bytes[0] = 2;
    again->options.incarnation = 2;
    site_peer(again, r.east, true, false);
    again->tls = tb_tls_ref(r.tls);
    site_start(again);
    WORLD_UNTIL(&r.w.net, site_stats(again, 0).up);
    assert_int_equal(site_stats(r.east, 0).why, TB_LINKS_WHY_NONE);
    assert_int_equal(site_stats(again, 0).refused, 0);
    rogue_fini(&r);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_port_is_named),
        cmocka_unit_test(a_dialler_that_does_not_trust_is_named_at_both_ends),
        cmocka_unit_test(an_acceptor_that_does_not_trust_is_named_at_both_ends),
        cmocka_unit_test(another_gateway_at_the_address_is_named),
        cmocka_unit_test(another_gateway_that_dials_is_named),
        cmocka_unit_test(a_certificate_that_ends_is_named),
        cmocka_unit_test(a_right_that_lacks_is_told),
        cmocka_unit_test(a_twin_is_named_at_both_ends),
        cmocka_unit_test(a_twin_with_a_cloned_arena_is_named_too),
        cmocka_unit_test(a_restart_without_a_goodbye_is_no_twin),
        cmocka_unit_test(models_without_end_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

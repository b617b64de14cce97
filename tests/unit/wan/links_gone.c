/* links_gone.c - a link forgets a version that leaves, and bounds how many stand on it at once.
 *
 * P7: a version that a peer held is known for as long as the peer holds it.
 *
 * Covers: wan/link/traffic/offer_table.c wan/link/traffic/links_offers.c
 * Covers: wan/link/traffic/landing_table.c */
#include "links_world.h"

#include "check.h"
#include "wan/link/links_limits.h"

/* However busy the machine is, one session lasts from beginning to end. */
static void be_patient(struct site *s)
{
    s->options.heartbeat_ms = 60000;
    s->options.down_ms = 600000;
}

static struct tb_links_progress progress_of(const struct site *s, const struct tb_id *uid)
{
    struct tb_links_progress p = {0};
    CHECK_OK(tb_links_peer_progress(s->links, 0, uid, &p));
    return p;
}

/* A home reads its own model from its peers, so it hears GONE of what it still offers. */
static void a_peer_that_dropped_a_version_holds_none_of_it(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 7, 1, 4 << 20);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", false);
    site_peer(east, west, false, true);
    site_peer(west, east, true, true);
    be_patient(east);
    be_patient(west);
    site_start(east);
    site_start(west);
    site_publish(east, &t);
    WORLD_UNTIL(&w.net, west->landed == 1 && east->peer_held == 1 && east->versions == 1);
    assert_true(progress_of(east, &t.key.uid).whole);
    CHECK_OK(tb_links_retract(west->links, &t.key.uid, TB_SUPERSEDED, NULL, NULL));
    WORLD_UNTIL(&w.net, east->gone == 1);
    assert_false(progress_of(east, &t.key.uid).whole);
    assert_int_equal(progress_of(east, &t.key.uid).held_chunks, 0);
    links_world_fini(&w);
    truth_free(&t);
}

/* P6: landings that are over stay with their version and are none of those that may
 * be under way at once. */
static void more_versions_land_than_may_be_under_way(void **state)
{
    (void)state;
    enum { COUNT = TB_LINKS_LANDINGS_MAX + 2 };
    struct links_world w;
    struct truth t[COUNT];
    links_world_init(&w);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(west, east, true, true);
    west->keeps_landings = true;
    be_patient(east);
    be_patient(west);
    site_start(east);
    site_start(west);
    for (int i = 0; i < COUNT; i++) {
        truth_make(&t[i], 100 + (uint64_t)i, 1, 1 << 20);
        site_publish(east, &t[i]);
        WORLD_UNTIL(&w.net, west->landed == i + 1);
    }
    for (int i = 0; i < COUNT; i++)
        check_equal(site_copy(west, &t[i]), &t[i]);
    links_world_fini(&w);
    for (int i = 0; i < COUNT; i++)
        truth_free(&t[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_dropped_a_version_holds_none_of_it),
        cmocka_unit_test(more_versions_land_than_may_be_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* links_peers.c - peers come and go, move, and their models and rights change, while the links are
 * open: what is up stays up (P6), and a peer that lost a right hears no more (P8).
 *
 * Covers: wan/link/links_peers.c wan/link/traffic/link_rights.c */
#include "wan/link/links_peers.h"
#include "base/allocate.h"
#include "check.h"
#include "links_world.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_known.h"
#include "wan/link/links_table_counts.h"
#include "wan/link/session/link_admission.h"

/* East listens; west dials it. North is made, so that all trust each other, and is no peer. */
struct three {
    struct links_world w;
    struct site *east, *west, *north;
};

static void three_sites(struct three *t, bool west_wants)
{
    links_world_init(&t->w);
    t->east = site_new(&t->w, "east", true);
    t->west = site_new(&t->w, "west", false);
    t->north = site_new(&t->w, "north", false);
    site_peer(t->east, t->west, false, false);
    site_peer(t->west, t->east, true, west_wants);
    site_peer(t->north, t->east, true, true);
    site_start(t->east);
    site_start(t->west);
    BOTH_UP(&t->w, t->west, t->east);
}

/* Of the peer with that index, as it was told in the first session. */
static void stands(const struct three *t)
{
    const struct tb_links_stats stats = site_stats(t->west, 0);
    assert_true(stats.up);
    assert_int_equal(stats.sessions, 1);
    assert_int_equal(stats.streams_lost, 0);
    assert_int_equal(t->west->downs + t->west->renewals, 0);
}

static struct tb_links_peer_options north_options(const struct three *t)
{
    return (struct tb_links_peer_options){.site = t->north->options.site,
                                          .gateway = t->north->options.gateway};
}

static void add_north(struct three *t)
{
    char error[256];
    const struct tb_links_peer_options north = north_options(t);
    CHECK_OK(tb_links_peer_add(t->east->links, &north, error));
}

static void a_peer_that_is_added_comes_up(void **state)
{
    static struct three t;
    static struct truth v;
    (void)state;
    three_sites(&t, true);
    truth_make(&v, 1, 1, 4 << 20);
    (void)site_publish(t.east, &v); /* offered before north is a peer */
    add_north(&t);
    assert_int_equal(tb_links_peer_count(t.east->links), 2);
    assert_int_equal(tb_links_peer_find(t.east->links, "north"), 1);
    site_start(t.north);
    WORLD_UNTIL(&t.w.net, t.north->landed == 1 && t.west->landed == 1);
    stands(&t);
    truth_free(&v);
    links_world_fini(&t.w);
}

static void as_many_are_added_as_there_is_room_for(void **state)
{
    static struct three t;
    char error[256], name[16];
    (void)state;
    three_sites(&t, true);
    struct tb_links_peer_options p = north_options(&t);
    for (uint32_t i = 0; i < 8; i++) {
        (void)snprintf(name, sizeof name, "site%u", i);
        CHECK_OK(tb_name_set(&p.site, name));
        CHECK_OK(tb_links_peer_add(t.east->links, &p, error));
    }
    CHECK_OK(tb_name_set(&p.site, "onemore"));
    CHECK_STATUS(tb_links_peer_add(t.east->links, &p, error), TB_TOO_LARGE);
    p.address = "nowhere";
    CHECK_STATUS(tb_links_peer_add(t.west->links, &p, error), TB_BAD_ARGUMENT);
    stands(&t);
    links_world_fini(&t.w);
}

/* Its landing waits for others; the crossing to west goes on over the streams that it has. */
static void a_peer_that_is_removed_is_a_stranger(void **state)
{
    static struct three t;
    static struct truth v;
    (void)state;
    three_sites(&t, true);
    add_north(&t);
    site_start(t.north);
    WORLD_UNTIL(&t.w.net, site_stats(t.north, 0).up);
    truth_make(&v, 2, 2, 16 << 20);
    (void)site_publish(t.east, &v);
    WORLD_UNTIL(&t.w.net, t.west->manifests == 1 && t.north->manifests == 1);
    tb_links_peer_remove(t.east->links, 1);
    assert_false(site_stats(t.east, 1).up);
    struct tb_links_progress held;
    CHECK_OK(tb_links_peer_progress(t.east->links, 1, &v.key.uid, &held));
    assert_int_equal(held.held_chunks, 0);
    assert_int_equal(tb_links_peer_find(t.east->links, "north"), UINT32_MAX);
    WORLD_UNTIL(&t.w.net, t.west->landed == 1);
    check_equal(site_copy(t.west, &v), &v);
    stands(&t);
    WORLD_UNTIL(&t.w.net, tb_links_strangers_refused(t.east->links) > 0); /* it dials again */
    assert_false(site_stats(t.east, 1).up);
    truth_free(&v);
    links_world_fini(&t.w);
}

static void a_peer_is_dialled_at_its_new_address(void **state)
{
    static struct three t;
    char address[64], wrong[64];
    (void)state;
    links_world_init(&t.w);
    t.east = site_new(&t.w, "east", true);
    t.west = site_new(&t.w, "west", false);
    site_peer(t.east, t.west, false, false);
    site_peer(t.west, t.east, true, true);
    site_start(t.east);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", t.east->port);
    (void)snprintf(wrong, sizeof wrong, "127.0.0.1:1");
    t.west->peers[0].address = wrong;
    site_start(t.west);
    WORLD_UNTIL(&t.w.net, site_stats(t.west, 0).dials_failed > 0);
    tb_links_peer_address(t.west->links, 0, address);
    BOTH_UP(&t.w, t.west, t.east);
    tb_links_peer_address(t.west->links, 0, wrong); /* it is up: it stays */
    tb_links_peer_address(t.west->links, 0, NULL);
    stands(&t);
    links_world_fini(&t.w);
}

static void a_model_that_is_wanted_later_is_announced(void **state)
{
    static struct three t;
    static struct truth v, w;
    (void)state;
    three_sites(&t, false);
    truth_make(&v, 3, 1, 4 << 20);
    truth_make(&w, 4, 1, 4 << 20);
    (void)site_publish(t.east, &v);
    tb_links_peer_models(t.west->links, 0, &t.w.model, 1);
    WORLD_UNTIL(&t.w.net, t.west->landed == 1);
    tb_links_peer_models(t.west->links, 0, NULL, 0); /* what east says of it is no mistake of east's */
    (void)site_publish(t.east, &w);
    WORLD_UNTIL(&t.w.net, t.west->versions == 2);
    tb_links_peer_models(t.west->links, 0, &t.w.model, 1);
    WORLD_UNTIL(&t.w.net, t.west->landed == 2);
    stands(&t);
    truth_free(&v);
    truth_free(&w);
    links_world_fini(&t.w);
}

static uint32_t used(const struct site *s, enum tb_links_table table)
{
    struct tb_links_usage usage;
    tb_links_usage(s->links, table, &usage);
    return usage.used;
}

/* P6: so many names came in one session that the first one's row went to another. A version of it
 * breaks no protocol, is told to nobody, and counts once the model is wanted again. */
static void a_name_without_a_row_is_heard_once_it_is_wanted_again(void **state)
{
    static struct three t;
    static struct truth v;
    static struct tb_name names[TB_LINKS_MODELS_MAX];
    (void)state;
    three_sites(&t, true);
    WORLD_UNTIL(&t.w.net, used(t.east, TB_LINKS_TABLE_GRANTED) == 1);
    for (uint32_t i = 0; i < TB_LINKS_MODELS_MAX; i++)
        (void)snprintf(names[i].text, sizeof names[i].text, "lora-%u", i);
    tb_links_peer_models(t.west->links, 0, names, TB_LINKS_MODELS_MAX);
    tb_links_peer_models(t.west->links, 0, names, TB_LINKS_MODELS_MAX);
    truth_make(&v, 7, 1, 4 << 20);
    (void)site_publish(t.east, &v);
    WORLD_UNTIL(&t.w.net, used(t.west, TB_LINKS_TABLE_ANNOUNCED) == 1);
    assert_int_equal(t.west->versions, 0);
    assert_false(tb_links_announces(t.west->links, 0, &v.key.uid));
    tb_links_peer_models(t.west->links, 0, &t.w.model, 1);
    assert_true(tb_links_announces(t.west->links, 0, &v.key.uid));
    stands(&t);
    truth_free(&v);
    links_world_fini(&t.w);
}

/* P6 P7: models come and go in a long session. The next one is denied; the session goes on. */
static void a_name_beyond_what_a_session_may_ask_for_is_denied(void **state)
{
    static struct three t;
    (void)state;
    three_sites(&t, false);
    struct tb_link_models *m = &t.east->links->links[0].traffic.models;
    tb_free(m->granted);
    m->granted = tb_calloc(TB_LINKS_GRANTED_MAX, sizeof *m->granted);
    assert_non_null(m->granted);
    m->granted_count = m->granted_cap = TB_LINKS_GRANTED_MAX;
    tb_links_peer_models(t.west->links, 0, &t.w.model, 1);
    WORLD_UNTIL(&t.w.net, tb_links_denied(t.west->links, 0, &t.w.model));
    assert_non_null(tb_links_refused_at(t.east->links, 0, 0));
    stands(&t);
    links_world_fini(&t.w);
}

/* P8: it hears that what it was told of is gone; with the right it hears of it again. */
static void a_right_ends_and_comes_back_in_a_session(void **state)
{
    static struct three t;
    static struct truth v;
    (void)state;
    three_sites(&t, true);
    truth_make(&v, 5, 1, 4 << 20);
    t.west->no_land = true;
    (void)site_publish(t.east, &v);
    WORLD_UNTIL(&t.w.net, t.west->versions == 1);
    t.east->deny = true;
    tb_links_right_changed(t.east->links, 0, &t.w.model, false);
    WORLD_UNTIL(&t.w.net, t.west->gone == 1 && tb_links_denied(t.west->links, 0, &t.w.model));
    CHECK_STATUS(t.west->gone_why, TB_PEER_DENIED);
    assert_non_null(tb_links_refused_at(t.east->links, 0, 0));
    t.east->deny = t.west->no_land = false;
    tb_links_right_changed(t.east->links, 0, &t.w.model, true);
    WORLD_UNTIL(&t.w.net, t.west->landed == 1);
    assert_false(tb_links_denied(t.west->links, 0, &t.w.model));
    assert_null(tb_links_refused_at(t.east->links, 0, 0));
    stands(&t);
    truth_free(&v);
    links_world_fini(&t.w);
}

/* A right that is taken in the middle of a crossing: nothing more begins, and no stream closes. */
static void a_crossing_ends_with_its_right(void **state)
{
    static struct three t;
    static struct truth v;
    (void)state;
    three_sites(&t, true);
    truth_make(&v, 6, 2, 32 << 20);
    (void)site_publish(t.east, &v);
    WORLD_UNTIL(&t.w.net, site_stats(t.east, 0).chunks_sent > 0);
    t.west->forgiving = true;
    t.east->deny = true;
    tb_links_right_changed(t.east->links, 0, &t.w.model, false);
    WORLD_UNTIL(&t.w.net, tb_links_denied(t.west->links, 0, &t.w.model));
    stands(&t);
    truth_free(&v);
    links_world_fini(&t.w);
}

/* Another CA of north ends no session of west; another one of west does. */
static void trust_in_one_site_is_no_others(void **state)
{
    static struct three t;
    char why[256];
    (void)state;
    three_sites(&t, true);
    struct tb_tls *fewer = world_tls(&t.w.net, "east", "gw", "east");
    const char *ca = world_path(&t.w.net, "west", "ca.crt");
    CHECK_OK(tb_tls_add_site_ca(fewer, &t.west->options.site, ca, why));
    CHECK_OK(tb_links_set_tls(t.east->links, fewer));
    const int downs = t.east->downs;
    WORLD_UNTIL(&t.w.net, site_stats(t.east, 0).up);
    assert_int_equal(downs, 0);
    stands(&t);
    struct tb_tls *none = world_tls(&t.w.net, "east", "gw", "east");
    CHECK_OK(tb_links_set_tls(t.east->links, none));
    assert_int_equal(t.east->downs, 1);
    tb_tls_free(fewer);
    tb_tls_free(none);
    links_world_fini(&t.w);
}

static void admission_takes_other_numbers(void **state)
{
    static struct three t;
    (void)state;
    three_sites(&t, true);
    tb_links_admission(t.east->links, 3, 4, 5);
    const struct tb_link_admission *a = t.east->links->admission;
    assert_int_equal(a->strangers.open_each, 3);
    assert_int_equal(a->strangers.failed_each, 4);
    assert_int_equal(a->glitches.most[TB_GLITCH_GARBLED], 5);
    stands(&t);
    links_world_fini(&t.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_is_added_comes_up),
        cmocka_unit_test(as_many_are_added_as_there_is_room_for),
        cmocka_unit_test(a_peer_that_is_removed_is_a_stranger),
        cmocka_unit_test(a_peer_is_dialled_at_its_new_address),
        cmocka_unit_test(a_model_that_is_wanted_later_is_announced),
        cmocka_unit_test(a_name_without_a_row_is_heard_once_it_is_wanted_again),
        cmocka_unit_test(a_name_beyond_what_a_session_may_ask_for_is_denied),
        cmocka_unit_test(a_right_ends_and_comes_back_in_a_session),
        cmocka_unit_test(a_crossing_ends_with_its_right),
        cmocka_unit_test(trust_in_one_site_is_no_others),
        cmocka_unit_test(admission_takes_other_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

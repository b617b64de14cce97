/* Versions of dtypes that a protocol cannot name: refused to a peer that speaks it, and to no
 * other.
 *
 * Covers: wan/link/traffic/link_dtypes.c */
#include "links_world.h"

#include <string.h>

#include "check.h"
#include "wan/frame/frame.h"

struct older {
    struct links_world w;
    struct truth t;
    struct site *east, *west;
};

/* east has the version, west wants it and speaks that protocol at most. */
static void make(struct older *p, const char *dtype, uint32_t protocol)
{
    links_world_init(&p->w);
    truth_make_of(&p->t, 3, 2, 4 << 20, dtype);
    p->east = site_new(&p->w, "east", true);
    p->west = site_new(&p->w, "west", false);
    site_peer(p->east, p->west, false, false);
    site_peer(p->west, p->east, true, true);
    p->west->options.protocol_max = protocol;
    site_start(p->east);
    site_start(p->west);
}

static void fini(struct older *p)
{
    links_world_fini(&p->w);
    truth_free(&p->t);
}

static void each_dtype_crosses(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3",  "F6_E3M2",
                                         "F4",      "C64",         "NEW_3:3",     "NEW_16:16"};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        struct older p;
        make(&p, dtypes[i], TB_LINK_PROTOCOL);
        assert_true(p.t.manifests[0].layout.other_dtypes);
        site_publish(p.east, &p.t);
        WORLD_UNTIL(&p.w.net, p.west->landed == 1);
        check_equal(site_copy(p.west, &p.t), &p.t);
        assert_int_equal(site_stats(p.east, 0).dtypes_refused, 0);
        fini(&p);
    }
}

/* The peer hears why, and what it can read goes on over the same session. */
static void an_older_protocol_is_refused_them_and_nothing_else(void **state)
{
    (void)state;
    for (uint32_t protocol = TB_LINK_PROTOCOL_MIN; protocol < TB_LINK_PROTOCOL_DTYPES; protocol++) {
        struct older p;
        struct truth plain;
        make(&p, "F4", protocol);
        truth_make(&plain, 9, 2, 4 << 20);
        site_publish(p.east, &p.t);
        WORLD_UNTIL(&p.w.net, p.west->failed == 1 && p.west->gone == 1);
        assert_int_equal(p.west->failed_why, TB_PEER_PROTOCOL);
        assert_int_equal(p.west->gone_why, TB_PEER_PROTOCOL);
        assert_int_equal(site_stats(p.east, 0).dtypes_refused, 1);
        site_publish(p.east, &plain);
        WORLD_UNTIL(&p.w.net, p.west->landed == 1);
        check_equal(site_copy(p.west, &plain), &plain);
        assert_int_equal(p.west->manifests, 1);
        assert_int_equal(site_stats(p.west, 0).sessions, 1);
        assert_int_equal(site_stats(p.west, 0).garbled, 0);
        fini(&p);
        truth_free(&plain);
    }
}

/* It may have the manifests from a peer that could send them. */
static void an_older_protocol_that_wants_the_bytes_is_refused_too(void **state)
{
    (void)state;
    struct older p;
    make(&p, "F6_E2M3", 2);
    p.west->no_land = true;
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, p.west->versions == 1);
    struct copy *c = site_place(p.west, &p.t.key, p.t.manifests);
    CHECK_OK(tb_links_land(p.west->links, 0, &c->key, c->places));
    WORLD_UNTIL(&p.w.net, p.west->gone == 1);
    assert_int_equal(p.west->gone_why, TB_PEER_PROTOCOL);
    assert_int_equal(copy_held(c), 0);
    assert_int_equal(site_stats(p.east, 0).dtypes_refused, 1);
    fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_dtype_crosses),
        cmocka_unit_test(an_older_protocol_is_refused_them_and_nothing_else),
        cmocka_unit_test(an_older_protocol_that_wants_the_bytes_is_refused_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

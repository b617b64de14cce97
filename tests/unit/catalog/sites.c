/* sites.c - tests of gateway/catalog/sites.c: what crosses to here, in which order, and what
 * is believed of others.
 *
 * Covers: gateway/catalog/sites.c gateway/catalog/rules/site_rules.c */
#include "gateway/catalog/sites.h"
#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "site.h"

/* A newer ready version replaces one whose crossing has not begun... */
static void a_newer_one_replaces_what_has_not_begun(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    said(&s, "[   0] cross v5 from east\n");
    const struct tb_id v5 = id_of(5), v6 = id_of(6);
    assert_true(tb_catalog_crossing_wanted(s.c, &v5));
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    said(&s, "[   0] cross v6 from east\n");
    assert_false(tb_catalog_crossing_wanted(s.c, &v5)); /* its manifests may still come */
    assert_true(tb_catalog_crossing_wanted(s.c, &v6));
    CHECK_OK(hear(&s, "east", 7, TB_VERSION_READY)); /* not drained in between: 6 is not even said */
    CHECK_OK(hear(&s, "east", 8, TB_VERSION_READY));
    said(&s, "[   0] cross v8 from east\n");
    cross_whole(&s, 8);
    said(&s, ""); /* the older ones need not cross any more */
    site_close(&s);
}

/* P6: a chunk rots at east, so its arena has a new life. A crossing from there is not given up
 * for that: east announces next what it still has. */
static void a_new_life_of_its_only_source_ends_no_crossing(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name east_name = name_of("east");
    struct tb_catalog_version_view v;
    const struct tb_id v5 = id_of(5);
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    hush(&s);
    cross_begin(&s, 5);
    pass_ms(&s, 11000, (const char *const[]){NULL}); /* it recovers no more */
    hush(&s);
    tb_catalog_site_forget(s.c, s.now, &east_name);
    drain(&s);
    assert_true(tb_catalog_version_get(s.c, &v5, &v));
    assert_int_equal(v.state, TB_VERSION_READY);
    land(&s, 5, 0, SHARD_CHUNKS);
    assert_true(tb_catalog_version_get(s.c, &v5, &v));
    assert_true(v.whole);
    site_close(&s);
}

/* ...one begun is finished. */
static void a_crossing_that_has_begun_is_finished(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    hush(&s);
    cross_begin(&s, 5);
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 7, TB_VERSION_READY));
    said(&s, "");
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] cross v7 from east\n");
    site_close(&s);
}

/* P2: parcels may come before home's ready, but no worker is told. */
static void an_open_version_is_nobodys_business(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    come(&s, "w");
    CHECK_OK(join(&s, "w", "g", 0, 1));
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_OPEN));
    wait_for(&s, "w", TB_CATALOG_WAIT_NEXT, 0, 0, 5000);
    cross_begin(&s, 5);
    land(&s, 5, 0, SHARD_CHUNKS);
    CHECK_STATUS(stage(&s, "w", 5), TB_NOT_FOUND);
    said(&s, "");
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    said(&s, "[   0] answer 1: v5 whole\n");
    CHECK_OK(stage(&s, "w", 5));
    site_close(&s);
}

/* The twin: it fails at home; its space is free here too. */
static void an_open_version_that_fails_is_freed(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_OPEN));
    cross_begin(&s, 5);
    land(&s, 5, 0, 4);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_ENDED_ABANDONED));
    said(&s, "[   0] evict v5: superseded\n");
    site_close(&s);
}

static void withdrawn_spreads(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    come(&s, "w");
    CHECK_OK(join(&s, "w", "g", 0, 1));
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_whole(&s, 5);
    CHECK_OK(staged(&s, "w", 5));
    hush(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_ENDED_WITHDRAWN));
    said(&s, "[   0] evict v5: version_withdrawn\n"
             "[   0] tell w v5 version_withdrawn\n");
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_ENDED_WITHDRAWN)); /* P4 */
    CHECK_OK(hear(&s, "north", 5, TB_VERSION_READY));          /* a relay that has not heard yet */
    said(&s, "");
    CHECK_STATUS(activate(&s, "w", 5), TB_VERSION_WITHDRAWN);
    site_close(&s);
}

/* Lost for the others; here it is all, and stays. */
static void lost_elsewhere_is_not_lost_here(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_whole(&s, 5);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_ENDED_LOST));
    assert_string_equal(state_of(&s, 5), "kept");
    /* The twin: it is not. */
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    cross_begin(&s, 6);
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_ENDED_LOST));
    assert_string_equal(state_of(&s, 6), "lost");
    site_close(&s);
}

/* Nor where a chunk rotted in the arena and a worker has all of it: until that one goes. */
static void lost_elsewhere_is_not_lost_at_a_worker(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id v5 = id_of(5), w = session_of("w");
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_whole(&s, 5);
    come(&s, "w");
    CHECK_OK(join(&s, "w", "g", 0, 1));
    CHECK_OK(stage(&s, "w", 5));
    CHECK_OK(staged(&s, "w", 5));
    CHECK_OK(tb_catalog_arena_shrunk(s.c, s.now, &v5, 0, SHARD_CHUNKS - 1));
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_ENDED_LOST));
    assert_string_equal(state_of(&s, 5), "kept");
    tb_catalog_session_close(s.c, s.now, &w);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* P3 P6: a chunk rots, home hears over a new link that not all of it is here, and it
 * comes back (from files, say): home hears of that too, or it calls lost what is here.
 * Found by the seeded world. */
static void a_version_that_is_whole_again_is_told_again(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id v5 = id_of(5);
    west_follows(&s);
    s.left_out = NOT_STORE | NOT_PLANS;
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_whole(&s, 5);
    hush(&s);
    CHECK_OK(tb_catalog_arena_shrunk(s.c, s.now, &v5, 0, SHARD_CHUNKS - 1));
    hush(&s);
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] peers v5 whole\n");
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, ""); /* once */
    site_close(&s);
}

/* P6: when home cannot be reached sites complete each other. */
static void another_site_goes_on_when_home_is_away(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_begin(&s, 5);
    hush(&s);
    up(&s, "east", false);
    said(&s, "");
    up(&s, "north", true);
    CHECK_OK(hear(&s, "north", 5, TB_VERSION_READY));
    said(&s, "[   0] cross v5 from north\n");
    up(&s, "east", true);
    said(&s, "[   0] cross v5 from east north\n"); /* home first */
    land(&s, 5, 0, SHARD_CHUNKS);
    site_close(&s);
}

/* P6: a version that left a site while its link was down is not announced again, and after a lease
 * time it is not waited for: found by the seeded world. */
static void a_version_not_announced_again_is_there_no_more(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_begin(&s, 5);
    up(&s, "east", false);
    pass_ms(&s, 100, NULL);
    up(&s, "east", true);
    hush(&s);
    pass_ms(&s, 9950, NULL);
    said(&s, "[10000] cross v5 from east\n"); /* it stands: asked again */
    pass_ms(&s, 100, NULL);
    said(&s, "[10100] evict v5: superseded\n");
    site_close(&s);
}

/* P6: nor what it said last in a session that another took the place of at once; a model that wants
 * every version, the oldest first, waited for it for ever. By the seeded world, seed 21382. */
static void a_version_of_a_replaced_session_is_not_waited_for(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    const struct tb_name east = name_of("east");
    CHECK_STATUS(tb_catalog_site_up(s.c, s.now, &east, true),
                 TB_DONE_BEFORE); /* a session in that one's place */
    CHECK_OK(hear(&s, "east", 4, TB_VERSION_READY));
    said(&s, "[   0] cross v5 from east\n");
    pass_ms(&s, 10100, NULL);
    said(&s, "[10000] cross v4 from east\n");
    site_close(&s);
}

/* The twin: said again it stays. */
static void a_version_announced_again_is_still_there(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_begin(&s, 5);
    up(&s, "east", false);
    pass_ms(&s, 100, NULL);
    up(&s, "east", true);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    hush(&s);
    pass_ms(&s, 11000, NULL);
    assert_string_equal(state_of(&s, 5), "ready");
    site_close(&s);
}

/* P4, P10: two versions in one place; the peer is wrong or we are, and neither is overwritten. */
static void contradictions_are_refused(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    struct tb_version_key key = {.uid = id_of(5),
                                 .model = name_of("policy"),
                                 .run = id_of(900),
                                 .run_order = 1,
                                 .number = 5,
                                 .shard_count = 1,
                                 .root = root_of(99)};
    const struct tb_name east = name_of("east");
    CHECK_STATUS(tb_catalog_remote_version(s.c, s.now, &east, &key, TB_VERSION_READY), TB_CONFLICT);
    key.uid = id_of(6);
    CHECK_STATUS(tb_catalog_remote_version(s.c, s.now, &east, &key, TB_VERSION_READY), TB_CONFLICT);
    key.number = 6, key.shard_count = 5;
    CHECK_STATUS(tb_catalog_remote_version(s.c, s.now, &east, &key, TB_VERSION_READY), TB_TOO_LARGE);
    key.model = name_of("other");
    CHECK_STATUS(tb_catalog_remote_version(s.c, s.now, &east, &key, TB_VERSION_READY), TB_NOT_FOUND);
    CHECK_STATUS(hear(&s, "east", 7, TB_CATALOG_STATE_END), TB_BAD_ARGUMENT);
    site_close(&s);
}

/* P8: nobody tells home what became of its own versions. */
static void home_believes_no_end(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "k", 900));
    CHECK_OK(version_open(&s, "rank", 5, 1, 5));
    CHECK_OK(seal(&s, "rank", 5, 0, 50));
    struct tb_catalog_version_view view;
    const struct tb_id v5 = id_of(5);
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    const struct tb_name west_name = name_of("west");
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &west_name, &view.key, TB_VERSION_ENDED_WITHDRAWN));
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &west_name, &view.key, TB_VERSION_ENDED_LOST));
    assert_string_equal(state_of(&s, 5), "ready");
    CHECK_STATUS(hear(&s, "west", 8, TB_VERSION_READY), TB_NOT_FOUND);
    site_close(&s);
}

/* A peer announces again what its new arena holds. */
static void a_new_life_of_a_sites_arena_holds_nothing(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    const struct tb_name north = name_of("north");
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    const struct tb_catalog_site_progress p = {
        .site = north, .uid = id_of(5), .held_chunks = 10, .whole = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    assert_string_equal(state_of(&s, 5), "ready");
    struct tb_catalog_version_view view;
    const struct tb_id v5 = id_of(5);
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    assert_int_equal(view.sites, 2);
    tb_catalog_site_forget(s.c, s.now, &north);
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    assert_int_equal(view.sites, 1);
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newer_one_replaces_what_has_not_begun),
        cmocka_unit_test(a_new_life_of_its_only_source_ends_no_crossing),
        cmocka_unit_test(a_crossing_that_has_begun_is_finished),
        cmocka_unit_test(an_open_version_is_nobodys_business),
        cmocka_unit_test(an_open_version_that_fails_is_freed),
        cmocka_unit_test(withdrawn_spreads),
        cmocka_unit_test(lost_elsewhere_is_not_lost_here),
        cmocka_unit_test(lost_elsewhere_is_not_lost_at_a_worker),
        cmocka_unit_test(a_version_that_is_whole_again_is_told_again),
        cmocka_unit_test(another_site_goes_on_when_home_is_away),
        cmocka_unit_test(a_version_not_announced_again_is_there_no_more),
        cmocka_unit_test(a_version_of_a_replaced_session_is_not_waited_for),
        cmocka_unit_test(a_version_announced_again_is_still_there),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(home_believes_no_end),
        cmocka_unit_test(a_new_life_of_a_sites_arena_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

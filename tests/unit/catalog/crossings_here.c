/* crossings_here.c - tests of gateway/catalog/rules/crossing_rules.c: which version crosses to
 * here, from which site, and when its crossing is given up (P6).
 *
 * Covers: gateway/catalog/rules/crossing_rules.c gateway/catalog/crossing_answers.c */
#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "site.h"
/* 5 is on its way to west, and 6 is there as well. */
static void crosses_as_a_newer_comes(struct site *s)
{
    west_follows(s);
    CHECK_OK(hear(s, "east", 5, TB_VERSION_READY));
    cross_begin(s, 5);
    CHECK_OK(hear(s, "east", 6, TB_VERSION_READY));
}

/* P6: sites that complete each other may all lack the same chunk: one that stands holds up no newer
 * one, and goes on when it can. */
static void a_crossing_that_stands_holds_up_no_other(void **state)
{
    (void)state;
    struct site s;
    crosses_as_a_newer_comes(&s);
    hush(&s);
    pass_ms(&s, 6000, NULL);
    land(&s, 5, 0, 3); /* it moves */
    pass_ms(&s, 6000, NULL);
    said(&s, "");
    pass_ms(&s, 4100, NULL);
    said(&s, "[16000] cross v5 from east\n" /* again, and beside it */
             "[16000] cross v6 from east\n");
    cross_whole(&s, 6);
    land(&s, 5, 0, SHARD_CHUNKS);
    site_close(&s);
}

/* The twin: on a slow path many chunks are on their way at once, and none is here for
 * longer than a lease time. */
static void a_crossing_whose_chunks_take_long_does_not_stand(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id v5 = id_of(5);
    crosses_as_a_newer_comes(&s);
    hush(&s);
    for (uint64_t bytes = 1; bytes <= 4; bytes++) {
        pass_ms(&s, 6000, NULL);
        CHECK_OK(tb_catalog_arena_came(s.c, s.now, &v5, bytes));
    }
    pass_ms(&s, 6000, NULL);
    CHECK_OK(tb_catalog_arena_came(s.c, s.now, &v5, 4)); /* and then nothing comes */
    said(&s, "");
    pass_ms(&s, 4100, NULL);
    said(&s, "[34000] cross v5 from east\n"
             "[34000] cross v6 from east\n");
    site_close(&s);
}

/* P6: two sites that draw from each other turn to the third, which has it whole. */
static void once_it_stands_a_site_that_has_it_whole_is_asked_first(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    up(&s, "north", true);
    up(&s, "south", true);
    CHECK_OK(hear(&s, "north", 5, TB_VERSION_READY));
    CHECK_OK(hear(&s, "south", 5, TB_VERSION_READY));
    cross_begin(&s, 5);
    const struct tb_catalog_site_progress p = {
        .site = name_of("south"), .uid = id_of(5), .held_chunks = 10, .whole = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    hush(&s);
    pass_ms(&s, 10050, NULL);
    said(&s, "[10000] cross v5 from south north\n");
    site_close(&s);
}

/* A third site's report of another is no announcement: a site is asked that announced it itself. */
static void a_site_that_was_only_spoken_of_is_not_asked(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    up(&s, "north", true);
    up(&s, "south", true);
    CHECK_OK(hear(&s, "north", 5, TB_VERSION_READY));
    hush(&s);
    const struct tb_catalog_site_progress p = {
        .site = name_of("south"), .uid = id_of(5), .held_chunks = 10, .whole = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    cross_begin(&s, 5);
    said(&s, "");
    CHECK_OK(hear(&s, "south", 5, TB_VERSION_READY));
    said(&s, "[   0] cross v5 from north south\n");
    site_close(&s);
}

static void the_configured_order_of_sites_holds(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    const struct tb_catalog_model m = {.name = name_of("policy"),
                                       .home = name_of("east"),
                                       .subscribed = true,
                                       .from_count = 2,
                                       .from = {name_of("south"), name_of("north")}};
    CHECK_OK(tb_catalog_model_add(s.c, &m));
    up(&s, "north", true);
    up(&s, "south", true);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    said(&s, ""); /* east is not one of them */
    CHECK_OK(hear(&s, "north", 5, TB_VERSION_READY));
    CHECK_OK(hear(&s, "south", 5, TB_VERSION_READY));
    said(&s, "[   0] cross v5 from south north\n");
    site_close(&s);
}

/* P7, P10: no room now; asked again after a while, or for something newer. */
static void a_refused_crossing_is_asked_again(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    hush(&s);
    const struct tb_id v5 = id_of(5);
    CHECK_OK(tb_catalog_crossing_refused(s.c, s.now, &v5));
    said(&s, "");
    pass_ms(&s, 1000, NULL);
    said(&s, "[1000] cross v5 from east\n");
    CHECK_OK(tb_catalog_crossing_refused(s.c, s.now, &v5));
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    said(&s, "[1000] cross v6 from east\n");
    site_close(&s);
}

/* P7, P10: a version that can never fit is not asked for again, at any announcement; a newer one
 * is. */
static void a_hopeless_crossing_is_not_asked_again(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    hush(&s);
    const struct tb_id v5 = id_of(5);
    CHECK_OK(tb_catalog_crossing_hopeless(s.c, s.now, &v5));
    pass_ms(&s, 10000, NULL);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    said(&s, "");
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    said(&s, "[10000] cross v6 from east\n");
    site_close(&s);
}

/* A crossing that has begun, and that no site can finish, is given up. */
static void a_crossing_without_a_source_is_given_up(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    come(&s, "w");
    CHECK_OK(join(&s, "w", "g", 0, 1));
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_begin(&s, 5);
    CHECK_OK(stage(&s, "w", 5));
    hush(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_RETIRED));
    said(&s, "[   0] evict v5: superseded\n"
             "[   0] tell w v5 superseded\n");
    site_close(&s);
}

/* Somebody waits for an older one that never was here. */
static void an_exact_wait_makes_it_cross(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    cross_whole(&s, 6);
    hush(&s);
    wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 5000);
    said(&s, "[   0] cross v5 from east\n");
    cross_whole(&s, 5);
    said(&s, "[   0] answer 1: v5 whole\n");
    site_close(&s);
}

static void west_wants_every(struct site *s)
{
    const struct tb_catalog_model m = {.name = name_of("policy"),
                                       .home = name_of("east"),
                                       .subscribed = true,
                                       .every = true,
                                       .keep = 2,
                                       .from_count = 2,
                                       .from = {name_of("east"), name_of("north")}};
    CHECK_OK(tb_catalog_model_add(s->c, &m));
}

/* The opposite of a_newer_one_replaces_what_has_not_begun. */
static void a_site_that_wants_every_version_gets_them_in_order(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    west_wants_every(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 7, TB_VERSION_READY));
    said(&s, "[   0] cross v5 from east\n");
    cross_whole(&s, 5);
    said(&s, "[   0] cross v6 from east\n");
    /* Home did not keep it: what nobody has is not waited for. */
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_RETIRED));
    said(&s, "[   0] cross v7 from east\n");
    site_close(&s);
}

/* A worker that stages it is told, and the newer version crosses. */
static void a_crossing_given_up_is_superseded(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id v5 = id_of(5), v6 = id_of(6);
    west_follows(&s);
    come(&s, "w");
    CHECK_OK(join(&s, "w", "g", 0, 1));
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    CHECK_STATUS(tb_catalog_crossing_abandon(s.c, s.now, &v5), TB_BAD_STATE); /* not begun */
    cross_begin(&s, 5);
    CHECK_STATUS(tb_catalog_crossing_abandon(s.c, s.now, &v5), TB_BAD_STATE); /* for what? */
    CHECK_OK(stage(&s, "w", 5));
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    hush(&s);
    CHECK_OK(tb_catalog_crossing_abandon(s.c, s.now, &v5));
    said(&s, "[   0] evict v5: superseded\n"
             "[   0] cross v6 from east\n"
             "[   0] tell w v5 superseded\n");
    assert_string_equal(state_of(&s, 5), "abandoned");
    wait_for(&s, "w", TB_CATALOG_WAIT_EXACT, 5, 0, 1000);
    said(&s, "[   0] answer 1: superseded\n");
    CHECK_STATUS(tb_catalog_crossing_abandon(s.c, s.now, &v6), TB_BAD_STATE);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY)); /* its link came back: given up is given up */
    assert_string_equal(state_of(&s, 5), "abandoned");
    site_close(&s);
}

static void a_version_asked_for_by_name_is_not_given_up(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id v5 = id_of(5);
    crosses_as_a_newer_comes(&s);
    wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 5000);
    drain(&s);
    CHECK_STATUS(tb_catalog_crossing_abandon(s.c, s.now, &v5), TB_BAD_STATE);
    west_wants_every(&s);
    CHECK_STATUS(tb_catalog_crossing_abandon(s.c, s.now, &v5), TB_BAD_STATE);
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crossing_that_stands_holds_up_no_other),
        cmocka_unit_test(a_crossing_whose_chunks_take_long_does_not_stand),
        cmocka_unit_test(once_it_stands_a_site_that_has_it_whole_is_asked_first),
        cmocka_unit_test(a_site_that_was_only_spoken_of_is_not_asked),
        cmocka_unit_test(the_configured_order_of_sites_holds),
        cmocka_unit_test(a_refused_crossing_is_asked_again),
        cmocka_unit_test(a_hopeless_crossing_is_not_asked_again),
        cmocka_unit_test(a_crossing_without_a_source_is_given_up),
        cmocka_unit_test(an_exact_wait_makes_it_cross),
        cmocka_unit_test(a_site_that_wants_every_version_gets_them_in_order),
        cmocka_unit_test(a_crossing_given_up_is_superseded),
        cmocka_unit_test(a_version_asked_for_by_name_is_not_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

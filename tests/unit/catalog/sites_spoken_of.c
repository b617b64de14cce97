/* sites_spoken_of.c - tests of gateway/catalog/sites.c and rows/site_rows.c: sites that others
 * speak of give way to sites that speak themselves (P3, P6, P7).
 *
 * Covers: gateway/catalog/sites.c gateway/catalog/rows/site_rows.c */
#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "site.h"

static enum tb_status reported(struct site *s, const char *site, uint64_t uid)
{
    const struct tb_catalog_site_progress p = {.site = name_of(site), .uid = id_of(uid), .whole = true};
    return tb_catalog_site_progress(s->c, s->now, &p);
}

/* P3: the word on this site's holdings is its own. */
static void a_peers_word_is_no_second_copy_here(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 4);
    rank_begins(&s);
    CHECK_OK(version_open(&s, "rank", 5, 1, 5));
    CHECK_OK(seal(&s, "rank", 5, 0, 1));
    hush(&s);
    CHECK_STATUS(reported(&s, "east", 5), TB_BAD_ARGUMENT);
    assert_string_equal(state_of(&s, 5), "ready");
    CHECK_OK(reported(&s, "west", 5)); /* the twin: noted, and no copy either */
    assert_string_equal(state_of(&s, 5), "ready");
    site_close(&s);
}

/* P6: a peer that speaks of many sites keeps none out that speaks itself. */
static void a_site_spoken_of_gives_way_to_one_that_speaks(void **state)
{
    (void)state;
    static const char *const spoken_of[] = {"a", "b", "c", "d"}; /* as many as there are places */
    struct site s;
    east_open(&s, 1);
    rank_begins(&s);
    publish_whole(&s, "rank", 5);
    up(&s, "south", true);
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(reported(&s, spoken_of[i], 5));
    CHECK_STATUS(reported(&s, spoken_of[3], 5), TB_SITE_NOMEM);
    for (size_t i = 0; i < 3; i++) {
        const char *const speak[] = {"west", "north", "island"};
        up(&s, speak[i], true);
        CHECK_OK(reported(&s, speak[i], 5));
    }
    CHECK_STATUS(reported(&s, spoken_of[0], 5), TB_SITE_NOMEM);
    const struct tb_name ninth = name_of("ninth"); /* of peers there are no more than places */
    CHECK_STATUS(tb_catalog_site_up(s.c, s.now, &ninth, true), TB_SITE_NOMEM);
    CHECK_OK(reported(&s, "south", 5));
    site_close(&s);
}

/* The twin: a name that has nothing any more makes room for the next one that is spoken of. */
static void a_site_with_nothing_gives_way_to_one_spoken_of(void **state)
{
    (void)state;
    static const char *const spoken_of[] = {"a", "b", "c", "d"};
    struct site s;
    const struct tb_id v5 = id_of(5);
    east_open(&s, 1);
    rank_begins(&s);
    publish_whole(&s, "rank", 5);
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(reported(&s, spoken_of[i], 5));
    publish_whole(&s, "rank", 6);
    CHECK_STATUS(reported(&s, "e", 6), TB_SITE_NOMEM);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "test"));
    CHECK_OK(reported(&s, "e", 6));
    site_close(&s);
}

/* The row of a site that others speak of becomes another's: what follows for the versions that it
 * had is concluded before the request returns. */
static void a_row_that_changes_hands_leaves_nothing_unsettled(void **state)
{
    (void)state;
    static const char *const spoken_of[] = {"a", "b", "c", "d"};
    struct site s;
    const struct tb_name west = name_of("west");
    east_open(&s, 1);
    rank_begins(&s);
    publish_whole(&s, "rank", 5);
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(reported(&s, spoken_of[i], 5));
    CHECK_STATUS(tb_catalog_site_up(s.c, s.now, &west, false), TB_DONE_BEFORE);
    hush(&s); /* tb_catalog_next asserts it */
    site_close(&s);
}

/* P7: the word of peers on others takes no place from those that are here, and gives way to what
 * they have themselves. */
static void a_row_spoken_of_takes_no_place_from_one_that_is_here(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 7);
    rank_begins(&s);
    for (uint64_t number = 1; number <= 6; number++) {
        publish_whole(&s, "rank", number);
        CHECK_OK(reported(&s, "a", number));
        CHECK_OK(reported(&s, "b", number));
    }
    publish_whole(&s, "rank", 7);
    CHECK_STATUS(reported(&s, "a", 7), TB_SITE_NOMEM);
    up(&s, "west", true);
    for (uint64_t number = 1; number <= 6; number++)
        CHECK_OK(reported(&s, "west", number));
    up(&s, "north", true);
    for (uint64_t number = 1; number <= 6; number++)
        CHECK_OK(reported(&s, "north", number));
    CHECK_STATUS(reported(&s, "west", 7), TB_SITE_NOMEM); /* nobody is left who is only spoken of */
    site_close(&s);
}

static bool is_known_at(const struct site *s, const char *site, uint64_t number)
{
    const struct tb_name name = name_of(site);
    const struct tb_id uid = id_of(number);
    struct tb_catalog_reference_view view;
    for (uint32_t cursor = 0; tb_catalog_reference_at(s->c, &cursor, &view);)
        if (view.kind == TB_REFERENCE_SITE && tb_id_equal(&view.uid, &uid) &&
            tb_name_equal(&view.name, &name))
            return true;
    return false;
}

/* P6: the row that gives way is not the head, in whatever order it was spoken of, and of the
 * others the first that was. */
static void the_head_spoken_of_gives_way_last(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 7);
    rank_begins(&s);
    for (uint64_t number = 1; number <= 6; number++)
        publish_whole(&s, "rank", number);
    CHECK_OK(reported(&s, "a", 6));
    for (uint64_t number = 1; number <= 5; number++)
        CHECK_OK(reported(&s, "a", number));
    for (uint64_t number = 1; number <= 6; number++)
        CHECK_OK(reported(&s, "b", number));
    up(&s, "west", true);
    for (uint64_t number = 1; number <= 5; number++) {
        assert_true(is_known_at(&s, "a", number));
        CHECK_OK(reported(&s, "west", number));
        assert_false(is_known_at(&s, "a", number));
        assert_true(is_known_at(&s, "a", 6));
    }
    CHECK_OK(reported(&s, "west", 6));
    assert_false(is_known_at(&s, "a", 6));
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peers_word_is_no_second_copy_here),
        cmocka_unit_test(a_site_spoken_of_gives_way_to_one_that_speaks),
        cmocka_unit_test(a_site_with_nothing_gives_way_to_one_spoken_of),
        cmocka_unit_test(a_row_that_changes_hands_leaves_nothing_unsettled),
        cmocka_unit_test(a_row_spoken_of_takes_no_place_from_one_that_is_here),
        cmocka_unit_test(the_head_spoken_of_gives_way_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

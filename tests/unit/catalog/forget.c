/* forget.c - tests of gateway/catalog/rules/version_removal.c: tables run for ever (P7), and each
 * row has a reason to exist.
 *
 * Covers: gateway/catalog/rules/version_removal.c gateway/catalog/catalog_check.c
 * Covers: gateway/catalog/rows/table_check.c
 * Covers: gateway/catalog/usage.c */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/catalog_check.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/usage.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "site.h"

#define MANY 2000 /* over a hundred times the rows of this test's catalog */

static struct tb_catalog_table table_of(const struct site *s, const char *name)
{
    struct tb_catalog_table t;
    uint32_t cursor = 0;
    while (tb_catalog_table_at(s->c, &cursor, &t))
        if (strcmp(t.name, name) == 0) return t;
    fail_msg("no table %s", name);
    return t;
}

static void check_reasons(const struct site *s)
{
    struct tb_id uid;
    if (!tb_catalog_reasons(s->c, &uid)) fail_msg("v%u has no reason for its row", uid.bytes[0]);
}

/* Evicts what the catalog wants evicted, at once. */
static void evict(void *world, const struct tb_catalog_todo *todo)
{
    struct site *s = world;
    if (todo->kind == TB_CATALOG_EVICT) CHECK_OK(tb_catalog_evicted(s->c, s->now, &todo->uid));
}

static void obey(struct site *s)
{
    s->listener = evict;
    s->world = s;
}

static void settle_todos(struct site *s)
{
    hush(s);
    hush(s); /* what evictions brought */
    check_reasons(s);
}

static void peer_holds(struct site *s, const char *site, uint64_t number, bool itself)
{
    const struct tb_catalog_site_progress p = {
        .site = name_of(site), .uid = id_of(number), .held_chunks = 10, .whole = true, .itself = itself};
    const enum tb_status status = tb_catalog_site_progress(s->c, s->now, &p);
    assert_true(status == TB_OK || (status == TB_SITE_NOMEM && !itself)); /* hearsay gets what is free */
}

static void peer_drops(struct site *s, const char *site, uint64_t number)
{
    const struct tb_name name = name_of(site);
    const struct tb_id uid = id_of(number);
    tb_catalog_site_dropped(s->c, s->now, &name, &uid);
}

/* A rank that takes its memory back, as each does in the end. */
static void publish_and_leave(struct site *s, uint64_t number)
{
    const struct tb_id rank = session_of("rank");
    come(s, "rank");
    CHECK_OK(run_open(s, "rank", "k", number == 1 ? 100 : 100 + number));
    publish_whole(s, "rank", number);
    settle_todos(s);
    tb_catalog_session_close(s->c, s->now, &rank);
}

/* A home and a follower that keeps fewer: whether the follower drops a version before home does or
 * after, no row stays. */
static void home_publishes_for_ever(void **state)
{
    (void)state;
    for (int follower_keeps = 0; follower_keeps < 6; follower_keeps++) {
        struct site s;
        const struct tb_name west = name_of("west");
        east_open(&s, 3);
        obey(&s);
        CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
        uint32_t used = 0;
        for (uint64_t n = 1; n <= MANY; n++) {
            publish_and_leave(&s, n);
            peer_holds(&s, "west", n, true);
            peer_holds(&s, "north", n, false); /* behind west: nobody ever says that it dropped one */
            settle_todos(&s);
            if (n > (uint64_t)follower_keeps) peer_drops(&s, "west", n - (uint64_t)follower_keeps);
            settle_todos(&s);
            if (n == 100) used = table_of(&s, "versions").used;
            if (n == 100) assert_true(used <= 8 + 3 + 1 + (uint32_t)follower_keeps);
            if (n > 100) assert_int_equal(table_of(&s, "versions").used, used);
        }
        assert_int_equal(table_of(&s, "versions").refused, 0);
        assert_true(table_of(&s, "references").used < 40);
        site_close(&s);
    }
}

/* Versions that are superseded before they cross are announced and go, and nothing of
 * them ever came here. */
static void a_follower_skips_for_ever(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name east = name_of("east");
    west_open(&s, 2);
    obey(&s);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    for (uint64_t n = 1; n <= MANY; n++) {
        CHECK_OK(hear(&s, "east", n, TB_VERSION_READY));
        if (n % 7 == 0) peer_holds(&s, "north", n, false);
        if (n > 2) CHECK_OK(hear(&s, "east", n - 2, TB_VERSION_RETIRED));
        settle_todos(&s);
    }
    assert_int_equal(table_of(&s, "versions").refused, 0);
    cross_whole(&s, MANY);
    assert_string_equal(state_of(&s, MANY), "kept");
    site_close(&s);
}

/* The twin: one that was retired unheld is new again once a site offers it, and crosses. */
static void a_version_offered_again_begins_anew(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name east = name_of("east");
    west_open(&s, 2);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    CHECK_OK(hear(&s, "east", 1, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 2, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 1, TB_VERSION_RETIRED));
    assert_string_equal(state_of(&s, 1), "retired");
    CHECK_OK(hear(&s, "east", 1, TB_VERSION_READY));
    assert_string_equal(state_of(&s, 1), "ready");
    cross_whole(&s, 1);
    assert_string_equal(state_of(&s, 1), "kept");
    site_close(&s);
}

/* The newest of all stays, though nobody can bring it: else lag would have nothing to be counted
 * to. */
static void a_head_that_nobody_offers_stays(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name east = name_of("east");
    west_open(&s, 2);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    CHECK_OK(hear(&s, "east", 1, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 1, TB_VERSION_RETIRED));
    assert_string_equal(state_of(&s, 1), "ready");
    check_reasons(&s);
    site_close(&s);
}

/* P7: of a peer that announces and never takes back, the oldest make room. */
static void a_share_that_fills_makes_room_by_itself(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name east = name_of("east");
    west_open(&s, 2);
    obey(&s);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    for (uint64_t n = 1; n <= 200; n++) {
        CHECK_OK(hear(&s, "east", n, TB_VERSION_READY));
        settle_todos(&s);
    }
    assert_int_equal(table_of(&s, "versions").refused, 0);
    cross_whole(&s, 200);
    site_close(&s);
}

/* A site that was away hears of many withdrawals at once, before the rows of the first are
 * on disk and may leave. */
static void many_withdrawals_at_once_fill_no_table(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name east = name_of("east");
    west_open(&s, 2);
    obey(&s);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    for (uint64_t n = 1; n <= 40; n++)
        CHECK_OK(hear(&s, "east", n, TB_VERSION_ENDED_WITHDRAWN));
    assert_int_equal(table_of(&s, "versions").refused, 0);
    settle_todos(&s);
    CHECK_OK(hear(&s, "east", 41, TB_VERSION_READY));
    cross_whole(&s, 41);
    site_close(&s);
}

/* P6: where every version crosses, what is over takes no row from what is still to come. */
static void a_full_share_takes_no_row_for_what_is_over(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name east = name_of("east");
    west_open(&s, 2);
    obey(&s);
    const struct tb_catalog_model every = {
        .name = name_of("policy"), .home = east, .subscribed = true, .every = true, .keep = 2};
    CHECK_OK(tb_catalog_model_add(s.c, &every));
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    for (uint64_t n = 10; n < 22; n++)
        CHECK_OK(hear(&s, "east", n, TB_VERSION_READY));
    for (uint64_t n = 10; n < 14; n++) {
        cross_whole(&s, n);
        settle_todos(&s);
        CHECK_OK(hear(&s, "east", n, TB_VERSION_RETIRED));
        CHECK_OK(hear(&s, "east", n + 12, TB_VERSION_READY));
        settle_todos(&s);
    }
    CHECK_STATUS(hear(&s, "east", 9, TB_VERSION_READY), TB_SUPERSEDED);
    site_close(&s);
}

static uint32_t sites_of(const struct site *s)
{
    struct tb_catalog_reference_view view;
    uint32_t sites = 0;
    for (uint32_t cursor = 0; tb_catalog_reference_at(s->c, &cursor, &view);)
        sites += view.kind == TB_REFERENCE_SITE;
    return sites;
}

/* A version that a peer had when its link broke, and does not announce again within a lease,
 * keeps no row for ever. */
static void a_word_that_a_peer_says_no_more_is_doubted(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name west = name_of("west");
    const char *const renewing[] = {"rank", NULL};
    east_open(&s, 1);
    obey(&s);
    rank_begins(&s);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    for (uint64_t n = 1; n <= 10; n++) {
        publish_whole(&s, "rank", n);
        peer_holds(&s, "west", n, true);
        settle_todos(&s);
    }
    assert_int_equal(sites_of(&s), 10);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, false));
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    const struct tb_catalog_site_progress again = {
        .site = west, .uid = id_of(10), .held_chunks = 10, .whole = true, .itself = true};
    CHECK_STATUS(tb_catalog_site_progress(s.c, s.now, &again), TB_DONE_BEFORE); /* and known to stand */
    pass_ms(&s, 10100, renewing);
    settle_todos(&s);
    assert_int_equal(sites_of(&s), 1);
    site_close(&s);
}

/* P7: the same where each of its sessions is shorter than a lease time. A version that it
 * announces in each of them stays. */
static void a_word_that_a_peer_says_no_more_in_short_sessions_is_doubted(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name west = name_of("west");
    east_open(&s, 1);
    obey(&s);
    for (uint64_t n = 1; n <= 40; n++) {
        publish_and_leave(&s, n);
        CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
        peer_holds(&s, "west", n, true);
        const struct tb_catalog_site_progress first = {
            .site = west, .uid = id_of(1), .held_chunks = 10, .whole = true, .itself = true};
        CHECK_STATUS(tb_catalog_site_progress(s.c, s.now, &first), TB_DONE_BEFORE); /* never doubted */
        settle_todos(&s);
        pass_ms(&s, 5000, NULL);
        settle_todos(&s);
        CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, false));
        pass_ms(&s, 1000, NULL);
        assert_true(sites_of(&s) <= 4);
    }
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    pass_ms(&s, 10100, NULL);
    settle_todos(&s);
    assert_int_equal(sites_of(&s), 0);
    site_close(&s);
}

/* P2: the row of what a worker computes from may go; a wait for a newer one does not take
 * an older one for it. */
static void a_wait_knows_how_new_a_forgotten_version_is(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name east = name_of("east");
    west_open(&s, 2);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    cross_whole(&s, 5);
    come(&s, "a");
    const struct tb_catalog_member m = {.session = session_of("a"),
                                        .subscription = 1,
                                        .model = name_of("policy"),
                                        .group = name_of("g"),
                                        .count = 1,
                                        .active = {.uid = id_of(9), .run_order = 1, .number = 9}};
    CHECK_OK(tb_catalog_subscribe(s.c, s.now, &m));
    hush(&s);
    (void)wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 9, 1000);
    said(&s, "");
    site_close(&s);
}

/* P10: the user of most of a table is named, whatever the table. */
static void the_user_of_most_of_a_table_is_named(void **state)
{
    (void)state;
    struct site s;
    char who[TB_CATALOG_TEXT_MAX] = "";
    east_open(&s, 2);
    rank_begins(&s);
    publish_whole(&s, "rank", 1);
    assert_int_equal(tb_catalog_table_most(s.c, "versions", who), 1);
    assert_string_equal(who, "policy");
    come(&s, "a");
    (void)wait_for(&s, "a", TB_CATALOG_WAIT_NEXT, 0, 1, 1000);
    (void)wait_for(&s, "a", TB_CATALOG_WAIT_NEXT, 0, 1, 1000);
    assert_int_equal(tb_catalog_table_most(s.c, "waits", who), 2);
    assert_string_equal(who, "unix:1000");
    assert_int_equal(tb_catalog_table_most(s.c, "sites", who), 0);
    assert_int_equal(table_of(&s, "waits").used, 2);
    assert_int_equal(table_of(&s, "waits").most, 2);
    site_close(&s);
}

/* All rows go again: sessions, their references, groups, members and waits. */
static void use_returns_to_where_it_began(void **state)
{
    (void)state;
    static const char *const tables[] = {"sessions", "references", "groups", "members", "waits"};
    struct site s;
    east_open(&s, 2);
    obey(&s);
    rank_begins(&s);
    publish_whole(&s, "rank", 1);
    settle_todos(&s);
    uint32_t before[sizeof tables / sizeof tables[0]];
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        before[t] = table_of(&s, tables[t]).used;
    for (int round = 0; round < 100; round++) {
        const struct tb_id a = session_of("a"), b = session_of("b");
        come(&s, "a");
        come(&s, "b");
        CHECK_OK(join(&s, "a", "g", 0, 2));
        CHECK_OK(join(&s, "b", "g", 1, 2));
        CHECK_OK(staged(&s, "a", 1));
        (void)wait_for(&s, "b", TB_CATALOG_WAIT_NEXT, 0, 1, 1000);
        settle_todos(&s);
        tb_catalog_session_close(s.c, s.now, &a);
        tb_catalog_session_close(s.c, s.now, &b);
        settle_todos(&s);
        for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
            assert_int_equal(table_of(&s, tables[t]).used, before[t]);
    }
    site_close(&s);
}

/* Sites that only others speak of: a thousand names, each of which has a version for a while. */
static void a_site_that_is_spoken_of_leaves_with_its_last_version(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name west = name_of("west");
    const char *const renewing[] = {NULL};
    east_open(&s, 1);
    obey(&s);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    const uint32_t began = table_of(&s, "sites").used;
    for (uint64_t n = 1; n <= 1000; n++) {
        char name[16];
        snprintf(name, sizeof name, "far%llu", (unsigned long long)n);
        publish_and_leave(&s, n);
        peer_holds(&s, name, n, false);
        assert_int_equal(table_of(&s, "sites").used, began + 1);
        const struct tb_id uid = id_of(n);
        CHECK_OK(tb_catalog_withdraw(s.c, s.now, &uid, "test"));
        settle_todos(&s);
        pass_ms(&s, 200, renewing);
        settle_todos(&s);
        assert_int_equal(table_of(&s, "sites").used, began);
    }
    assert_int_equal(table_of(&s, "sites").most, began + 1);
    assert_int_equal(table_of(&s, "sites").refused, 0);
    site_close(&s);
}

/* The twin: a peer's row stays, whatever it has. */
static void a_peer_that_has_nothing_stays(void **state)
{
    (void)state;
    struct site s;
    const struct tb_name west = name_of("west");
    const char *const renewing[] = {NULL};
    east_open(&s, 1);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, false));
    pass_ms(&s, 20000, renewing);
    assert_int_equal(table_of(&s, "sites").used, 1);
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(home_publishes_for_ever),
        cmocka_unit_test(a_follower_skips_for_ever),
        cmocka_unit_test(a_version_offered_again_begins_anew),
        cmocka_unit_test(a_head_that_nobody_offers_stays),
        cmocka_unit_test(a_share_that_fills_makes_room_by_itself),
        cmocka_unit_test(many_withdrawals_at_once_fill_no_table),
        cmocka_unit_test(a_full_share_takes_no_row_for_what_is_over),
        cmocka_unit_test(a_word_that_a_peer_says_no_more_is_doubted),
        cmocka_unit_test(a_word_that_a_peer_says_no_more_in_short_sessions_is_doubted),
        cmocka_unit_test(a_wait_knows_how_new_a_forgotten_version_is),
        cmocka_unit_test(the_user_of_most_of_a_table_is_named),
        cmocka_unit_test(use_returns_to_where_it_began),
        cmocka_unit_test(a_site_that_is_spoken_of_leaves_with_its_last_version),
        cmocka_unit_test(a_peer_that_has_nothing_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

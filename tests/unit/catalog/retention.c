/* retention.c - tests of gateway/catalog/rules/retention.c: what leaves the arena, in which order,
 * and what never does (P7, P3).
 *
 * Covers: gateway/catalog/rules/retention.c gateway/catalog/arena_copy.c
 * Covers: gateway/catalog/keeping.c */
#include <string.h>

#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/keeping.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "site.h"

static void east(struct site *s, uint32_t keep)
{
    east_open(s, keep);
    s->left_out = NOT_STORE | NOT_LANDING | NOT_PEERS | NOT_PLANS;
    rank_begins(s);
    hush(s);
}

static void gone(struct site *s, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    CHECK_OK(tb_catalog_evicted(s->c, s->now, &id));
}

static enum tb_status room(struct site *s, uint64_t bytes, struct tb_catalog_room *out)
{
    return tb_catalog_make_room(s->c, s->now, bytes, out);
}

static void keep_counts_whole_versions_head_included(void **state)
{
    (void)state;
    struct site s;
    east(&s, 2);
    publish_whole(&s, "rank", 4);
    publish_whole(&s, "rank", 5);
    CHECK_OK(version_open(&s, "rank", 6, 1, 6));
    CHECK_OK(seal(&s, "rank", 6, 0, 60));
    land(&s, 6, 0, SHARD_CHUNKS - 1); /* one more may be arriving */
    s.left_out |= NOT_TELL;
    said(&s, "");
    land(&s, 6, 0, SHARD_CHUNKS);
    said(&s, "[   0] evict v4: ok\n");
    gone(&s, 4);
    assert_string_equal(state_of(&s, 4), "retired");
    assert_string_equal(state_of(&s, 5), "kept");
    said(&s, "");
    site_close(&s);
}

/* A version ends while its memory leaves already: that is told and given back once. */
static void a_version_that_leaves_leaves_once(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    s.left_out |= NOT_TELL;
    publish_whole(&s, "rank", 4);
    said(&s, "");
    publish_whole(&s, "rank", 5);
    said(&s, "[   0] evict v4: ok\n");
    const struct tb_id v4 = id_of(4);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v4, "operator"));
    said(&s, "");
    gone(&s, 4);
    CHECK_STATUS(tb_catalog_evicted(s.c, s.now, &v4), TB_BAD_STATE);
    assert_string_equal(state_of(&s, 4), "withdrawn");
    site_close(&s);
}

/* Active at a, staged at b: neither goes while it is read. */
static void versions_with_readers_stay(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    come(&s, "a");
    come(&s, "b");
    CHECK_OK(join(&s, "a", "g", 0, 1));
    CHECK_OK(join(&s, "b", "h", 0, 1));
    publish_whole(&s, "rank", 4);
    CHECK_OK(staged(&s, "a", 4));
    switch_to(&s, "a", 4);
    publish_whole(&s, "rank", 5);
    CHECK_OK(stage(&s, "b", 5));
    publish_whole(&s, "rank", 6);
    s.left_out |= NOT_TELL | 1u << TB_CATALOG_GO;
    said(&s, "");
    /* b and a move on: then they go. */
    CHECK_OK(progress(&s, "b", 5, SHARD_CHUNKS));
    CHECK_OK(staged(&s, "a", 6));
    said(&s, "[   0] evict v4: ok\n");
    CHECK_OK(staged(&s, "b", 6));
    said(&s, "[   0] evict v5: ok\n");
    site_close(&s);
}

/* The twin, P6: a pin of over pin_max is lost, and its owner is told. */
static void a_pin_does_not_last_for_ever(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    const char *const renewing[] = {"rank", "a", NULL};
    come(&s, "a");
    CHECK_OK(join(&s, "a", "g", 0, 1));
    publish_whole(&s, "rank", 4);
    CHECK_OK(stage(&s, "a", 4));
    hush(&s);
    pass_ms(&s, 599000, renewing);
    publish_whole(&s, "rank", 5);
    s.trace[0] = 0;
    drain(&s);
    assert_null(strstr(s.trace, "evict"));
    s.trace[0] = 0;
    pass_ms(&s, 1100, renewing);
    struct tb_catalog_room r;
    CHECK_STATUS(room(&s, 1, &r), TB_AGAIN);
    said(&s, "[600100] evict v4: ok\n"
             "[600100] tell a v4 pin_lost\n");
    CHECK_STATUS(activate(&s, "a", 4), TB_PIN_LOST);
    site_close(&s);
}

static void an_operators_pin_does(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    publish_whole(&s, "rank", 4);
    const struct tb_id v4 = id_of(4);
    hush(&s);
    s.left_out =
        NOT_TELL | NOT_LANDING | NOT_PEERS | 1u << TB_CATALOG_PERSIST_VERSION | 1u << TB_CATALOG_PERSIST_RUN;
    CHECK_OK(tb_catalog_pin(s.c, s.now, &v4, true, "ann"));
    CHECK_STATUS(tb_catalog_pin(s.c, s.now, &v4, true, "ann"), TB_DONE_BEFORE);
    said(&s, "[   0] store pin v4\n");
    publish_whole(&s, "rank", 5);
    publish_whole(&s, "rank", 6);
    said(&s, "[   0] store head v6\n[   0] evict v5: ok\n");
    CHECK_OK(tb_catalog_pin(s.c, s.now, &v4, false, "ann"));
    said(&s, "[   0] store unpin v4\n[   0] evict v4: ok\n");
    gone(&s, 4);
    site_close(&s);
}

/* P7: refused with the numbers when it does not fit, and nothing is lost for it. */
static void heads_and_last_copies_are_not_evicted_for_room(void **state)
{
    (void)state;
    struct site s;
    east(&s, 2);
    publish_whole(&s, "rank", 4);
    publish_whole(&s, "rank", 5);
    hush(&s);
    struct tb_catalog_room r;
    CHECK_OK(room(&s, 0, &r));
    CHECK_STATUS(room(&s, 500, &r), TB_SITE_NOMEM);
    assert_int_equal(r.needed, 500);
    assert_int_equal(r.heads, SHARD_BYTES);
    assert_int_equal(r.last_copies, SHARD_BYTES);
    assert_int_equal(r.evictable, 0);
    said(&s, "");
    /* P3: a site whose groups went past 4 has no copy of it. */
    struct tb_catalog_site_progress p = {.site = name_of("west"), .uid = id_of(4), .activated = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    CHECK_STATUS(room(&s, 500, &r), TB_SITE_NOMEM);
    assert_int_equal(r.last_copies, SHARD_BYTES);
    /* Nor does one that only says so: a second copy of 4 is at a durable site, and it may go. */
    p.held_chunks = 10, p.whole = p.itself = true;
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    CHECK_STATUS(room(&s, 500, &r), TB_SITE_NOMEM);
    assert_int_equal(r.last_copies, SHARD_BYTES);
    name_durable(&s, "west");
    CHECK_STATUS(room(&s, 500, &r), TB_AGAIN);
    said(&s, "[   0] evict v4: ok\n");
    CHECK_STATUS(room(&s, 500, &r), TB_AGAIN); /* it is going: nothing more */
    said(&s, "");
    CHECK_STATUS(room(&s, 1500, &r), TB_SITE_NOMEM);
    gone(&s, 4);
    site_close(&s);
}

/* The oldest whole one first, then a superseded partial one. */
static void room_is_made_in_order(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    come(&s, "a");
    CHECK_OK(version_open(&s, "rank", 3, 1, 3));
    CHECK_OK(seal(&s, "rank", 3, 0, 30));
    land(&s, 3, 0, 4);
    CHECK_OK(join(&s, "a", "g", 0, 1));
    publish_whole(&s, "rank", 4);
    CHECK_OK(staged(&s, "a", 4)); /* pins 4, so that two whole ones are there */
    switch_to(&s, "a", 4);
    publish_whole(&s, "rank", 5);
    hush(&s);
    const struct tb_id a = session_of("a");
    struct tb_catalog_room r;
    CHECK_STATUS(room(&s, 2000, &r), TB_SITE_NOMEM);
    assert_int_equal(r.pinned, SHARD_BYTES);
    assert_int_equal(r.evictable, SHARD_BYTES);
    tb_catalog_session_close(s.c, s.now, &a);
    said(&s, "[   0] evict v4: ok\n");
    CHECK_STATUS(room(&s, 2000, &r), TB_AGAIN);
    said(&s, "[   0] evict v3: ok\n");
    site_close(&s);
}

/* Also when the partial one is older: what is whole can be had again elsewhere at once, or
 * is superseded for all. */
static void a_whole_one_goes_before_an_older_partial_one(void **state)
{
    (void)state;
    struct site s;
    east(&s, 2);
    CHECK_OK(version_open(&s, "rank", 3, 1, 3));
    CHECK_OK(seal(&s, "rank", 3, 0, 30));
    land(&s, 3, 0, 4);
    publish_whole(&s, "rank", 4);
    publish_whole(&s, "rank", 5);
    const struct tb_catalog_site_progress p = {
        .site = name_of("west"), .uid = id_of(4), .held_chunks = 10, .whole = true, .itself = true};
    name_durable(&s, "west");
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    hush(&s);
    struct tb_catalog_room r;
    CHECK_STATUS(room(&s, 500, &r), TB_AGAIN);
    said(&s, "[   0] evict v4: ok\n");
    site_close(&s);
}

/* A crossing from here is a reader too. */
static void a_site_that_is_taking_it_pins_it(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    const struct tb_name west = name_of("west");
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    publish_whole(&s, "rank", 4);
    struct tb_catalog_site_progress p = {.site = west, .uid = id_of(4), .held_chunks = 3};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    publish_whole(&s, "rank", 5);
    s.left_out |= NOT_TELL;
    said(&s, "");
    p.held_chunks = 10, p.whole = true;
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    said(&s, "[   0] evict v4: ok\n");
    site_close(&s);
}

/* The twin, P6: a site that had to make room for something else says nothing, and holds up
 * nobody here for pin_max. */
static void a_site_that_takes_no_more_pins_nothing(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    const char *const renewing[] = {"rank", NULL};
    const struct tb_name west = name_of("west");
    struct tb_catalog_room r;
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    publish_whole(&s, "rank", 4);
    struct tb_catalog_site_progress p = {.site = west, .uid = id_of(4), .held_chunks = 3};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    publish_whole(&s, "rank", 5);
    hush(&s);
    pass_ms(&s, 9000, renewing);
    p.held_chunks = 4;
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    pass_ms(&s, 9900, renewing);
    CHECK_STATUS(room(&s, 500, &r), TB_SITE_NOMEM);
    assert_int_equal(r.pinned, SHARD_BYTES);
    s.trace[0] = 0;
    pass_ms(&s, 100, renewing);
    CHECK_STATUS(room(&s, 500, &r), TB_AGAIN);
    said(&s, "[19000] evict v4: ok\n");
    site_close(&s);
}

static void base(struct site *s, uint64_t uid, bool used)
{
    const struct tb_id id = id_of(uid);
    CHECK_OK(tb_catalog_base(s->c, s->now, &id, used));
    CHECK_STATUS(tb_catalog_base(s->c, s->now, &id, used), TB_DONE_BEFORE);
}

static void keep_spares_the_base_of_a_crossing(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    publish_whole(&s, "rank", 4);
    base(&s, 4, true);
    publish_whole(&s, "rank", 5);
    s.left_out |= NOT_TELL;
    said(&s, "");
    base(&s, 4, false);
    said(&s, "[   0] evict v4: ok\n");
    const struct tb_id nobody = id_of(99);
    CHECK_STATUS(tb_catalog_base(s.c, s.now, &nobody, true), TB_NOT_FOUND);
    site_close(&s);
}

/* A base or a reader's version that stays beyond `keep` takes no newer one's place: the next
 * version is a delta against that. (The base of the version before is known as one for a tick
 * longer than its crossing lasts.) Who needs room takes it all the same. */
static void a_spared_version_takes_no_newer_ones_place(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        struct site s;
        struct tb_catalog_room r;
        const struct tb_id v4 = id_of(4);
        const struct tb_name west = name_of("west");
        east(&s, 2);
        CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
        publish_whole(&s, "rank", 4);
        if (pinned)
            CHECK_OK(tb_catalog_pin(s.c, s.now, &v4, true, "ann"));
        else
            base(&s, 4, true);
        publish_whole(&s, "rank", 5);
        const struct tb_catalog_site_progress p = {
            .site = west, .uid = id_of(5), .whole = true, .itself = true};
        name_durable(&s, "west");
        CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p)); /* so it is no last copy */
        s.left_out |= NOT_TELL;
        publish_whole(&s, "rank", 6);
        said(&s, "");
        CHECK_STATUS(room(&s, SHARD_BYTES, &r), TB_AGAIN);
        said(&s, "[   0] evict v5: ok\n");
        site_close(&s);
    }
}

/* P6: its twin: a version that needs room takes a base too, but last: nothing that a trainer waits
 * for depends on a link. */
static void room_takes_a_base_last(void **state)
{
    (void)state;
    struct site s;
    east(&s, 1);
    CHECK_OK(version_open(&s, "rank", 3, 1, 3));
    CHECK_OK(seal(&s, "rank", 3, 0, 30));
    land(&s, 3, 0, 4);
    publish_whole(&s, "rank", 4);
    base(&s, 4, true);
    publish_whole(&s, "rank", 5);
    hush(&s);
    struct tb_catalog_room r;
    CHECK_STATUS(room(&s, 500, &r), TB_AGAIN);
    said(&s, "[   0] evict v3: ok\n");
    assert_int_equal(r.evictable, 2 * SHARD_BYTES);
    CHECK_STATUS(room(&s, SHARD_BYTES + 500, &r), TB_AGAIN);
    said(&s, "[   0] evict v4: ok\n");
    site_close(&s);
}

/* P6: nor does one that waits for a rotten chunk, once there is a newer: what has no sure
 * holder holds up nothing. */
static void one_that_may_be_lost_makes_room_for_a_newer(void **state)
{
    (void)state;
    struct site s;
    east(&s, 2);
    const struct tb_name west = name_of("west");
    const struct tb_id v4 = id_of(4), rank = session_of("rank");
    struct tb_catalog_room got;
    publish_whole(&s, "rank", 4);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    const struct tb_catalog_site_progress p = {.site = west, .uid = v4, .held_chunks = 3};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    tb_catalog_session_close(s.c, s.now, &rank);
    CHECK_OK(tb_catalog_arena_shrunk(s.c, s.now, &v4, 0, SHARD_CHUNKS - 1));
    assert_string_equal(state_of(&s, 4), "kept");
    CHECK_STATUS(room(&s, SHARD_BYTES, &got), TB_SITE_NOMEM); /* it is the head */
    come(&s, "rank-1");
    CHECK_OK(run_open(&s, "rank-1", "l", 101));
    CHECK_OK(version_open(&s, "rank-1", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-1", 5, 0, 50));
    assert_string_equal(state_of(&s, 5), "ready");
    hush(&s);
    CHECK_STATUS(room(&s, SHARD_BYTES, &got), TB_AGAIN);
    said(&s, "[   0] evict v4: ok\n");
    gone(&s, 4);
    assert_string_equal(state_of(&s, 4), "retired");
    site_close(&s);
}

/* P6: nor does a part of a version that the sites with the rest gave up: a site that reports of it
 * is nobody to ask. (By the seeded world, seed 60868: three of these filled an arena for good.) */
static void one_that_nobody_gives_any_more_makes_room_for_a_newer(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_room got;
    west_open(&s, 2);
    const struct tb_name east = name_of("east");
    const struct tb_id v4 = id_of(4), v5 = id_of(5);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    CHECK_OK(hear(&s, "east", 4, TB_VERSION_READY));
    cross_begin(&s, 4);
    land(&s, 4, 0, 3);
    const struct tb_catalog_site_progress p = {.site = name_of("north"), .uid = v4, .whole = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p)); /* east passed it on */
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 4, TB_VERSION_RETIRED));
    CHECK_OK(tb_catalog_crossing_refused(s.c, s.now, &v4));
    s.left_out = NOT_STORE | NOT_PEERS;
    said(&s, "[   0] cross v5 from east\n");
    CHECK_STATUS(room(&s, SHARD_BYTES, &got), TB_SITE_NOMEM); /* somebody may announce it yet */
    CHECK_OK(tb_catalog_crossing_refused(s.c, s.now, &v5));
    pass_ms(&s, 9950, NULL);
    CHECK_STATUS(room(&s, SHARD_BYTES, &got), TB_SITE_NOMEM);
    assert_int_equal(got.arriving, SHARD_BYTES);
    pass_ms(&s, 50, NULL);
    hush(&s);
    CHECK_STATUS(room(&s, SHARD_BYTES, &got), TB_AGAIN);
    said(&s, "[10000] evict v4: ok\n");
    site_close(&s);
}

/* Of a version here, as an operator sees it. */
static void stands(struct site *s, uint64_t uid, bool goes, const char *why)
{
    struct tb_catalog_keeping k;
    const struct tb_id id = id_of(uid);
    for (uint32_t cursor = 0; tb_catalog_keeping_at(s->c, &cursor, &k);) {
        if (!tb_id_equal(&k.key.uid, &id)) continue;
        assert_string_equal(k.why, why);
        assert_int_equal(k.goes, goes);
        return;
    }
    fail_msg("v%llu is not there", (unsigned long long)uid);
}

/* P10, P3: a clearing takes what is within `keep` of nobody, and says why the rest stays. */
static void a_clearing_takes_what_nobody_keeps(void **state)
{
    (void)state;
    struct site s;
    uint32_t count = 0;
    east(&s, 1);
    come(&s, "a");
    CHECK_OK(version_open(&s, "rank", 3, 1, 3));
    CHECK_OK(seal(&s, "rank", 3, 0, 30));
    land(&s, 3, 0, 4);
    CHECK_OK(join(&s, "a", "g", 0, 1));
    publish_whole(&s, "rank", 4);
    CHECK_OK(staged(&s, "a", 4));
    switch_to(&s, "a", 4);
    publish_whole(&s, "rank", 5);
    hush(&s);
    stands(&s, 3, true, "not whole, and superseded");
    stands(&s, 4, false, "readers use it, or a site draws it");
    stands(&s, 5, false, "the head of its model");
    CHECK_OK(tb_catalog_clear(s.c, s.now, &count));
    assert_int_equal(count, 1);
    said(&s, "[   0] evict v3: ok\n");
    stands(&s, 3, false, "it is leaving");
    CHECK_OK(tb_catalog_clear(s.c, s.now, &count));
    assert_int_equal(count, 0);
    site_close(&s);
}

/* The twin: a version within `keep` stays, also where room could take it. */
static void a_clearing_leaves_what_keep_names(void **state)
{
    (void)state;
    struct site s;
    uint32_t count = 0;
    east(&s, 2);
    publish_whole(&s, "rank", 4);
    publish_whole(&s, "rank", 5);
    const struct tb_catalog_site_progress p = {
        .site = name_of("west"), .uid = id_of(4), .held_chunks = 10, .whole = true, .itself = true};
    name_durable(&s, "west");
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    hush(&s);
    stands(&s, 4, false, "among the newest that `keep` names");
    CHECK_OK(tb_catalog_clear(s.c, s.now, &count));
    assert_int_equal(count, 0);
    said(&s, "");
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keep_counts_whole_versions_head_included),
        cmocka_unit_test(a_version_that_leaves_leaves_once),
        cmocka_unit_test(versions_with_readers_stay),
        cmocka_unit_test(a_pin_does_not_last_for_ever),
        cmocka_unit_test(an_operators_pin_does),
        cmocka_unit_test(keep_spares_the_base_of_a_crossing),
        cmocka_unit_test(a_spared_version_takes_no_newer_ones_place),
        cmocka_unit_test(room_takes_a_base_last),
        cmocka_unit_test(heads_and_last_copies_are_not_evicted_for_room),
        cmocka_unit_test(room_is_made_in_order),
        cmocka_unit_test(a_clearing_takes_what_nobody_keeps),
        cmocka_unit_test(a_clearing_leaves_what_keep_names),
        cmocka_unit_test(a_whole_one_goes_before_an_older_partial_one),
        cmocka_unit_test(a_site_that_is_taking_it_pins_it),
        cmocka_unit_test(a_site_that_takes_no_more_pins_nothing),
        cmocka_unit_test(one_that_may_be_lost_makes_room_for_a_newer),
        cmocka_unit_test(one_that_nobody_gives_any_more_makes_room_for_a_newer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

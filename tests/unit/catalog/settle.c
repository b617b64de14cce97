/* settle.c - tests of gateway/catalog/rules/settle.c and of coming back: recovery,
 * restore, deadlines (P3, P6).
 *
 * Covers: gateway/catalog/rules/settle.c gateway/catalog/rows/touched_rows.c
 * Covers: gateway/catalog/catalog_clock.c */
#include <string.h>

#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "site.h"

static struct tb_version_key key_of(uint64_t number)
{
    return (struct tb_version_key){.uid = id_of(number),
                                   .model = name_of("policy"),
                                   .run = id_of(100),
                                   .run_order = 1,
                                   .number = number,
                                   .shard_count = 1,
                                   .root = root_of(9)};
}

/* As the store gives it back: run k with versions 4 and 5 ready. */
static void restore(struct site *s)
{
    struct tb_catalog_run run = {.model = name_of("policy"),
                                 .id = id_of(100),
                                 .order = 1,
                                 .key = "k",
                                 .has_last = true,
                                 .last_number = 5};
    CHECK_OK(tb_catalog_restore_run(s->c, &run));
    CHECK_STATUS(tb_catalog_restore_run(s->c, &run), TB_CONFLICT);
    for (uint64_t n = 4; n <= 5; n++) {
        const struct tb_version_key key = key_of(n);
        CHECK_OK(tb_catalog_restore_version(s->c, &key, TB_VERSION_KEPT, SHARD_BYTES, false));
        CHECK_STATUS(tb_catalog_restore_version(s->c, &key, TB_VERSION_KEPT, SHARD_BYTES, false),
                     TB_CONFLICT);
    }
}

static void find_in_arena(struct site *s, uint64_t uid, uint32_t held)
{
    const struct tb_id id = id_of(uid);
    const struct tb_catalog_shard info = {
        .root = root_of(1), .chunk_count = SHARD_CHUNKS, .bytes = SHARD_BYTES};
    CHECK_OK(tb_catalog_arena_shard(s->c, s->now, &id, 0, &info));
    CHECK_STATUS(tb_catalog_arena_shard(s->c, s->now, &id, 0, &info), TB_DONE_BEFORE);
    CHECK_OK(tb_catalog_arena_reserved(s->c, s->now, &id));
    CHECK_OK(tb_catalog_arena_progress(s->c, s->now, &id, 0, held));
}

static void restarted(struct site *s, uint32_t keep)
{
    east_open(s, keep);
    s->left_out = NOT_PEERS | NOT_PLANS;
    east_reopen(s, keep);
}

/* P3: a version that the store and the arena hold is served at once, and the store is not
 * written again for it. */
static void a_restarted_catalog_serves_what_it_finds(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 2);
    s.left_out |= 1u << TB_CATALOG_PERSIST_VERSION;
    restore(&s);
    find_in_arena(&s, 5, SHARD_CHUNKS);
    wait_for(&s, NULL, TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    said(&s, "[   0] answer 1: v5 whole\n");
    assert_true(tb_catalog_recovering(s.c));
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "k", 200)); /* joins */
    CHECK_STATUS(version_open(&s, "rank", 5, 2, 15), TB_CONFLICT);
    CHECK_STATUS(version_open(&s, "rank", 3, 1, 13), TB_BAD_STATE);
    CHECK_OK(run_open(&s, "rank", "l", 201));
    said(&s, "[   0] store run l opened, last 0\n"
             "[   0] store run k fenced, last 5\n");
    site_close(&s);
}

/* P6: no verdict within one lease time; ranks that come back keep their version. */
static void nothing_is_judged_during_recovery(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 1);
    const char *const renewing[] = {"rank", NULL};
    restore(&s);
    find_in_arena(&s, 4, SHARD_CHUNKS);
    find_in_arena(&s, 5, 3);
    hush(&s);
    pass_ms(&s, 9000, NULL);
    said(&s, "");
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "k", 200));
    /* The library seals again what it still holds; here that is not what the arena has. */
    CHECK_STATUS(seal(&s, "rank", 5, 0, 2), TB_VERSION_BROKEN);
    site_close(&s);

    restarted(&s, 1);
    restore(&s);
    find_in_arena(&s, 5, 3);
    hush(&s);
    come(&s, "rank");
    CHECK_OK(seal(&s, "rank", 5, 0, 1)); /* and here it is: one reference */
    said(&s, "[   0] land v5 shard 0 of rank\n");
    pass_ms(&s, 10000, renewing);
    /* 4 had nobody, 5 has its rank. */
    said(&s, "[10000] store v4 lost: no_holder\n");
    assert_string_equal(state_of(&s, 5), "ready");
    site_close(&s);
}

/* The twin: nobody came. */
static void after_recovery_the_verdict_falls(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 2);
    restore(&s);
    find_in_arena(&s, 4, SHARD_CHUNKS);
    find_in_arena(&s, 5, 3);
    wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 20000);
    hush(&s);
    pass_ms(&s, 10000, NULL);
    said(&s, "[10000] store v5 lost: no_holder\n"
             "[10000] store head v4\n"
             "[10000] evict v5: version_lost\n"
             "[10000] answer 1: version_lost\n");
    assert_false(tb_catalog_recovering(s.c));
    site_close(&s);
}

/* No eviction either: readers may not have come back yet. */
static void nothing_is_evicted_during_recovery(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 1);
    s.left_out |= NOT_STORE;
    restore(&s);
    find_in_arena(&s, 4, SHARD_CHUNKS);
    find_in_arena(&s, 5, SHARD_CHUNKS);
    said(&s, "");
    struct tb_catalog_room room;
    CHECK_STATUS(tb_catalog_make_room(s.c, s.now, 500, &room), TB_AGAIN);
    said(&s, "");
    pass_ms(&s, 10000, NULL);
    said(&s, "[10000] evict v4: ok\n");
    site_close(&s);
}

/* P6: a site's very first catalog has nobody to wait for; its twin is above. */
static void the_first_start_has_nobody_to_wait_for(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 1);
    s.left_out |= NOT_STORE;
    restore(&s);
    find_in_arena(&s, 4, SHARD_CHUNKS);
    find_in_arena(&s, 5, SHARD_CHUNKS);
    said(&s, "");
    tb_catalog_first_start(s.c, s.now);
    assert_false(tb_catalog_recovering(s.c));
    said(&s, "[   0] evict v4: ok\n");
    site_close(&s);
}

/* P6: a pause lengthens recovery as it lengthens leases. */
static void a_pause_does_not_end_recovery(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 2);
    pause_ms(&s, 60000);
    tb_catalog_tick(s.c, s.now);
    assert_true(tb_catalog_recovering(s.c));
    pass_ms(&s, 10000, NULL);
    assert_false(tb_catalog_recovering(s.c));
    site_close(&s);
}

/* An open version's ranks come again, or it ends with the recovery. */
static void an_open_version_is_sealed_again(void **state)
{
    (void)state;
    for (uint32_t comes = 0; comes < 2; comes++) {
        struct site s;
        restarted(&s, 2);
        s.left_out |= NOT_STORE | NOT_LANDING;
        const char *const renewing[] = {comes ? "rank" : NULL, NULL};
        restore(&s);
        struct tb_version_key key = key_of(6);
        key.root = (struct tb_digest){{0}};
        CHECK_OK(tb_catalog_restore_version(s.c, &key, TB_VERSION_OPEN, 0, false));
        find_in_arena(&s, 4, SHARD_CHUNKS);
        find_in_arena(&s, 5, SHARD_CHUNKS);
        find_in_arena(&s, 6, 4);
        hush(&s);
        if (comes) {
            come(&s, "rank");
            CHECK_OK(run_open(&s, "rank", "k", 200));
            CHECK_OK(version_open(&s, "rank", 6, 1, 16));
            CHECK_OK(seal(&s, "rank", 6, 0, 1));
        }
        pass_ms(&s, 10000, renewing);
        assert_string_equal(state_of(&s, 6), comes ? "ready" : "abandoned");
        site_close(&s);
    }
}

/* P3: the store lost that version 6 was ready, a reboot took the arena, and the ranks have their
 * memory back. West has all of it, and says so: it is not lost. No peer says whether it was
 * ready (P8). A rank that was in the middle of it begins anew. */
static void a_version_that_the_store_calls_open_is_not_lost(void **state)
{
    (void)state;
    static const struct tb_name west = {"west"};
    struct site s;
    restarted(&s, 2);
    s.left_out |= NOT_LANDING;
    restore(&s);
    struct tb_version_key key = key_of(6);
    key.root = (struct tb_digest){{0}};
    CHECK_OK(tb_catalog_restore_version(s.c, &key, TB_VERSION_OPEN, 0, false));
    find_in_arena(&s, 4, SHARD_CHUNKS);
    find_in_arena(&s, 5, SHARD_CHUNKS);
    const struct tb_version_key ready = key_of(6);
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &west, &ready, TB_VERSION_READY));
    hush(&s);
    const char *const renewing[] = {"rank", NULL};
    come(&s, "rank");
    pass_ms(&s, 10000, renewing);
    said(&s, "[10000] store v6 abandoned: rank_lost\n");
    CHECK_OK(run_open(&s, "rank", "k", 200));
    CHECK_STATUS(seal(&s, "rank", 6, 0, 1), TB_SUPERSEDED);
    CHECK_OK(version_open(&s, "rank", 6, 1, 16));
    CHECK_OK(seal(&s, "rank", 16, 0, 1));
    assert_string_equal(state_of(&s, 16), "ready");
    site_close(&s);
}

/* P2: the chunks of it in the arena are not enough: ready is said only by ranks that are there. */
static void a_restored_open_version_waits_for_all_its_ranks(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 2);
    restore(&s);
    struct tb_version_key key = key_of(6);
    key.shard_count = 2;
    key.root = (struct tb_digest){{0}};
    CHECK_OK(tb_catalog_restore_version(s.c, &key, TB_VERSION_OPEN, 0, false));
    const struct tb_id v6 = id_of(6);
    for (uint32_t shard = 0; shard < 2; shard++) {
        const struct tb_catalog_shard info = {
            .root = root_of((uint8_t)shard), .chunk_count = SHARD_CHUNKS, .bytes = SHARD_BYTES};
        CHECK_OK(tb_catalog_arena_shard(s.c, s.now, &v6, shard, &info));
        land(&s, 6, shard, SHARD_CHUNKS);
    }
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "k", 200));
    CHECK_OK(version_open(&s, "rank", 6, 2, 16));
    CHECK_OK(seal(&s, "rank", 6, 1, 1));
    assert_string_equal(state_of(&s, 6), "open");
    CHECK_OK(seal(&s, "rank", 6, 0, 0));
    assert_string_equal(state_of(&s, 6), "kept");
    site_close(&s);
}

/* P3: the store is lost, the arena is not: a new run does not get the old one's order. */
static void a_run_that_only_the_arena_knows_is_older(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 2);
    struct tb_version_key key = key_of(6);
    key.run_order = 7;
    CHECK_OK(tb_catalog_restore_version(s.c, &key, TB_VERSION_READY, 0, false));
    find_in_arena(&s, 6, SHARD_CHUNKS);
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "new", 200));
    uint32_t cursor = 0;
    struct tb_catalog_run run;
    assert_true(tb_catalog_run_at(s.c, &cursor, &run));
    assert_int_equal(run.order, 8);
    assert_int_equal(run.resumed_run_order, 7);
    assert_int_equal(run.resumed_number, 6);
    site_close(&s);
}

/* A region that was left brings back no version that ended before the restart. */
static void regions_of_ended_versions_are_given_back(void **state)
{
    (void)state;
    struct site s;
    restarted(&s, 2);
    struct tb_version_key key = key_of(7);
    CHECK_OK(tb_catalog_restore_version(s.c, &key, TB_VERSION_ENDED_WITHDRAWN, SHARD_BYTES, false));
    const struct tb_id v7 = id_of(7);
    CHECK_OK(tb_catalog_arena_reserved(s.c, s.now, &v7));
    said(&s, "[   0] evict v7: version_withdrawn\n");
    CHECK_OK(tb_catalog_evicted(s.c, s.now, &v7));
    CHECK_STATUS(tb_catalog_evicted(s.c, s.now, &v7), TB_BAD_STATE);
    key.uid = id_of(8), key.model = name_of("other");
    CHECK_STATUS(tb_catalog_restore_version(s.c, &key, TB_VERSION_KEPT, 0, false), TB_NOT_FOUND);
    site_close(&s);
}

/* P3: a chunk that fails its re-verification is asked for again where it still is. */
static void a_shrunk_shard_is_landed_again(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    s.left_out = NOT_STORE | NOT_PEERS | NOT_TELL;
    rank_begins(&s);
    publish_whole(&s, "rank", 5);
    said(&s, "");
    const struct tb_id v5 = id_of(5), rank = session_of("rank");
    CHECK_OK(tb_catalog_arena_shrunk(s.c, s.now, &v5, 0, SHARD_CHUNKS - 1));
    said(&s, "[   0] land v5 shard 0 of rank\n");
    tb_catalog_session_close(s.c, s.now, &rank);
    assert_string_equal(state_of(&s, 5), "lost"); /* the twin: it was nowhere else */
    site_close(&s);
}

static void progress_is_bounded_by_what_the_shard_is(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    rank_begins(&s);
    CHECK_OK(version_open(&s, "rank", 5, 2, 5));
    CHECK_OK(seal(&s, "rank", 5, 0, 50));
    const struct tb_id v5 = id_of(5), v6 = id_of(6);
    CHECK_STATUS(tb_catalog_arena_progress(s.c, s.now, &v5, 0, 1), TB_BAD_STATE); /* no space for it yet */
    land(&s, 5, 0, 3);
    CHECK_STATUS(tb_catalog_arena_reserved(s.c, s.now, &v5), TB_DONE_BEFORE);
    CHECK_STATUS(tb_catalog_arena_progress(s.c, s.now, &v5, 0, SHARD_CHUNKS + 1), TB_BAD_ARGUMENT);
    CHECK_STATUS(tb_catalog_arena_progress(s.c, s.now, &v5, 1, 1), TB_BAD_STATE); /* not sealed */
    CHECK_STATUS(tb_catalog_arena_progress(s.c, s.now, &v5, 2, 1), TB_BAD_ARGUMENT);
    CHECK_STATUS(tb_catalog_arena_progress(s.c, s.now, &v6, 0, 1), TB_NOT_FOUND);
    CHECK_OK(tb_catalog_arena_progress(s.c, s.now, &v5, 0, 2)); /* late news change nothing: P4 */
    struct tb_catalog_version_view view;
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    assert_int_equal(view.held_chunks, 3);
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restarted_catalog_serves_what_it_finds),
        cmocka_unit_test(nothing_is_judged_during_recovery),
        cmocka_unit_test(after_recovery_the_verdict_falls),
        cmocka_unit_test(nothing_is_evicted_during_recovery),
        cmocka_unit_test(the_first_start_has_nobody_to_wait_for),
        cmocka_unit_test(a_pause_does_not_end_recovery),
        cmocka_unit_test(an_open_version_is_sealed_again),
        cmocka_unit_test(a_version_that_the_store_calls_open_is_not_lost),
        cmocka_unit_test(a_restored_open_version_waits_for_all_its_ranks),
        cmocka_unit_test(a_run_that_only_the_arena_knows_is_older),
        cmocka_unit_test(regions_of_ended_versions_are_given_back),
        cmocka_unit_test(a_shrunk_shard_is_landed_again),
        cmocka_unit_test(progress_is_bounded_by_what_the_shard_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* waiters.c - tests of gateway/catalog/waiters.c: who waits, for what, until when. P10: every
 * wait is answered once.
 *
 * Covers: gateway/catalog/waiters.c gateway/catalog/rules/wait_rules.c
 * Covers: gateway/catalog/rows/wait_rows.c */
#include "check.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/records.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "site.h"

static void east(struct site *s)
{
    east_open(s, 8);
    s->left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL | 1u << TB_CATALOG_EVICT;
    rank_begins(s);
}

static void west(struct site *s)
{
    west_open(s, 8);
    s->left_out =
        NOT_STORE | NOT_PEERS | NOT_PLANS | NOT_TELL | 1u << TB_CATALOG_EVICT | 1u << TB_CATALOG_CROSS;
    const struct tb_name site = name_of("east");
    CHECK_OK(tb_catalog_site_up(s->c, s->now, &site, true));
}

static void latest_is_whole_here_and_next_has_begun(void **state)
{
    (void)state;
    struct site s;
    west(&s);
    wait_for(&s, NULL, TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    wait_for(&s, NULL, TB_CATALOG_WAIT_NEXT, 0, 0, 1000);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    said(&s, "");
    cross_begin(&s, 5);
    said(&s, "[   0] answer 2: v5\n");
    land(&s, 5, 0, SHARD_CHUNKS - 1);
    said(&s, "");
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] answer 1: v5 whole\n");
    site_close(&s);
}

/* P1: its chunks land before its home has signed it. Then no wait for a version is answered with
 * it, also one that asks once. With the signature each is answered. */
static void an_unsigned_version_answers_no_reader(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id v5 = id_of(5);
    west(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    tb_catalog_version_awaits(s.c, s.now, &v5, true);
    wait_for(&s, NULL, TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    wait_for(&s, NULL, TB_CATALOG_WAIT_NEXT, 0, 0, 1000);
    wait_for(&s, NULL, TB_CATALOG_WAIT_MINIMUM, 5, 0, 1000);
    wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 1000);
    cross_begin(&s, 5);
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "");
    wait_for(&s, NULL, TB_CATALOG_WAIT_LATEST, 0, 0, 0);
    said(&s, "[   0] answer 5: again\n");
    tb_catalog_version_awaits(s.c, s.now, &v5, false);
    said(&s, "[   0] answer 1: v5 whole\n[   0] answer 2: v5 whole\n"
             "[   0] answer 3: v5 whole\n[   0] answer 4: v5 whole\n");
    site_close(&s);
}

static void after_asks_for_something_newer(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    publish_whole(&s, "rank", 5);
    wait_for(&s, NULL, TB_CATALOG_WAIT_LATEST, 0, 5, 1000);
    wait_for(&s, NULL, TB_CATALOG_WAIT_LATEST, 0, 4, 1000); /* unknown here: any will do */
    said(&s, "[   0] answer 2: v5 whole\n");
    publish_whole(&s, "rank", 6);
    said(&s, "[   0] answer 1: v6 whole\n");
    site_close(&s);
}

static void minimum_is_of_the_newest_run(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    publish_whole(&s, "rank", 5);
    publish_whole(&s, "rank", 6);
    wait_for(&s, NULL, TB_CATALOG_WAIT_MINIMUM, 5, 0, 1000);
    wait_for(&s, NULL, TB_CATALOG_WAIT_MINIMUM, 7, 0, 1000);
    said(&s, "[   0] answer 1: v6 whole\n");
    CHECK_OK(run_open(&s, "rank", "l", 101));
    CHECK_OK(version_open(&s, "rank", 3, 1, 203));
    CHECK_OK(seal(&s, "rank", 203, 0, 33));
    land(&s, 203, 0, SHARD_CHUNKS);
    wait_for(&s, NULL, TB_CATALOG_WAIT_MINIMUM, 4, 0, 1000);
    said(&s, ""); /* 5 and 6 are of the run before */
    CHECK_OK(version_open(&s, "rank", 7, 1, 207));
    CHECK_OK(seal(&s, "rank", 207, 0, 37));
    land(&s, 207, 0, SHARD_CHUNKS);
    said(&s, "[   0] answer 3: v207 whole\n[   0] answer 2: v207 whole\n");
    site_close(&s);
}

static void exact_is_of_the_run_asked_for(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    publish_whole(&s, "rank", 5);
    CHECK_OK(run_open(&s, "rank", "l", 101));
    CHECK_OK(version_open(&s, "rank", 5, 1, 205));
    CHECK_OK(seal(&s, "rank", 205, 0, 35));
    land(&s, 205, 0, SHARD_CHUNKS);
    wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 1000);
    const struct tb_catalog_wait old = {.handle = 50,
                                        .kind = TB_CATALOG_WAIT_EXACT,
                                        .model = name_of("policy"),
                                        .run_order = 1,
                                        .number = 5,
                                        .deadline = TB_TIME_NEVER};
    CHECK_OK(tb_catalog_wait(s.c, s.now, &old));
    said(&s, "[   0] answer 1: v205 whole\n[   0] answer 50: v5 whole\n");
    site_close(&s);
}

/* A wait for a version that will not come ends with the reason. */
static void exact_wakes_with_the_end(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    for (uint64_t n = 5; n <= 7; n++) {
        CHECK_OK(version_open(&s, "rank", n, 1, n));
        CHECK_OK(seal(&s, "rank", n, 0, (uint8_t)n));
        wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, n, 0, 1000);
    }
    said(&s, "");
    const struct tb_id v5 = id_of(5), v6 = id_of(6), rank = session_of("rank");
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "ann"));
    said(&s, "[   0] answer 1: version_withdrawn\n");
    CHECK_STATUS(tb_catalog_chunk_bad(s.c, s.now, &v6, 0, 1, &rank), TB_AGAIN);
    CHECK_STATUS(tb_catalog_chunk_bad(s.c, s.now, &v6, 0, 1, &rank), TB_VERSION_BROKEN);
    said(&s, "[   0] answer 2: version_broken\n");
    tb_catalog_session_close(s.c, s.now, &rank);
    said(&s, "[   0] answer 3: version_lost\n");
    wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 1000); /* and a late asker hears it too */
    said(&s, "[   0] answer 4: version_withdrawn\n");
    site_close(&s);
}

/* A wait does not end with a version that failed before it was ready: the ranks may try again. */
static void a_failed_attempt_wakes_nobody(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    come(&s, "other");
    wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 1000);
    CHECK_OK(version_open(&s, "other", 5, 1, 5));
    const struct tb_id other = session_of("other");
    tb_catalog_session_close(s.c, s.now, &other);
    assert_string_equal(state_of(&s, 5), "lost");
    said(&s, "");
    CHECK_OK(version_open(&s, "rank", 5, 1, 15));
    CHECK_OK(seal(&s, "rank", 15, 0, 50));
    land(&s, 15, 0, SHARD_CHUNKS);
    said(&s, "[   0] answer 1: v15 whole\n");
    site_close(&s);
}

static void deadlines_cancels_and_asking_once(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    come(&s, "w");
    const char *const renewing[] = {"rank", "w", NULL};
    wait_for(&s, "w", TB_CATALOG_WAIT_LATEST, 0, 0, 120);
    const uint64_t cancelled = wait_for(&s, "w", TB_CATALOG_WAIT_LATEST, 0, 0, 5000);
    wait_for(&s, "w", TB_CATALOG_WAIT_LATEST, 0, 0, 0);
    said(&s, "[   0] answer 3: again\n");
    pass_ms(&s, 120, renewing); /* a tick at the very deadline answers, or the owner would spin */
    said(&s, "[ 120] answer 1: timeout\n");
    pass_ms(&s, 80, renewing);
    tb_catalog_cancel(s.c, s.now, cancelled);
    tb_catalog_cancel(s.c, s.now, cancelled); /* P4 */
    said(&s, "[ 200] answer 2: cancelled\n");
    publish_whole(&s, "rank", 5);
    said(&s, "");
    site_close(&s);
}

static void waits_of_a_cut_connection_end_silently(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    come(&s, "w");
    wait_for(&s, "w", TB_CATALOG_WAIT_LATEST, 0, 0, 5000);
    const struct tb_id w = session_of("w");
    tb_catalog_session_detach(s.c, s.now, &w);
    publish_whole(&s, "rank", 5);
    said(&s, "");
    site_close(&s);
}

/* West's link is up, and it says that it holds nothing. */
static void west_speaks(struct site *s)
{
    static struct tb_site_state w;
    w = (struct tb_site_state){.site = name_of("west"), .model = name_of("policy"), .known = true};
    CHECK_OK(tb_record_put(s->c, s->now, &w.site, &w));
}

static void a_site_holds_and_has_activated(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    come(&s, "a");
    CHECK_OK(join(&s, "a", "g", 0, 1));
    const struct tb_name west_name = name_of("west");
    CHECK_OK(version_open(&s, "rank", 5, 1, 5));
    CHECK_OK(seal(&s, "rank", 5, 0, 50));
    struct tb_catalog_wait q = {
        .handle = 1, .kind = TB_CATALOG_WAIT_SITE_HOLDS, .uid = id_of(5), .deadline = TB_TIME_NEVER};
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    q.handle = 2, q.kind = TB_CATALOG_WAIT_SITE_ACTIVATED;
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    q.handle = 3, q.site = west_name;
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    q.handle = 4, q.kind = TB_CATALOG_WAIT_SITE_HOLDS;
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    said(&s, "");
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] answer 1: ok\n");
    CHECK_OK(staged(&s, "a", 5));
    said(&s, "[   0] go a v5\n");
    switch_to(&s, "a", 5);
    said(&s, "[   0] answer 2: ok\n");
    west_speaks(&s);
    struct tb_catalog_site_progress p = {.site = west_name, .uid = id_of(5), .held_chunks = 9};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    said(&s, "");
    p.held_chunks = 10, p.whole = true;
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    said(&s, "[   0] answer 4: ok\n");
    p.activated = true;
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    said(&s, "[   0] answer 3: ok\n");
    site_close(&s);
}

/* P10: while west's link is down nobody knows what it holds, though the catalog still
 * counts its copy (P3). */
static void an_unknown_site_answers_nobody(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    publish_whole(&s, "rank", 5);
    const struct tb_name west_name = name_of("west");
    struct tb_catalog_site_progress p = {
        .site = west_name, .uid = id_of(5), .held_chunks = 10, .whole = true, .activated = true};
    west_speaks(&s);
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    assert_true(tb_records_lost(s.c, s.now, &west_name, 18));
    assert_false(tb_records_lost(s.c, s.now, &west_name, 18));
    struct tb_catalog_wait q = {.handle = 1,
                                .kind = TB_CATALOG_WAIT_SITE_ACTIVATED,
                                .uid = id_of(5),
                                .site = west_name,
                                .deadline = TB_TIME_NEVER};
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    said(&s, "");
    west_speaks(&s); /* it is back, without its arena */
    said(&s, "");
    CHECK_STATUS(tb_catalog_site_progress(s.c, s.now, &p), TB_DONE_BEFORE);
    said(&s, "[   0] answer 1: ok\n");
    site_close(&s);
}

/* A site will never activate a version that it went past: the wait ends. */
static void a_newer_activated_version_counts(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    publish_whole(&s, "rank", 5);
    publish_whole(&s, "rank", 6);
    const struct tb_name west_name = name_of("west");
    west_speaks(&s);
    struct tb_catalog_site_progress p = {
        .site = west_name, .uid = id_of(6), .held_chunks = 10, .whole = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    CHECK_STATUS(tb_catalog_site_progress(s.c, s.now, &p), TB_DONE_BEFORE);
    struct tb_catalog_wait q = {.handle = 1,
                                .kind = TB_CATALOG_WAIT_SITE_ACTIVATED,
                                .uid = id_of(5),
                                .site = west_name,
                                .deadline = TB_TIME_NEVER};
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    said(&s, "");
    p.activated = true, p.whole = false, p.held_chunks = 0; /* a report that knows of no chunks */
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    said(&s, "[   0] answer 1: ok\n");
    p.activated = false;
    CHECK_STATUS(tb_catalog_site_progress(s.c, s.now, &p), TB_DONE_BEFORE); /* late: takes nothing back */
    q.handle = 2, q.uid = id_of(6), q.kind = TB_CATALOG_WAIT_SITE_HOLDS;
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    said(&s, "[   0] answer 2: ok\n");
    /* A site that went past 5 will never hold it. */
    q.handle = 3, q.uid = id_of(5);
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    said(&s, "[   0] answer 3: ok\n");
    site_close(&s);
}

static void waits_are_refused_for_what_is_not(void **state)
{
    (void)state;
    struct site s;
    east(&s);
    struct tb_catalog_wait q = {
        .handle = 1, .kind = TB_CATALOG_WAIT_LATEST, .model = name_of("other"), .deadline = TB_TIME_NEVER};
    CHECK_STATUS(tb_catalog_wait(s.c, s.now, &q), TB_NOT_FOUND);
    q.model = name_of("policy");
    q.session = session_of("nobody");
    CHECK_STATUS(tb_catalog_wait(s.c, s.now, &q), TB_PEER_LEASE);
    q.session = (struct tb_id){{0}};
    CHECK_OK(tb_catalog_wait(s.c, s.now, &q));
    CHECK_STATUS(tb_catalog_wait(s.c, s.now, &q), TB_CONFLICT);
    q.handle = 2, q.kind = TB_CATALOG_WAIT_SITE_HOLDS;
    CHECK_STATUS(tb_catalog_wait(s.c, s.now, &q), TB_NOT_FOUND);
    q.kind = (enum tb_catalog_wait_kind)99;
    CHECK_STATUS(tb_catalog_wait(s.c, s.now, &q), TB_BAD_ARGUMENT);
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latest_is_whole_here_and_next_has_begun),
        cmocka_unit_test(an_unsigned_version_answers_no_reader),
        cmocka_unit_test(after_asks_for_something_newer),
        cmocka_unit_test(minimum_is_of_the_newest_run),
        cmocka_unit_test(exact_is_of_the_run_asked_for),
        cmocka_unit_test(exact_wakes_with_the_end),
        cmocka_unit_test(a_failed_attempt_wakes_nobody),
        cmocka_unit_test(deadlines_cancels_and_asking_once),
        cmocka_unit_test(waits_of_a_cut_connection_end_silently),
        cmocka_unit_test(a_site_holds_and_has_activated),
        cmocka_unit_test(an_unknown_site_answers_nobody),
        cmocka_unit_test(a_newer_activated_version_counts),
        cmocka_unit_test(waits_are_refused_for_what_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

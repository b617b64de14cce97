/* views.c - tests of gateway/catalog/views.c: which site is behind, by how much, and since when (P10). */
#include "check.h"
#include "site.h"

static void lag_in_versions_bytes_and_seconds(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    const struct tb_name policy = name_of("policy"), west = name_of("west"), other = name_of("other");
    const char *const renewing[] = {"rank", NULL};
    struct tb_catalog_lag lag;
    rank_begins(&s);
    CHECK_OK(tb_catalog_lag(s.c, s.now, &policy, NULL, &lag));
    assert_false(lag.known);
    CHECK_OK(tb_catalog_lag(s.c, s.now, &policy, &west, &lag));
    assert_false(lag.known);
    CHECK_STATUS(tb_catalog_lag(s.c, s.now, &other, NULL, &lag), TB_NOT_FOUND);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
    publish_whole(&s, "rank", 5);
    struct tb_catalog_site_progress p = {.site = west, .uid = id_of(5), .held_chunks = 10, .whole = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    pass_ms(&s, 1000, renewing);
    publish_whole(&s, "rank", 6);
    pass_ms(&s, 2000, renewing);
    publish_whole(&s, "rank", 7);
    p = (struct tb_catalog_site_progress){.site = west, .uid = id_of(7), .held_chunks = 4};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    CHECK_OK(tb_catalog_lag(s.c, s.now, &policy, &west, &lag));
    assert_true(lag.known);
    assert_int_equal(lag.head_number, 7);
    assert_int_equal(lag.versions, 2);
    assert_int_equal(lag.bytes, SHARD_BYTES * 6 / 10);
    assert_int_equal(lag.behind_ns, TB_MS(2000));
    CHECK_OK(tb_catalog_lag(s.c, s.now, &policy, NULL, &lag));
    assert_int_equal(lag.versions, 0);
    assert_int_equal(lag.bytes, 0);
    assert_int_equal(lag.behind_ns, 0);
    site_close(&s);
}

/* A site that is configured, and of which nothing was heard since the start, lacks all that was published. */
static void who_never_came_lacks_all(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    const struct tb_name policy = name_of("policy"), west = name_of("west");
    struct tb_catalog_lag lag;
    rank_begins(&s);
    publish_whole(&s, "rank", 5);
    CHECK_OK(tb_catalog_lag(s.c, s.now, &policy, &west, &lag));
    assert_true(lag.known);
    assert_int_equal(lag.head_number, 5);
    assert_int_equal(lag.versions, 1);
    assert_int_equal(lag.bytes, SHARD_BYTES);
    assert_true(tb_id_is_zero(&lag.newest));
    site_close(&s);
}

static bool worker_is_active(const struct site *s, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    uint32_t cursor = 0;
    struct tb_catalog_reference_view r;
    while (tb_catalog_reference_at(s->c, &cursor, &r))
        if (r.kind == TB_REFERENCE_WORKER && tb_id_equal(&r.uid, &id)) return r.activated;
    return false;
}

/* It has both staged, and computes from the newer one. */
static void a_worker_is_active_in_one_version(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    come(&s, "rank");
    come(&s, "a");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    publish_whole(&s, "rank", 5);
    publish_whole(&s, "rank", 6);
    CHECK_OK(join(&s, "a", "g", 0, 1));
    CHECK_OK(staged(&s, "a", 5));
    assert_false(worker_is_active(&s, 5));
    switch_to(&s, "a", 5);
    CHECK_OK(staged(&s, "a", 6));
    assert_true(worker_is_active(&s, 5));
    assert_false(worker_is_active(&s, 6));
    switch_to(&s, "a", 6);
    assert_false(worker_is_active(&s, 5));
    assert_true(worker_is_active(&s, 6));
    site_close(&s);
}

static void every_row_can_be_looked_at(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    come(&s, "rank");
    come(&s, "a");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    publish_whole(&s, "rank", 5);
    CHECK_OK(join(&s, "a", "g", 0, 1));
    CHECK_OK(staged(&s, "a", 5));
    switch_to(&s, "a", 5);
    uint32_t cursor = 0;
    struct tb_catalog_version_view version;
    assert_true(tb_catalog_version_at(s.c, &cursor, &version));
    assert_true(version.head && version.whole && !version.arriving);
    assert_int_equal(version.publishers, 1);
    assert_int_equal(version.workers, 1);
    assert_false(tb_catalog_version_at(s.c, &cursor, &version));
    cursor = 0;
    struct tb_catalog_group_view group;
    assert_true(tb_catalog_group_at(s.c, &cursor, &group));
    assert_int_equal(group.present, 1);
    assert_int_equal(group.activated, 1);
    assert_false(tb_catalog_group_at(s.c, &cursor, &group));
    cursor = 0;
    struct tb_catalog_member_view member;
    assert_true(tb_catalog_member_at(s.c, &cursor, &member));
    assert_string_equal(member.worker.text, "a");
    assert_true(member.staged_whole);
    cursor = 0;
    struct tb_catalog_session_view session;
    uint32_t sessions = 0;
    while (tb_catalog_session_at(s.c, &cursor, &session))
        sessions++;
    assert_int_equal(sessions, 2);
    const struct tb_name policy = name_of("policy");
    struct tb_id uid;
    CHECK_OK(tb_catalog_find(s.c, &policy, 0, 5, &uid));
    CHECK_OK(tb_catalog_find(s.c, &policy, 1, 5, &uid));
    CHECK_STATUS(tb_catalog_find(s.c, &policy, 2, 5, &uid), TB_NOT_FOUND);
    CHECK_STATUS(tb_catalog_find(s.c, &policy, 0, 6, &uid), TB_NOT_FOUND);
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lag_in_versions_bytes_and_seconds),
        cmocka_unit_test(who_never_came_lacks_all),
        cmocka_unit_test(a_worker_is_active_in_one_version),
        cmocka_unit_test(every_row_can_be_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

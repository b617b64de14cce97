/* views.c - tests of gateway/catalog/views.c: which site is behind, by how much, and since when
 * (P10).
 *
 * Covers: gateway/catalog/views.c */
#include "gateway/catalog/views.h"
#include "check.h"
#include "gateway/catalog/groups.h"
#include "site.h"

static void lag_in_versions_bytes_and_seconds(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    const struct tb_name policy = name_of("policy"), other = name_of("other");
    struct tb_catalog_lag lag;
    rank_begins(&s);
    CHECK_OK(tb_catalog_lag(s.c, s.now, &policy, &lag));
    assert_false(lag.known);
    CHECK_STATUS(tb_catalog_lag(s.c, s.now, &other, &lag), TB_NOT_FOUND);
    publish_whole(&s, "rank", 5);
    CHECK_OK(tb_catalog_lag(s.c, s.now, &policy, &lag));
    assert_true(lag.known);
    assert_int_equal(lag.head_number, 5);
    assert_int_equal(lag.versions, 0);
    assert_int_equal(lag.bytes, 0);
    assert_int_equal(lag.behind_ns, 0);
    site_close(&s);
}

/* Versions 5 and 6 are whole, and the one member of a group has staged 5. */
static void a_stages_five(struct site *s)
{
    east_open(s, 8);
    come(s, "rank");
    come(s, "a");
    CHECK_OK(run_open(s, "rank", "k", 100));
    publish_whole(s, "rank", 5);
    publish_whole(s, "rank", 6);
    CHECK_OK(join(s, "a", "g", 0, 1));
    CHECK_OK(staged(s, "a", 5));
}

/* Of the version that a member computes from; what is said of another, or by nobody's
 * member, is not taken. */
static void how_a_member_was_updated_can_be_looked_at(void **state)
{
    (void)state;
    struct site s;
    a_stages_five(&s);
    switch_to(&s, "a", 5);
    const struct tb_id a = session_of("a"), nobody = session_of("nobody"), five = id_of(5), six = id_of(6);
    const struct tb_catalog_update said = {.uid = five, .way = 3, .fetched_chunks = 2, .stall_ns = 7};
    const struct tb_catalog_update of_six = {.uid = six}, of_none = {.way = 1};
    struct tb_catalog_update seen;
    assert_false(tb_catalog_update_get(s.c, &a, &five, &seen));
    CHECK_STATUS(tb_catalog_updated(s.c, &nobody, 1, &said), TB_PEER_LEASE);
    CHECK_STATUS(tb_catalog_updated(s.c, &a, 2, &said), TB_NOT_FOUND);
    CHECK_STATUS(tb_catalog_updated(s.c, &a, 1, &of_six), TB_BAD_STATE);
    CHECK_STATUS(tb_catalog_updated(s.c, &a, 1, &of_none), TB_BAD_STATE);
    CHECK_OK(tb_catalog_updated(s.c, &a, 1, &said));
    assert_true(tb_catalog_update_get(s.c, &a, &five, &seen));
    assert_memory_equal(seen.uid.bytes, five.bytes, sizeof five.bytes);
    assert_int_equal(seen.way, 3);
    assert_int_equal(seen.fetched_chunks, 2);
    assert_int_equal(seen.stall_ns, 7);
    uint32_t cursor = 0;
    struct tb_catalog_member_view member;
    assert_true(tb_catalog_member_at(s.c, &cursor, &member));
    assert_int_equal(member.update.stall_ns, 7);
    assert_false(tb_catalog_update_get(s.c, &a, &six, &seen));
    assert_false(tb_catalog_update_get(s.c, &nobody, &five, &seen));
    struct tb_name other;
    assert_int_equal(tb_name_set(&other, "other"), TB_OK);
    assert_true(tb_catalog_updated_by(s.c, &member.model, 3));
    assert_false(tb_catalog_updated_by(s.c, &member.model, 2));
    assert_false(tb_catalog_updated_by(s.c, &other, 3));
    CHECK_OK(staged(&s, "a", 6));
    switch_to(&s, "a", 6);
    assert_false(tb_catalog_updated_by(s.c, &member.model, 3)); /* of the version before */
    assert_false(tb_catalog_update_get(s.c, &a, &five, &seen)); /* it computes from another */
    assert_false(tb_catalog_update_get(s.c, &a, &six, &seen));
    cursor = 0;
    assert_true(tb_catalog_member_at(s.c, &cursor, &member));
    assert_true(tb_id_is_zero(&member.update.uid));
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
    a_stages_five(&s);
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

/* All groups at once are those that come one by one. */
static void expect_groups_in_one_pass(struct site *s)
{
    struct tb_catalog_group_view one, all[4];
    come(s, "b");
    come(s, "c");
    CHECK_OK(join(s, "b", "h", 1, 3));
    CHECK_OK(join(s, "c", "h", 0, 3));
    assert_int_equal(tb_catalog_groups(s->c, all, 4), 2);
    for (uint32_t cursor = 0, i = 0; tb_catalog_group_at(s->c, &cursor, &one); i++)
        assert_memory_equal(&one, &all[i], sizeof one);
    assert_int_equal(all[0].present + all[1].present, 3);
    assert_int_equal(tb_catalog_groups(s->c, all, 1), 1);
    assert_int_equal(tb_catalog_groups(s->c, all, 0), 0);
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
    expect_groups_in_one_pass(&s);
    site_close(&s);
}

/* Likewise, and an alarm is one for each tensor and version. */
static void a_members_proof_can_be_looked_at(void **state)
{
    (void)state;
    struct site s;
    a_stages_five(&s);
    switch_to(&s, "a", 5);
    const struct tb_id a = session_of("a"), nobody = session_of("nobody");
    struct tb_catalog_proof p = {.uid = id_of(5), .at = 7, .verdict = 3, .bad = 1, .tensor = "t"};
    const struct tb_catalog_proof of_six = {.uid = id_of(6), .at = 7, .verdict = 1};
    bool alarms = true;
    CHECK_STATUS(tb_catalog_proven(s.c, &nobody, 1, &p, &alarms), TB_PEER_LEASE);
    CHECK_STATUS(tb_catalog_proven(s.c, &a, 2, &p, &alarms), TB_NOT_FOUND);
    CHECK_STATUS(tb_catalog_proven(s.c, &a, 1, &of_six, &alarms), TB_BAD_STATE);
    assert_false(alarms);
    CHECK_OK(tb_catalog_proven(s.c, &a, 1, &p, &alarms));
    assert_true(alarms);
    CHECK_OK(tb_catalog_proven(s.c, &a, 1, &p, &alarms));
    assert_false(alarms); /* it was told */
    p.tensor[0] = 'u';
    CHECK_OK(tb_catalog_proven(s.c, &a, 1, &p, &alarms));
    assert_true(alarms);
    uint32_t cursor = 0;
    struct tb_catalog_member_view member;
    assert_true(tb_catalog_member_at(s.c, &cursor, &member));
    assert_int_equal(member.subscription, 1);
    assert_int_equal(member.proof.at, 7);
    assert_string_equal(member.proof.tensor, "u");
    CHECK_OK(staged(&s, "a", 6));
    switch_to(&s, "a", 6);
    cursor = 0;
    assert_true(tb_catalog_member_at(s.c, &cursor, &member));
    assert_int_equal(member.proof.at, 0); /* it computes from another */
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lag_in_versions_bytes_and_seconds),
        cmocka_unit_test(how_a_member_was_updated_can_be_looked_at),
        cmocka_unit_test(a_members_proof_can_be_looked_at),
        cmocka_unit_test(a_worker_is_active_in_one_version),
        cmocka_unit_test(every_row_can_be_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

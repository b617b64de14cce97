/* group_claims.c - claims of a member of a reader group: a group belongs to its owner (P8), and a
 * version that is not known here moves the member that claims it, and no other (P2).
 *
 * Covers: gateway/catalog/groups.c gateway/catalog/rows/group_rows.c */
#include "check.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/versions.h"
#include "site.h"

/* P2: one member says that it computes from a number that nobody knows: it is held back
 * itself, and nobody else, neither while it is there nor when it has gone. */
static void a_members_word_moves_nobody_else(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
    come(&s, "rank");
    come(&s, "a");
    come(&s, "b");
    come(&s, "liar");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    publish_whole(&s, "rank", 5);
    CHECK_OK(join(&s, "a", "g", 0, 2));
    CHECK_OK(join_active(&s, "liar", "g", 1, 2, UINT64_MAX));
    CHECK_OK(stage(&s, "a", 5));
    CHECK_STATUS(stage(&s, "liar", 5), TB_BAD_STATE);
    const struct tb_id liar = session_of("liar"), v5 = id_of(5);
    assert_int_equal(tb_catalog_obstacle_of(s.c, &liar, 1, &v5).kind, TB_OBSTACLE_UNKNOWN);
    tb_catalog_session_close(s.c, s.now, &liar);
    CHECK_OK(join(&s, "b", "g", 1, 2));
    CHECK_OK(staged(&s, "a", 5));
    CHECK_OK(staged(&s, "b", 5));
    said(&s, "[   0] go a v5\n[   0] go b v5\n");
    site_close(&s);
}

/* P2: a follower hears late of what its worker computes from, and then it is the group's. */
static void an_identity_that_becomes_known_is_the_groups(void **state)
{
    (void)state;
    struct site s;
    west_follows(&s);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
    come(&s, "a");
    come(&s, "b");
    CHECK_OK(join_active(&s, "a", "g", 0, 2, 6));
    CHECK_OK(join(&s, "b", "g", 1, 2));
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    CHECK_OK(stage(&s, "b", 5));
    CHECK_OK(hear(&s, "east", 6, TB_VERSION_READY));
    CHECK_STATUS(stage(&s, "b", 5), TB_BAD_STATE);
    CHECK_OK(stage(&s, "b", 6));
    site_close(&s);
}

/* P8: a group is its owner's as long as it has a member; then its name is free. */
static void a_group_belongs_to_its_owner(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    come(&s, "a");
    come(&s, "b");
    come(&s, "c");
    CHECK_OK(join_as(&s, "a", "g", 0, 2, "rollout-*"));
    CHECK_STATUS(join_as(&s, "c", "g", 1, 2, "tombolo://east/worker/c"), TB_PEER_DENIED);
    CHECK_STATUS(join_as(&s, "c", "g", 1, 2, ""), TB_PEER_DENIED);
    CHECK_OK(join_as(&s, "b", "g", 1, 2, "rollout-*"));
    CHECK_STATUS(join_as(&s, "c", "g", 0, 2, "rollout"), TB_PEER_DENIED);
    const struct tb_name policy = name_of("policy"), g = name_of("g"), h = name_of("h");
    assert_string_equal(tb_catalog_group_owner(s.c, &policy, &g), "rollout-*");
    assert_null(tb_catalog_group_owner(s.c, &policy, &h));
    assert_null(tb_catalog_group_owner(s.c, &g, &g)); /* no such model */
    const struct tb_id a = session_of("a"), b = session_of("b");
    tb_catalog_session_close(s.c, s.now, &a);
    CHECK_STATUS(join_as(&s, "c", "g", 0, 2, "c"), TB_PEER_DENIED);
    tb_catalog_session_close(s.c, s.now, &b);
    CHECK_OK(join_as(&s, "c", "g", 0, 1, "c"));
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_members_word_moves_nobody_else),
        cmocka_unit_test(an_identity_that_becomes_known_is_the_groups),
        cmocka_unit_test(a_group_belongs_to_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

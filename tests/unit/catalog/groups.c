/* groups.c - tests of gateway/catalog/groups.c: P2, one whole version for all members,
 * and never backwards.
 *
 * Covers: gateway/catalog/groups.c gateway/catalog/rules/group_rules.c
 * Covers: gateway/catalog/rows/group_rows.c */
#include <string.h>

#include "check.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "site.h"

/* v4, v5 and v6 are whole here; a and b are the two members of g. */
static void engine(struct site *s)
{
    east_open(s, 8);
    s->left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS;
    come(s, "rank");
    come(s, "a");
    come(s, "b");
    CHECK_OK(run_open(s, "rank", "k", 100));
    for (uint64_t n = 4; n <= 6; n++)
        publish_whole(s, "rank", n);
    CHECK_OK(join(s, "a", "g", 0, 2));
    CHECK_OK(join(s, "b", "g", 1, 2));
    hush(s);
}

static void all_switch_to(struct site *s, uint64_t uid)
{
    CHECK_OK(staged(s, "a", uid));
    CHECK_OK(staged(s, "b", uid));
    switch_to(s, "a", uid);
    switch_to(s, "b", uid);
    hush(s);
}

/* P2 */
static void go_comes_once_all_have_it_whole(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(staged(&s, "a", 5));
    said(&s, "");
    CHECK_STATUS(activate(&s, "a", 5), TB_AGAIN);
    CHECK_OK(stage(&s, "b", 5));
    CHECK_OK(progress(&s, "b", 5, SHARD_CHUNKS - 1));
    CHECK_STATUS(activate(&s, "a", 5), TB_AGAIN);
    CHECK_STATUS(activate(&s, "b", 5), TB_AGAIN);
    said(&s, "");
    CHECK_OK(progress(&s, "b", 5, SHARD_CHUNKS));
    said(&s, "[   0] go a v5\n[   0] go b v5\n");
    /* After go nobody waits for anybody. */
    switch_to(&s, "a", 5);
    CHECK_OK(activate(&s, "a", 5)); /* P4 */
    switch_to(&s, "b", 5);
    said(&s, "");
    site_close(&s);
}

static void nobody_goes_without_the_missing_member(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
    come(&s, "rank");
    come(&s, "a");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    publish_whole(&s, "rank", 5);
    CHECK_OK(join(&s, "a", "g", 0, 2));
    CHECK_OK(staged(&s, "a", 5));
    CHECK_STATUS(activate(&s, "a", 5), TB_AGAIN);
    said(&s, "");
    site_close(&s);
}

/* P2, P10: lost before go: the attempt ends for all, and all are told. */
static void a_member_lost_before_go_ends_the_attempt(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(staged(&s, "a", 5));
    CHECK_OK(stage(&s, "b", 5));
    hush(&s);
    const struct tb_id b = session_of("b");
    tb_catalog_session_close(s.c, s.now, &b);
    said(&s, "[   0] tell a v5 group_broken\n");
    CHECK_STATUS(activate(&s, "a", 5), TB_GROUP_BROKEN);
    /* It comes back, and they try again, with what a has already. */
    come(&s, "b");
    CHECK_OK(join(&s, "b", "g", 1, 2));
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(staged(&s, "b", 5));
    said(&s, "[   0] go a v5\n[   0] go b v5\n");
    site_close(&s);
}

/* The twin: lost after go, it comes back at that uid, alone. */
static void a_member_lost_after_go_comes_back_at_that_uid(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(staged(&s, "a", 5));
    CHECK_OK(staged(&s, "b", 5));
    said(&s, "[   0] go a v5\n[   0] go b v5\n");
    const struct tb_id b = session_of("b");
    tb_catalog_session_close(s.c, s.now, &b);
    said(&s, "");
    switch_to(&s, "a", 5);
    come(&s, "b");
    CHECK_OK(join(&s, "b", "g", 1, 2));
    wait_for(&s, "b", TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    said(&s, "[   0] answer 1: v5 whole\n"); /* although 6 is newer */
    CHECK_STATUS(activate(&s, "b", 5), TB_BAD_STATE);
    CHECK_OK(stage(&s, "b", 5));
    CHECK_STATUS(activate(&s, "b", 5), TB_AGAIN);
    CHECK_OK(progress(&s, "b", 5, SHARD_CHUNKS));
    said(&s, "[   0] go b v5\n");
    switch_to(&s, "b", 5);
    wait_for(&s, "b", TB_CATALOG_WAIT_LATEST, 0, 5, 1000);
    said(&s, "[   0] answer 2: v6 whole\n");
    site_close(&s);
}

/* P2, P6: members that saw different heads meet at the one that was staged first. */
static void members_that_saw_different_heads_meet(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(stage(&s, "a", 5));
    const struct tb_id b = session_of("b"), v6 = id_of(6), v4 = id_of(4);
    struct tb_id instead;
    CHECK_STATUS(tb_catalog_stage(s.c, s.now, &b, 1, &v6, &instead), TB_CONFLICT);
    assert_memory_equal(&instead, &(struct tb_id){{5}}, sizeof instead);
    CHECK_STATUS(tb_catalog_stage(s.c, s.now, &b, 1, &v4, &instead), TB_CONFLICT);
    assert_memory_equal(&instead, &(struct tb_id){{5}}, sizeof instead);
    wait_for(&s, "b", TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    wait_for(&s, "rank", TB_CATALOG_WAIT_LATEST, 0, 0, 1000); /* not a member */
    said(&s, "[   0] answer 1: v5 whole\n[   0] answer 2: v6 whole\n");
    CHECK_OK(staged(&s, "b", 5));
    CHECK_OK(progress(&s, "a", 5, SHARD_CHUNKS));
    said(&s, "[   0] go a v5\n[   0] go b v5\n");
    site_close(&s);
}

/* Only what is here may replace what still crosses. */
static void a_newer_whole_one_replaces_an_attempt_that_still_crosses(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(version_open(&s, "rank", 7, 1, 7));
    CHECK_OK(seal(&s, "rank", 7, 0, 70));
    land(&s, 7, 0, 3);
    CHECK_OK(stage(&s, "a", 7));
    hush(&s);
    CHECK_STATUS(stage(&s, "b", 6), TB_CONFLICT); /* older: no */
    publish_whole(&s, "rank", 8);
    said(&s, "[   0] tell rank v8 kept\n"
             "[   0] tell a v7 superseded\n"); /* P6: nobody has to ask for it */
    CHECK_OK(stage(&s, "b", 8));
    CHECK_STATUS(activate(&s, "a", 7), TB_SUPERSEDED);
    publish_whole(&s, "rank", 9);
    hush(&s);
    CHECK_STATUS(stage(&s, "a", 9), TB_CONFLICT); /* 8 is here: it is finished first */
    CHECK_OK(staged(&s, "a", 8));
    CHECK_OK(progress(&s, "b", 8, SHARD_CHUNKS));
    said(&s, "[   0] go a v8\n[   0] go b v8\n");
    site_close(&s);
}

/* P2: not backwards... */
static void backwards_is_refused(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    all_switch_to(&s, 5);
    CHECK_STATUS(stage(&s, "a", 4), TB_BAD_STATE);
    CHECK_STATUS(activate(&s, "a", 4), TB_BAD_STATE);
    CHECK_OK(stage(&s, "a", 6));
    CHECK_STATUS(activate(&s, "a", 4), TB_BAD_STATE);
    site_close(&s);
}

/* ...unless an operator withdrew where it is. */
static void backwards_after_a_withdrawal(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    all_switch_to(&s, 6);
    const struct tb_id v6 = id_of(6);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v6, "ann"));
    hush(&s);
    CHECK_STATUS(activate(&s, "a", 6), TB_VERSION_WITHDRAWN);
    CHECK_STATUS(stage(&s, "a", 6), TB_VERSION_WITHDRAWN);
    wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 6, 1000);
    said(&s, "[   0] answer 1: v5 whole\n"); /* the newest other whole one */
    all_switch_to(&s, 5);
    CHECK_STATUS(stage(&s, "a", 4), TB_BAD_STATE); /* 5 stands */
    site_close(&s);
}

/* Withdrawn while some are there and some are not: one that is not does not go there. */
static void withdrawn_between_go_and_activate(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    all_switch_to(&s, 4);
    CHECK_OK(staged(&s, "a", 5));
    CHECK_OK(staged(&s, "b", 5));
    switch_to(&s, "a", 5);
    const struct tb_id v5 = id_of(5);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "ann"));
    CHECK_STATUS(activate(&s, "b", 5), TB_VERSION_WITHDRAWN);
    hush(&s);
    all_switch_to(&s, 6);
    site_close(&s);
}

/* A go is not taken back when the version's other copies are lost: staged bytes are whole and
 * verified. */
static void lost_after_go_may_still_be_activated(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(staged(&s, "a", 5));
    CHECK_OK(staged(&s, "b", 5));
    const struct tb_id v5 = id_of(5), rank = session_of("rank");
    CHECK_STATUS(tb_catalog_chunk_bad(s.c, s.now, &v5, 0, 1, &rank), TB_AGAIN);
    CHECK_STATUS(tb_catalog_chunk_bad(s.c, s.now, &v5, 0, 1, &rank), TB_VERSION_BROKEN);
    switch_to(&s, "a", 5);
    switch_to(&s, "b", 5);
    site_close(&s);
}

/* The twin: before go it ends the attempt with its own status. */
static void a_version_that_ends_before_go_ends_the_attempt(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(staged(&s, "a", 6));
    hush(&s);
    const struct tb_id v6 = id_of(6);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v6, "ann"));
    said(&s, "[   0] evict v6: version_withdrawn\n"
             "[   0] tell a v6 version_withdrawn\n"
             "[   0] tell rank v6 version_withdrawn\n");
    CHECK_STATUS(activate(&s, "a", 6), TB_VERSION_WITHDRAWN);
    CHECK_OK(stage(&s, "b", 5)); /* and another may begin */
    site_close(&s);
}

static void leaving_or_releasing_before_go_ends_the_attempt(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(staged(&s, "a", 5));
    CHECK_OK(stage(&s, "b", 5));
    const struct tb_id b = session_of("b"), v5 = id_of(5);
    CHECK_OK(tb_catalog_release(s.c, s.now, &b, &v5));
    said(&s, "[   0] tell a v5 group_broken\n");
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(tb_catalog_unsubscribe(s.c, s.now, &b, 1));
    said(&s, "[   0] tell a v5 group_broken\n");
    CHECK_STATUS(tb_catalog_unsubscribe(s.c, s.now, &b, 1), TB_NOT_FOUND);
    site_close(&s);
}

static void places_in_a_group_are_taken_once(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    come(&s, "c");
    CHECK_STATUS(join(&s, "c", "g", 1, 2), TB_CONFLICT); /* taken */
    CHECK_STATUS(join(&s, "c", "g", 1, 3), TB_CONFLICT); /* another count */
    CHECK_STATUS(join(&s, "c", "g", 2, 2), TB_BAD_ARGUMENT);
    CHECK_STATUS(join(&s, "c", "g", 0, 0), TB_BAD_ARGUMENT);
    CHECK_OK(join(&s, "a", "g", 0, 2));                  /* P4 */
    CHECK_STATUS(join(&s, "a", "h", 0, 2), TB_CONFLICT); /* the subscription is used */
    CHECK_OK(join(&s, "c", "h", 0, 1));
    site_close(&s);
}

/* Somebody calls himself b, from b's host, while b is away, and wants b's place. */
static enum tb_status take_the_place_of_b(struct site *s, const char *identity)
{
    const struct tb_id old = session_of("b");
    tb_catalog_session_detach(s->c, s->now, &old);
    struct tb_catalog_session q = {.id = id_of(77), .name = name_of("b"), .host = name_of("host-of-b")};
    strcpy(q.identity, identity);
    CHECK_OK(tb_catalog_session_open(s->c, s->now, &q));
    const struct tb_catalog_member m = {.session = q.id,
                                        .subscription = 1,
                                        .model = name_of("policy"),
                                        .group = name_of("g"),
                                        .index = 1,
                                        .count = 2};
    return tb_catalog_subscribe(s->c, s->now, &m);
}

/* A worker that was killed and started again need not wait for the lease of its former self. */
static void a_restarted_worker_takes_its_own_place(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(take_the_place_of_b(&s, "unix:1000"));
    said(&s, "[   0] lost b\n");
    site_close(&s);
}

/* P8: a name is anybody's word. With its session would go what b publishes, of models that the
 * other may not even read. */
static void a_namesake_takes_nobodys_place(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_STATUS(take_the_place_of_b(&s, "unix:1001"), TB_CONFLICT);
    said(&s, "");
    const struct tb_id b = session_of("b");
    CHECK_OK(tb_catalog_session_resume(s.c, s.now, &b, "unix:1000"));
    site_close(&s);
}

/* P3: a restarted catalog does not know who got go; the members do. */
static void a_members_version_is_the_groups(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
    come(&s, "rank");
    come(&s, "a");
    come(&s, "b");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    for (uint64_t n = 4; n <= 6; n++)
        publish_whole(&s, "rank", n);
    CHECK_OK(join_active(&s, "b", "g", 1, 2, 4)); /* had not switched yet */
    CHECK_OK(join_active(&s, "a", "g", 0, 2, 5));
    wait_for(&s, "b", TB_CATALOG_WAIT_LATEST, 0, 4, 1000);
    said(&s, "[   0] answer 1: v5 whole\n");
    CHECK_OK(staged(&s, "b", 5));
    said(&s, "[   0] go b v5\n");
    switch_to(&s, "b", 5);
    /* And one that activated what it had go for while the catalog was away says so afterwards. */
    CHECK_OK(staged(&s, "a", 6));
    CHECK_OK(activated(&s, "a", 6));
    CHECK_OK(staged(&s, "b", 6));
    said(&s, "[   0] go a v6\n[   0] go b v6\n");
    site_close(&s);
}

/* P2: after a reboot the catalog has not heard of v6 yet, which its worker computes from: that
 * one says how new it is. */
static void a_catalog_that_forgot_takes_nobody_back(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
    come(&s, "rank");
    come(&s, "a");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    publish_whole(&s, "rank", 5);
    CHECK_OK(join_active(&s, "a", "g", 0, 1, 6));
    CHECK_STATUS(stage(&s, "a", 5), TB_BAD_STATE);
    publish_whole(&s, "rank", 7);
    CHECK_OK(staged(&s, "a", 7));
    said(&s, "[   0] go a v7\n");
    switch_to(&s, "a", 7);
    CHECK_OK(activated(&s, "a", 9)); /* told after the fact */
    publish_whole(&s, "rank", 8);
    CHECK_STATUS(stage(&s, "a", 8), TB_BAD_STATE);
    site_close(&s);
}

static void in_the_way(struct site *s, const char *name, uint64_t uid, enum tb_catalog_obstacle kind,
                       uint64_t number)
{
    const struct tb_id session = session_of(name), id = id_of(uid);
    const struct tb_catalog_obstacle_view o = tb_catalog_obstacle_of(s->c, &session, 1, &id);
    assert_int_equal(o.kind, kind);
    assert_int_equal(o.number, number);
    assert_string_equal(o.group.text, kind == TB_OBSTACLE_NONE ? "" : "g");
}

/* P10: a worker that is refused with bad_state hears what stands in the way, and by what way it
 * goes on. */
static void bad_state_has_a_reason(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    in_the_way(&s, "rank", 5, TB_OBSTACLE_NONE, 0);
    CHECK_STATUS(activate(&s, "a", 5), TB_BAD_STATE);
    in_the_way(&s, "a", 5, TB_OBSTACLE_NOT_STAGED, 0);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_STATUS(activate(&s, "b", 4), TB_BAD_STATE);
    in_the_way(&s, "b", 4, TB_OBSTACLE_ATTEMPT, 5);
    all_switch_to(&s, 5);
    all_switch_to(&s, 6);
    CHECK_STATUS(activate(&s, "a", 5), TB_BAD_STATE);
    in_the_way(&s, "a", 5, TB_OBSTACLE_NEWER, 6);
    /* Withdrawn, and back: 5 is staged still, but the member was counted for 6 last. */
    const struct tb_id v6 = id_of(6);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v6, "ann"));
    hush(&s);
    CHECK_STATUS(activate(&s, "a", 5), TB_BAD_STATE);
    in_the_way(&s, "a", 5, TB_OBSTACLE_STAGED, 6);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(stage(&s, "b", 5));
    switch_to(&s, "a", 5);
    switch_to(&s, "b", 5);
    site_close(&s);
}

static uint32_t activated_count(struct site *s)
{
    uint32_t cursor = 0;
    struct tb_catalog_group_view view;
    assert_true(tb_catalog_group_at(s->c, &cursor, &view));
    return view.activated;
}

/* P2: a switch failed in its middle: its buffers are counted as no version, and the
 * group is not taken back. */
static void a_member_that_computes_from_nothing_says_so(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
    come(&s, "rank");
    come(&s, "a");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    for (uint64_t n = 4; n <= 5; n++)
        publish_whole(&s, "rank", n);
    CHECK_OK(join(&s, "a", "g", 0, 1));
    CHECK_OK(staged(&s, "a", 5));
    switch_to(&s, "a", 5);
    hush(&s);
    assert_int_equal(activated_count(&s), 1);
    CHECK_OK(join_active(&s, "a", "g", 0, 1, 0));
    assert_int_equal(activated_count(&s), 0);
    CHECK_STATUS(stage(&s, "a", 4), TB_BAD_STATE);
    CHECK_OK(stage(&s, "a", 5));
    switch_to(&s, "a", 5);
    assert_int_equal(activated_count(&s), 1);
    site_close(&s);
}

/* P2: a member that comes back with an older version does not take its group there. */
static void a_member_that_is_behind_takes_nobody_back(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
    come(&s, "rank");
    come(&s, "a");
    come(&s, "b");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    for (uint64_t n = 4; n <= 5; n++)
        publish_whole(&s, "rank", n);
    CHECK_OK(join_active(&s, "a", "g", 0, 2, 5));
    CHECK_OK(join_active(&s, "b", "g", 1, 2, 4));
    CHECK_STATUS(activate(&s, "b", 4), TB_BAD_STATE);
    CHECK_STATUS(stage(&s, "a", 4), TB_BAD_STATE);
    CHECK_OK(staged(&s, "b", 5));
    said(&s, "[   0] go b v5\n");
    site_close(&s);
}

/* The state of the two members in one seed of chance. */
struct chance {
    uint64_t active[2];
    bool whole[2][8]; /* said so, in this life of the member */
    bool both_had[8]; /* at the same time */
    uint32_t activations;
};

static void chance_activates(struct site *s, struct chance *k, uint32_t who, uint64_t uid)
{
    const char *const names[] = {"a", "b"};
    if (activate(s, names[who], uid) != TB_OK) return;
    CHECK_OK(activated(s, names[who], uid));
    assert_true(uid >= k->active[who]); /* never backwards */
    assert_true(k->both_had[uid]);      /* never what the other could not switch to */
    k->active[who] = uid;
    k->activations++;
}

static void chance_dies(struct site *s, struct chance *k, uint32_t who)
{
    const char *const names[] = {"a", "b"};
    const struct tb_id id = session_of(names[who]);
    tb_catalog_session_close(s->c, s->now, &id);
    come(s, names[who]);
    CHECK_OK(join_active(s, names[who], "g", who, 2, k->active[who]));
    for (uint32_t uid = 4; uid <= 6; uid++)
        k->whole[who][uid] = false;
}

static void chance_step(struct site *s, struct chance *k, uint64_t r)
{
    const char *const names[] = {"a", "b"};
    const uint32_t who = (uint32_t)(r & 1);
    const uint64_t uid = 4 + (r >> 1) % 3;
    const uint32_t what = (r >> 8) % 20;
    if (what < 8)
        (void)!stage(s, names[who], uid);
    else if (what < 13 && progress(s, names[who], uid, SHARD_CHUNKS) == TB_OK)
        k->whole[who][uid] = true;
    else if (what < 19)
        chance_activates(s, k, who, uid);
    else
        chance_dies(s, k, who);
    k->both_had[uid] = k->both_had[uid] || (k->whole[0][uid] && k->whole[1][uid]);
    hush(s);
}

/* P2 over chance: whatever two members do, none computes from what the other could not switch
 * to, and none goes back. */
static void random_members_never_mix(void **state)
{
    (void)state;
    uint32_t activations = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct site s;
        struct chance k = {.activations = 0};
        engine(&s);
        uint64_t random = seed;
        for (uint32_t step = 0; step < 80; step++)
            chance_step(&s, &k, check_random(&random));
        site_close(&s);
        activations += k.activations;
    }
    assert_true(activations > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(go_comes_once_all_have_it_whole),
        cmocka_unit_test(nobody_goes_without_the_missing_member),
        cmocka_unit_test(a_member_lost_before_go_ends_the_attempt),
        cmocka_unit_test(a_member_lost_after_go_comes_back_at_that_uid),
        cmocka_unit_test(members_that_saw_different_heads_meet),
        cmocka_unit_test(a_newer_whole_one_replaces_an_attempt_that_still_crosses),
        cmocka_unit_test(backwards_is_refused),
        cmocka_unit_test(backwards_after_a_withdrawal),
        cmocka_unit_test(withdrawn_between_go_and_activate),
        cmocka_unit_test(lost_after_go_may_still_be_activated),
        cmocka_unit_test(a_version_that_ends_before_go_ends_the_attempt),
        cmocka_unit_test(leaving_or_releasing_before_go_ends_the_attempt),
        cmocka_unit_test(places_in_a_group_are_taken_once),
        cmocka_unit_test(a_restarted_worker_takes_its_own_place),
        cmocka_unit_test(a_namesake_takes_nobodys_place),
        cmocka_unit_test(a_members_version_is_the_groups),
        cmocka_unit_test(a_catalog_that_forgot_takes_nobody_back),
        cmocka_unit_test(a_member_that_is_behind_takes_nobody_back),
        cmocka_unit_test(a_member_that_computes_from_nothing_says_so),
        cmocka_unit_test(bad_state_has_a_reason),
        cmocka_unit_test(random_members_never_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

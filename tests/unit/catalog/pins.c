/* pins.c - tests of an operator's pin: which version readers of the site are offered, how they go
 * back to an older one, and that a restart keeps the pin (P2, P3, P10).
 *
 * Covers: gateway/catalog/versions.c gateway/catalog/groups.c gateway/catalog/rules/group_rules.c
 * Covers: gateway/catalog/rules/wait_rules.c gateway/catalog/rules/crossing_rules.c
 * Covers: gateway/catalog/rows/version_rows.c */
#include <string.h>

#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/waiters.h"
#include "gateway/catalog/workers.h"
#include "site.h"

/* v4, v5 and v6 are whole here; a and b are the two members of g. */
static void engine(struct site *s)
{
    east_open(s, 8);
    s->left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
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

static enum tb_status pin(struct site *s, uint64_t uid, bool pinned)
{
    const struct tb_id id = id_of(uid);
    return tb_catalog_pin(s->c, s->now, &id, pinned, "ann");
}

static bool goes_back(const struct site *s, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    return tb_catalog_pin_goes_back(s->c, &id);
}

static uint64_t pinned_of(const struct site *s)
{
    const struct tb_name policy = name_of("policy");
    struct tb_id uid;
    if (!tb_catalog_pinned(s->c, &policy, &uid)) return 0;
    for (uint64_t n = 1; n < 100; n++) {
        const struct tb_id id = id_of(n);
        if (tb_id_equal(&id, &uid)) return n;
    }
    return UINT64_MAX;
}

static void all_switch_to(struct site *s, uint64_t uid)
{
    CHECK_OK(staged(s, "a", uid));
    CHECK_OK(staged(s, "b", uid));
    switch_to(s, "a", uid);
    switch_to(s, "b", uid);
    hush(s);
}

/* P2: newer versions come, and no reader hears of them until the pin is gone. */
static void a_newer_version_is_not_offered(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(pin(&s, 5, true));
    CHECK_STATUS(pin(&s, 5, true), TB_DONE_BEFORE);
    publish_whole(&s, "rank", 7);
    hush(&s);
    assert_string_equal(state_of(&s, 7), "kept");
    const uint64_t latest = wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    said(&s, "[   0] answer 1: v5 whole\n");
    wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 5, 100000);
    wait_for(&s, "a", TB_CATALOG_WAIT_NEXT, 0, 5, 1000);
    wait_for(&s, "a", TB_CATALOG_WAIT_EXACT, 7, 0, 1000);
    wait_for(&s, "a", TB_CATALOG_WAIT_MINIMUM, 6, 0, 1000);
    said(&s, "");
    wait_for(&s, "a", TB_CATALOG_WAIT_EXACT, 4, 0, 1000); /* asked for by its number, it is no newer one */
    said(&s, "[   0] answer 6: v4 whole\n");
    assert_int_equal(latest, 1);
    struct tb_id instead;
    const struct tb_id a = session_of("a"), v7 = id_of(7), v5 = id_of(5);
    CHECK_STATUS(tb_catalog_stage(s.c, s.now, &a, 1, &v7, &instead), TB_CONFLICT);
    assert_true(tb_id_equal(&instead, &v5));
    all_switch_to(&s, 5);
    CHECK_OK(pin(&s, 5, false));
    s.trace[0] = 0;
    drain(&s);
    assert_non_null(strstr(s.trace, "answer 2: v7 whole"));
    assert_non_null(strstr(s.trace, "answer 4: v7 whole"));
    hush(&s);
    all_switch_to(&s, 7);
    site_close(&s);
}

/* P2: the group uses v6. An operator pins v5: both members go back to it together. */
static void a_group_goes_back_together(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    all_switch_to(&s, 6);
    assert_true(goes_back(&s, 5));
    assert_false(goes_back(&s, 6));
    wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 6, 1000);
    said(&s, "");
    CHECK_OK(pin(&s, 5, true));
    said(&s, "[   0] answer 1: v5 whole\n");
    CHECK_OK(activate(&s, "a", 6)); /* it is there already */
    CHECK_OK(staged(&s, "a", 5));
    CHECK_STATUS(activate(&s, "a", 5), TB_AGAIN);
    CHECK_STATUS(stage(&s, "b", 6), TB_CONFLICT);
    CHECK_OK(staged(&s, "b", 5));
    said(&s, "[   0] go a v5\n[   0] go b v5\n");
    switch_to(&s, "a", 5);
    switch_to(&s, "b", 5);
    CHECK_STATUS(stage(&s, "a", 4), TB_BAD_STATE); /* 5 stands */
    site_close(&s);
}

/* P2: the group gives a newer version up that it stages, before go and after it. */
static void a_newer_version_that_is_staged_is_given_up(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    all_switch_to(&s, 4);
    CHECK_OK(staged(&s, "a", 6));
    assert_true(goes_back(&s, 5));
    CHECK_OK(pin(&s, 5, true));
    CHECK_STATUS(activate(&s, "a", 6), TB_SUPERSEDED);
    CHECK_STATUS(stage(&s, "b", 6), TB_CONFLICT);
    all_switch_to(&s, 5);
    CHECK_OK(pin(&s, 5, false));
    CHECK_OK(staged(&s, "a", 6));
    CHECK_OK(staged(&s, "b", 6));
    switch_to(&s, "a", 6);
    CHECK_OK(pin(&s, 4, true)); /* b has its go, and has not switched */
    CHECK_STATUS(activate(&s, "b", 6), TB_SUPERSEDED);
    hush(&s);
    all_switch_to(&s, 4);
    site_close(&s);
}

/* P2: the way back ends with the pin. A group that has not gone back yet stays. */
static void a_way_back_that_is_called_off(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    all_switch_to(&s, 6);
    CHECK_OK(pin(&s, 5, true));
    CHECK_OK(staged(&s, "a", 5));
    CHECK_OK(pin(&s, 5, false));
    CHECK_STATUS(stage(&s, "b", 5), TB_BAD_STATE);
    CHECK_STATUS(activate(&s, "a", 5), TB_SUPERSEDED);
    CHECK_OK(stage(&s, "a", 6));
    hush(&s);
    wait_for(&s, "b", TB_CATALOG_WAIT_LATEST, 0, 6, 0);
    said(&s, "[   0] answer 1: again\n");
    site_close(&s);
}

/* P2: workers come back after a restart with a newer version than the pinned one. */
static void members_that_come_with_a_newer_version_go_back(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(pin(&s, 5, true));
    come(&s, "c");
    CHECK_OK(join_active(&s, "c", "h", 0, 1, 6));
    wait_for(&s, "c", TB_CATALOG_WAIT_LATEST, 0, 6, 1000);
    said(&s, "[   0] answer 1: v5 whole\n");
    CHECK_OK(staged(&s, "c", 5));
    switch_to(&s, "c", 5);
    site_close(&s);
}

/* One pin of a model; another takes its place. P3: none of them is taken by retention. */
static void a_model_has_one_pin(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    assert_int_equal(pinned_of(&s), 0);
    CHECK_OK(pin(&s, 4, true));
    s.left_out &= ~NOT_STORE;
    s.left_out |= 1u << TB_CATALOG_PERSIST_VERSION | 1u << TB_CATALOG_PERSIST_RUN;
    hush(&s);
    CHECK_OK(pin(&s, 5, true));
    said(&s, "[   0] store pin v5\n");
    assert_int_equal(pinned_of(&s), 5);
    CHECK_STATUS(pin(&s, 4, false), TB_DONE_BEFORE);
    CHECK_OK(pin(&s, 5, false));
    said(&s, "[   0] store unpin v5\n");
    assert_int_equal(pinned_of(&s), 0);
    site_close(&s);
}

static void a_version_that_is_not_whole_here_is_not_pinned(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    CHECK_OK(version_open(&s, "rank", 7, 1, 7));
    CHECK_STATUS(pin(&s, 7, true), TB_BAD_STATE);
    CHECK_STATUS(pin(&s, 99, true), TB_NOT_FOUND);
    const struct tb_id v6 = id_of(6);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v6, "ann"));
    CHECK_STATUS(pin(&s, 6, true), TB_VERSION_WITHDRAWN);
    assert_int_equal(pinned_of(&s), 0);
    site_close(&s);
}

/* P2: the pinned version is withdrawn. Nothing is offered until an operator pins another. */
static void a_pin_outlives_its_version(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    const struct tb_id v5 = id_of(5);
    CHECK_OK(pin(&s, 5, true));
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "ann"));
    hush(&s);
    assert_int_equal(pinned_of(&s), 5);
    wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    said(&s, "");
    CHECK_OK(pin(&s, 4, true));
    said(&s, "[   0] answer 1: v4 whole\n");
    site_close(&s);
}

/* P3: a restart keeps the pin and its operator, and nothing newer is offered behind it. */
static void a_restart_keeps_the_pin(void **state)
{
    (void)state;
    struct site s;
    engine(&s);
    struct tb_catalog_version_view v5, v6;
    const struct tb_id five = id_of(5), six = id_of(6);
    assert_true(tb_catalog_version_get(s.c, &five, &v5) && tb_catalog_version_get(s.c, &six, &v6));
    east_reopen(&s, 8);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PLANS | NOT_PEERS | NOT_TELL;
    CHECK_OK(tb_catalog_restore_version(s.c, &v5.key, TB_VERSION_KEPT, v5.bytes, true));
    CHECK_OK(tb_catalog_restore_version(s.c, &v6.key, TB_VERSION_KEPT, v6.bytes, false));
    assert_true(tb_catalog_restore_pinned_by(s.c, &five, "ann"));
    assert_false(tb_catalog_restore_pinned_by(s.c, &six, "ann"));
    assert_int_equal(pinned_of(&s), 5);
    assert_true(tb_catalog_version_get(s.c, &five, &v5) && v5.pinned);
    assert_string_equal(v5.pinned_by, "ann");
    come(&s, "rank");
    CHECK_OK(seal(&s, "rank", 6, 0, 6));
    land(&s, 6, 0, SHARD_CHUNKS);
    hush(&s);
    wait_for(&s, NULL, TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    said(&s, "");
    CHECK_OK(seal(&s, "rank", 5, 0, 5));
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] answer 1: v5 whole\n");
    site_close(&s);
}

/* P3: the arena went with a reboot. The pinned version comes back first, behind a newer one too. */
static void a_pinned_version_crosses_again_first(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_version_view v1;
    west_follows(&s);
    CHECK_OK(hear(&s, "east", 1, TB_VERSION_READY));
    cross_whole(&s, 1);
    const struct tb_id one = id_of(1);
    assert_true(tb_catalog_version_get(s.c, &one, &v1));
    site_close(&s);
    west_follows(&s);
    CHECK_OK(tb_catalog_restore_version(s.c, &v1.key, TB_VERSION_KEPT, v1.bytes, true));
    CHECK_OK(hear(&s, "east", 2, TB_VERSION_READY));
    CHECK_OK(hear(&s, "east", 1, TB_VERSION_READY));
    s.trace[0] = 0;
    drain(&s);
    assert_null(strstr(s.trace, "cross v2"));
    assert_non_null(strstr(s.trace, "cross v1"));
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newer_version_is_not_offered),
        cmocka_unit_test(a_group_goes_back_together),
        cmocka_unit_test(a_newer_version_that_is_staged_is_given_up),
        cmocka_unit_test(a_way_back_that_is_called_off),
        cmocka_unit_test(members_that_come_with_a_newer_version_go_back),
        cmocka_unit_test(a_model_has_one_pin),
        cmocka_unit_test(a_version_that_is_not_whole_here_is_not_pinned),
        cmocka_unit_test(a_pin_outlives_its_version),
        cmocka_unit_test(a_restart_keeps_the_pin),
        cmocka_unit_test(a_pinned_version_crosses_again_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

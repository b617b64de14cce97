/* store_audit.c - the audit record in the store: summed, listed, and let go by share and by age.
 * Covers: gateway/store/store_audit.c gateway/store/store.c */
#include "gateway/store/store_audit.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "store_world.h"

static struct tb_audit_record row(enum tb_audit_share share, const char *action, const char *identity,
                                  const char *object)
{
    struct tb_audit_record r = {.wall_ms = tb_clock_wall_ms(), .share = share, .count = 1};
    snprintf(r.action, sizeof r.action, "%s", action);
    snprintf(r.identity, sizeof r.identity, "%s", identity);
    snprintf(r.object, sizeof r.object, "%s", object);
    snprintf(r.result, sizeof r.result, "ok");
    return r;
}

static struct tb_audit_query *list(struct tb_store *store, const struct tb_audit_query *of)
{
    static struct tb_audit_query q;
    q = *of;
    assert_int_equal(tb_store_audit_list(store, &q), TB_OK);
    return &q;
}

/* Rows of a minute that agree in all but their time are one row with a count; acts never are. */
static void equal_rows_of_a_minute_are_one(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    struct tb_audit_record r = row(TB_AUDIT_DENIALS, "read", "unix:7", "policy");
    r.minute = 5;
    r.count = 3;
    assert_int_equal(tb_store_audit(store, &r), TB_OK);
    assert_int_equal(tb_store_audit(store, &r), TB_OK);
    r.minute = 6;
    assert_int_equal(tb_store_audit(store, &r), TB_OK);
    const struct tb_audit_record act = row(TB_AUDIT_ACTS, "pin", "ann (uid 1000)", "policy 1:2");
    assert_int_equal(tb_store_audit(store, &act), TB_OK);
    assert_int_equal(tb_store_audit(store, &act), TB_OK);
    const struct tb_audit_query *q = list(store, &(struct tb_audit_query){.most = 10});
    assert_int_equal(q->count, 4);
    assert_string_equal(q->rows[0].action, "pin");
    assert_true(q->rows[0].id > q->rows[1].id);
    assert_int_equal(q->rows[2].count, 3);
    assert_int_equal(q->rows[3].count, 6);
    tb_store_close(store);
}

static void rows_are_found_by_action_identity_time_and_page(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    for (int i = 0; i < 6; i++) {
        struct tb_audit_record r =
            row(TB_AUDIT_ACTS, i % 2 == 0 ? "pin" : "unpin", i < 3 ? "ann" : "bob", "m");
        r.wall_ms = 1000 + (uint64_t)i;
        tb_store_audit_bounds(store, 16u << 20, 36500);
        assert_int_equal(tb_store_audit(store, &r), TB_OK);
    }
    assert_int_equal(list(store, &(struct tb_audit_query){.most = 10, .action = "unpin"})->count, 3);
    assert_int_equal(list(store, &(struct tb_audit_query){.most = 10, .identity = "bo"})->count, 3);
    assert_int_equal(list(store, &(struct tb_audit_query){.most = 10, .since_wall_ms = 1004})->count, 2);
    const struct tb_audit_query *q = list(store, &(struct tb_audit_query){.most = 4});
    assert_int_equal(q->count, 4);
    q = list(store, &(struct tb_audit_query){.most = 4, .before_id = q->rows[3].id});
    assert_int_equal(q->count, 2);
    assert_int_equal(q->rows[1].wall_ms, 1000);
    tb_store_close(store);
}

/* P7: a share that is full loses its oldest rows, and no other share loses one. */
static void denials_push_out_no_acts(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    tb_store_audit_bounds(store, 64 << 10, 400);
    const struct tb_audit_record act = row(TB_AUDIT_ACTS, "withdraw", "ann", "policy 1:1");
    assert_int_equal(tb_store_audit(store, &act), TB_OK);
    for (uint64_t i = 0; i < 1000; i++) {
        struct tb_audit_record r = row(TB_AUDIT_DENIALS, "read", "unix:7", "policy");
        r.minute = i + 1;
        assert_int_equal(tb_store_audit(store, &r), TB_OK);
        if (i % 100 == 0) assert_true(store_ask("SELECT SUM(bytes) FROM record WHERE share=2") <= 16 << 10);
    }
    assert_int_equal(store_ask("SELECT COUNT(*) FROM record WHERE share=0"), 1);
    assert_true(store_ask("SELECT SUM(bytes) FROM record WHERE share=2") > 13 << 10);
    assert_int_equal(store_ask("SELECT MAX(minute) FROM record"), 1000);
    tb_store_close(store);
    store = store_open_good(); /* what an earlier process wrote counts, too */
    tb_store_audit_bounds(store, 32 << 10, 400);
    struct tb_audit_record r = row(TB_AUDIT_DENIALS, "read", "unix:7", "policy");
    assert_int_equal(tb_store_audit(store, &r), TB_OK);
    assert_true(store_ask("SELECT SUM(bytes) FROM record WHERE share=2") <= 8 << 10);
    tb_store_close(store);
}

static void rows_that_are_too_old_go(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    tb_store_audit_bounds(store, 1 << 20, 2);
    struct tb_audit_record r = row(TB_AUDIT_ACTS, "pin", "ann", "policy 1:1");
    assert_int_equal(tb_store_audit(store, &r), TB_OK);
    tb_store_close(store);
    store_ask("UPDATE record SET wall_ms = wall_ms - 3*86400000");
    store = store_open_good();
    tb_store_audit_bounds(store, 1 << 20, 2);
    assert_int_equal(tb_store_audit(store, &r), TB_OK);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM record"), 1);
    tb_store_close(store);
}

struct told {
    char keys[256];
};

static void hear(void *user, const char *key)
{
    struct told *t = user;
    strncat(t->keys, key, sizeof t->keys - strlen(t->keys) - 2);
    strcat(t->keys, " ");
}

/* The first start tells none; then those that are new, another or gone. */
static void settings_that_changed_are_told(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    struct tb_store_setting s[] = {{"a", "1"}, {"b", NULL}, {"c", "3"}};
    struct told t = {""};
    assert_int_equal(tb_store_settings(store, s, 3, hear, &t), TB_OK);
    assert_int_equal(tb_store_settings(store, s, 3, hear, &t), TB_OK);
    assert_string_equal(t.keys, "");
    s[1].value = "2";
    snprintf(s[2].key, sizeof s[2].key, "d");
    assert_int_equal(tb_store_settings(store, s, 3, hear, &t), TB_OK);
    assert_string_equal(t.keys, "b d c ");
    tb_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(equal_rows_of_a_minute_are_one),
        STORE_TEST(rows_are_found_by_action_identity_time_and_page),
        STORE_TEST(denials_push_out_no_acts),
        STORE_TEST(rows_that_are_too_old_go),
        STORE_TEST(settings_that_changed_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

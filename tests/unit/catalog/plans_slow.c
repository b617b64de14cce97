/* plans_slow.c - tests of gateway/catalog/rules/plans.c: a worker slower than the others becomes a
 * leaf, and holds nobody up (P6).
 *
 * Covers: gateway/catalog/rules/plans.c gateway/catalog/rows/source_links.c */
#include "check.h"
#include "gateway/catalog/workers.h"
#include "plans_scene.h"

/* gateway - a - b - c; a reads 10,000 bytes a second, which are eight chunks in 80 ms, b and c
 * `rate`. */
static void chain_with_a_brake(struct site *s, uint64_t rate)
{
    const char *const names[] = {"a", "b", "c"};
    spread(s);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(stage(s, names[i], 5));
        CHECK_OK(export_of(s, names[i], 5, 0));
    }
    hush(s);
    for (uint32_t held = 1; held < SHARD_CHUNKS - 3; held++) {
        s->now += TB_MS(20);
        CHECK_OK(progress_at(s, "a", 5, held, 10000));
        CHECK_OK(progress_at(s, "b", 5, held, rate));
        CHECK_OK(progress_at(s, "c", 5, held, rate)); /* held up by b, and not to be blamed */
    }
}

/* P6: a worker that holds up those behind it becomes a leaf: its reader takes its place, and it
 * comes behind that one; nobody else moves. */
static void a_slow_worker_becomes_a_leaf(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 4000);
    said(&s, "[ 120] plan c v5 from a\n"
             "[ 120] plan b v5 from c\n");
    assert_true(slow(&s, "b"));
    assert_false(slow(&s, "c"));
    site_close(&s);
}

/* P6: the source of a worker has stopped, which first looks like slowness of the worker. The
 * worker that is to take its place is not taken in there, so it stays. When it notices, it goes
 * on at once, and not behind the other, which still waits for an answer. */
static void nobody_is_put_behind_a_waiter_for_the_stopped(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 4000);
    s.stopped = "a";
    said(&s, "[ 120] plan c v5 from a\n");
    CHECK_OK(hop_lost(&s, "b", plan_of(&s, "b")));
    said(&s, "[ 120] plan b v5 from gateway\n");
    CHECK_OK(hop_lost(&s, "c", plan_of(&s, "c"))); /* no answer came */
    said(&s, "[ 120] plan c v5 from gateway\n");   /* b counts as slow */
    site_close(&s);
}

/* The twin: a worker that had stopped goes on and answers, late. */
static void a_slow_worker_goes_behind_a_late_one(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 4000);
    s.stopped = "a";
    said(&s, "[ 120] plan c v5 from a\n");
    const struct tb_id c = session_of("c"), v5 = id_of(5);
    CHECK_STATUS(tb_catalog_plan_told(s.c, s.now, &c, &v5, plan_of(&s, "c") - 1), TB_DONE_BEFORE); /* P4 */
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    CHECK_OK(stage(&s, "d", 5));
    said(&s, "[ 120] plan d v5 from c\n"); /* which says nothing of a */
    CHECK_OK(tb_catalog_plan_told(s.c, s.now, &c, &v5, plan_of(&s, "c")));
    CHECK_OK(export_of(&s, "d", 5, 0));
    said(&s, "[ 120] plan b v5 from d\n");
    CHECK_OK(tb_catalog_plan_told(s.c, s.now, &c, &v5, plan_of(&s, "c")));
    said(&s, "");
    site_close(&s);
}

/* P6: nothing gets to it any more, although its session is alive: it does not keep the
 * rate that it told last. */
static void a_worker_that_gets_nothing_becomes_a_leaf(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 10000);
    for (uint32_t held = 7; held < 9; held++) {
        said(&s, "");
        s.now += TB_MS(50);
        CHECK_OK(progress_at(&s, "a", 5, held, 10000));
        CHECK_OK(progress_at(&s, "b", 5, 6, 0));
        CHECK_OK(progress_at(&s, "c", 5, 6, 0));
    }
    said(&s, "[ 220] plan c v5 from a\n"
             "[ 220] plan b v5 from c\n");
    assert_true(slow(&s, "b"));
    site_close(&s);
}

/* The twin: there is nothing more for them. */
static void a_worker_that_waits_for_its_source_is_not_slow(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 10000);
    land(&s, 5, 0, 6);
    for (uint32_t times = 0; times < 10; times++) {
        s.now += TB_SECONDS(1);
        CHECK_OK(progress_at(&s, "b", 5, 6, 0)); /* before the others have said so */
        CHECK_OK(progress_at(&s, "c", 5, 6, 0));
        CHECK_OK(progress_at(&s, "a", 5, 6, 0));
    }
    land(&s, 5, 0, 8);
    s.now += TB_MS(10);
    CHECK_OK(progress_at(&s, "a", 5, 8, 10000));
    s.now += TB_MS(500);
    CHECK_OK(progress_at(&s, "b", 5, 7, 200)); /* it came down the chain in that time */
    said(&s, "");
    assert_false(slow(&s, "a") || slow(&s, "b") || slow(&s, "c"));
    site_close(&s);
}

/* P6: it is one of the next version too, from the beginning; unless it kept up with one. */
static void a_worker_that_was_slow_begins_as_a_leaf(void **state)
{
    (void)state;
    for (uint32_t forgiven = 0; forgiven < 2; forgiven++) {
        struct site s;
        chain_with_a_brake(&s, 4000);
        if (forgiven)
            for (uint32_t held = SHARD_CHUNKS - 3; held < SHARD_CHUNKS - 1; held++, s.now += TB_MS(20))
                CHECK_OK(progress_at(&s, "b", 5, held, 5000));
        const char *const names[] = {"a", "b", "c"};
        for (uint32_t i = 0; i < 3; i++) {
            const struct tb_id session = session_of(names[i]), v5 = id_of(5);
            CHECK_OK(tb_catalog_release(s.c, s.now, &session, &v5));
        }
        CHECK_OK(version_open(&s, "rank", 6, 1, 6));
        CHECK_OK(seal(&s, "rank", 6, 0, 60));
        land(&s, 6, 0, 4);
        hush(&s);
        s.left_out = ~(1u << TB_CATALOG_PLAN);
        CHECK_OK(stage(&s, "b", 6));
        CHECK_OK(export_of(&s, "b", 6, 0));
        CHECK_OK(stage(&s, "c", 6));
        said(&s, forgiven ? "[ 160] plan b v6 from gateway\n"
                            "[ 160] plan c v6 from b\n"
                          : "[ 120] plan b v6 from gateway\n"
                            "[ 120] plan c v6 from gateway\n");
        for (uint32_t times = 0; times < 2; times++, s.now += TB_SECONDS(1))
            CHECK_OK(progress_at(&s, "b", 6, 0, 0)); /* which is nothing to be forgiven for */
        const struct tb_id b = session_of("b"), v6 = id_of(6);
        CHECK_OK(tb_catalog_release(s.c, s.now, &b, &v6));
        CHECK_OK(stage(&s, "b", 6));
        assert_int_equal(slow(&s, "b"), !forgiven);
        site_close(&s);
    }
}

/* The twin: half of what the others do is not slow. */
static void a_worker_that_keeps_up_stays(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 6000);
    said(&s, "");
    assert_false(slow(&s, "b"));
    site_close(&s);
}

/* P6: one bad word makes no leaf, also where nobody had time to look at the word before it. */
static void a_word_that_nobody_looked_at_counts_for_nothing(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 10000); /* until 120 ms all is well */
    s.now += TB_MS(30);
    CHECK_OK(progress_at(&s, "c", 5, 7, 4000)); /* it is looked at */
    CHECK_OK(progress_at(&s, "b", 5, 7, 4000)); /* and this one is not, so soon after */
    s.now += TB_MS(60); /* eight chunks take the others 80 ms: 90 have gone by, and it has told of 60 */
    CHECK_OK(progress_at(&s, "b", 5, 8, 4000));
    assert_false(slow(&s, "b"));
    s.now += TB_MS(30);
    CHECK_OK(progress_at(&s, "b", 5, 9, 4000));
    assert_true(slow(&s, "b"));
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_worker_becomes_a_leaf),
        cmocka_unit_test(nobody_is_put_behind_a_waiter_for_the_stopped),
        cmocka_unit_test(a_slow_worker_goes_behind_a_late_one),
        cmocka_unit_test(a_worker_that_gets_nothing_becomes_a_leaf),
        cmocka_unit_test(a_worker_that_waits_for_its_source_is_not_slow),
        cmocka_unit_test(a_worker_that_was_slow_begins_as_a_leaf),
        cmocka_unit_test(a_worker_that_keeps_up_stays),
        cmocka_unit_test(a_word_that_nobody_looked_at_counts_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

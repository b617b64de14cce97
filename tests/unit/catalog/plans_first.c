/* plans_first.c - tests of gateway/catalog/rules/plans.c: the first of a chain, at whose rate all
 * others read, is tried (P6).
 *
 * Covers: gateway/catalog/rules/plans.c */
#include "check.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/workers.h"
#include "plans_scene.h"

#define LONG_CHUNKS 64u /* of 100 bytes */

static void all_stage(struct site *s, uint64_t number, const char *const *names)
{
    for (uint32_t i = 0; names[i] != NULL; i++) {
        CHECK_OK(stage(s, names[i], number));
        CHECK_OK(export_of(s, names[i], number, 0));
    }
    drain(s);
}

/* A version of so many chunks, of which the gateway holds `landed`, for the workers in
 * that order: a chain. */
static void long_chain(struct site *s, uint64_t number, uint32_t landed, const char *const *names)
{
    const struct tb_id uid = id_of(number);
    CHECK_OK(version_open(s, "rank", number, 1, number));
    const struct tb_catalog_seal q = {.session = session_of("rank"),
                                      .uid = uid,
                                      .root = root_of((uint8_t)number),
                                      .chunk_count = LONG_CHUNKS,
                                      .bytes = 100 * (uint64_t)LONG_CHUNKS,
                                      .export_id = 1};
    CHECK_OK(tb_catalog_seal(s->c, s->now, &q));
    land(s, number, 0, landed);
    all_stage(s, number, names);
}

static void long_chain_ends(struct site *s, uint64_t number, const char *const *names)
{
    const struct tb_id uid = id_of(number);
    for (uint32_t i = 0; names[i] != NULL; i++) {
        const struct tb_id session = session_of(names[i]);
        CHECK_OK(tb_catalog_release(s->c, s->now, &session, &uid));
    }
    hush(s);
}

static void tell(struct site *s, const char *worker, uint64_t number, uint32_t held, uint64_t rate)
{
    const struct tb_catalog_progress p = {.session = session_of(worker),
                                          .uid = id_of(number),
                                          .held_chunks = held,
                                          .total_chunks = LONG_CHUNKS,
                                          .bytes_per_s = rate};
    CHECK_OK(tb_catalog_progress(s->c, s->now, &p));
}

/* A second passes, and each tells of it in their order, 10 ms after the one before: one look in 10
 * ms is all that a version gets. */
static void second(struct site *s, uint64_t number, const char *const *names, uint32_t held, uint64_t rate)
{
    const tb_time_ns end = tb_time_add(s->now, TB_SECONDS(1));
    uint32_t count = 0;
    while (names[count] != NULL)
        count++;
    for (uint32_t i = 0; i < count; i++) {
        s->now = end - TB_MS(10) * (count - 1 - i);
        tell(s, names[i], number, held > i ? held - i : 1, rate);
    }
    drain(s);
}

static const char *const abc[] = {"a", "b", "c", NULL}, *const bc[] = {"b", "c", NULL},
                         *const cab[] = {"c", "a", "b", NULL}, *const bca[] = {"b", "c", "a", NULL};

static void three_workers(struct site *s)
{
    spread(s);
    s->left_out = ~(1u << TB_CATALOG_PLAN);
    hush(s);
}

/* P6: all read at the rate of the first, so nobody shows that it is slow. One that depends on it
 * takes its place, reads five times as fast, and then it is slow beside the others; in the next
 * version it stands last from the beginning. */
static void a_slow_first_of_a_chain_is_found(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    said(&s, "[   0] plan a v6 from gateway\n"
             "[   0] plan b v6 from a\n"
             "[   0] plan c v6 from b\n");
    second(&s, 6, abc, 4, 400);
    said(&s, ""); /* its first word is not judged */
    second(&s, 6, abc, 8, 400);
    said(&s, "[2000] plan b v6 from gateway\n"
             "[2000] plan a v6 from c\n");
    assert_false(slow(&s, "a")); /* nothing is known of it yet */
    second(&s, 6, bc, 20, 2000);
    tell(&s, "a", 6, 12, 400);
    second(&s, 6, bc, 40, 2000);
    tell(&s, "a", 6, 16, 400);
    assert_true(slow(&s, "a"));
    said(&s, "");
    long_chain_ends(&s, 6, abc);
    long_chain(&s, 7, LONG_CHUNKS, abc);
    said(&s, "[4000] plan a v7 from gateway\n"
             "[4000] plan b v7 from gateway\n"
             "[4000] plan c v7 from b\n");
    site_close(&s);
}

/* The twin: where the chain is as fast as before behind any leader, two are tried and nobody
 * is slow; versions after it are not troubled, unless the first of a chain reads at under
 * half of what was seen here. */
static void a_chain_as_slow_as_its_source_is_left_alone(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    hush(&s);
    second(&s, 6, abc, 4, 400);
    second(&s, 6, abc, 8, 400);
    said(&s, "[2000] plan b v6 from gateway\n"
             "[2000] plan a v6 from c\n");
    second(&s, 6, bca, 12, 400);
    second(&s, 6, bca, 16, 400);
    said(&s, ""); /* how the last reads there is not known yet */
    second(&s, 6, bca, 18, 400);
    said(&s, "[5000] plan c v6 from gateway\n"
             "[5000] plan b v6 from a\n");
    for (uint32_t held = 20; held < 32; held += 4)
        second(&s, 6, cab, held, 400);
    for (uint32_t held = 32; held < 52; held += 4)
        second(&s, 6, cab, held, 100); /* this one has been troubled enough */
    said(&s, "");
    assert_false(slow(&s, "a") || slow(&s, "b") || slow(&s, "c"));
    long_chain_ends(&s, 6, abc);
    long_chain(&s, 7, LONG_CHUNKS, abc);
    hush(&s);
    for (uint32_t held = 4; held < 32; held += 2)
        second(&s, 7, abc, held, 200);
    said(&s, "");
    second(&s, 7, abc, 33, 100);
    said(&s, "[28000] plan b v7 from gateway\n"
             "[28000] plan a v7 from c\n");
    long_chain_ends(&s, 7, abc);
    site_close(&s);
}

/* P6: a trial with those who read it before says nothing of those who come when
 * all of them have ended. */
static void a_chain_begun_when_all_have_ended_is_searched_anew(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    for (uint32_t held = 4; held < 40; held += 4)
        second(&s, 6, abc, held, 400); /* two are tried, and it stays as fast as that */
    long_chain_ends(&s, 6, abc);
    all_stage(&s, 6, abc);
    hush(&s);
    second(&s, 6, abc, 4, 100);
    said(&s, "");
    second(&s, 6, abc, 8, 100);
    said(&s, "[11000] plan b v6 from gateway\n"
             "[11000] plan a v6 from c\n");
    site_close(&s);
}

/* P6: it got all that was to be had, and then nothing any more: one that depends on it takes its
 * place. */
static void a_first_of_a_chain_that_gets_nothing_is_found(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    second(&s, 6, abc, 4, 400);
    second(&s, 6, abc, 8, 400);
    for (uint32_t held = 12; held <= 18; held += 3)
        second(&s, 6, bca, held, 400);
    for (uint32_t held = 20; held < 32; held += 4)
        second(&s, 6, cab, held, 400); /* 400 is what is to be had */
    long_chain_ends(&s, 6, abc);
    long_chain(&s, 7, LONG_CHUNKS, abc);
    hush(&s);
    second(&s, 7, abc, 4, 400);
    second(&s, 7, abc, 8, 400);
    said(&s, "");
    second(&s, 7, abc, 8, 0);
    said(&s, "[11000] plan b v7 from gateway\n"
             "[11000] plan a v7 from c\n");
    site_close(&s);
}

/* P6: nothing at all comes to the first of a chain, not even one chunk, while its gateway has all:
 * nobody has told a rate, so nobody can be compared. At the second such word one that waits for it
 * takes its place, also one that joined long after, and however little there is to read; where that
 * one reads, the other is slow beside it. */
static void a_first_of_a_chain_that_never_got_anything_is_found(void **state)
{
    (void)state;
    for (uint32_t landed = 2; landed <= LONG_CHUNKS; landed += LONG_CHUNKS - 2) {
        struct site s;
        three_workers(&s);
        long_chain(&s, 6, landed, abc + 3);
        for (uint32_t i = 0; i < 3; i++, s.now += TB_SECONDS(1)) {
            CHECK_OK(stage(&s, abc[i], 6));
            CHECK_OK(export_of(&s, abc[i], 6, 0));
        }
        hush(&s);
        tell(&s, "b", 6, 0, 0);
        tell(&s, "a", 6, 0, 0);
        tell(&s, "c", 6, 0, 0);
        said(&s, ""); /* one word is no verdict */
        s.now += TB_SECONDS(1);
        tell(&s, "a", 6, 0, 0);
        said(&s, "[4000] plan b v6 from gateway\n"
                 "[4000] plan a v6 from c\n");
        assert_false(slow(&s, "a"));
        s.now += TB_SECONDS(1);
        tell(&s, "b", 6, 1, 2000);
        tell(&s, "c", 6, 1, 2000);
        for (uint32_t word = 0; word < 4; word++, s.now += TB_SECONDS(1))
            tell(&s, "a", 6, 0, 0);
        assert_true(slow(&s, "a"));
        assert_false(slow(&s, "b") || slow(&s, "c"));
        site_close(&s);
    }
}

/* P6: however many of them stand before the others. */
static void three_that_get_nothing_before_the_others_are_found(void **state)
{
    (void)state;
    struct site s;
    static const char *const abcd[] = {"a", "b", "c", "d", NULL};
    three_workers(&s);
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    long_chain(&s, 6, LONG_CHUNKS, abcd);
    hush(&s);
    for (uint32_t word = 0; word < 9; word++) {
        s.now += TB_MS(970);
        for (uint32_t i = 0; i < 4; i++, s.now += TB_MS(10))
            tell(&s, abcd[i], 6, i == 3 && word > 3 ? word : 0, i == 3 && word > 3 ? 2000 : 0);
        drain(&s);
    }
    said(&s, "[2020] plan b v6 from gateway\n"
             "[2020] plan a v6 from d\n"
             "[3030] plan c v6 from gateway\n"
             "[3030] plan b v6 from a\n"
             "[4040] plan d v6 from gateway\n"
             "[4040] plan c v6 from b\n"
             "[8080] plan b v6 from d\n" /* a gets nothing of what d has */
             "[8080] plan a v6 from c\n");
    assert_true(slow(&s, "a"));
    assert_false(slow(&s, "d"));
    site_close(&s);
}

/* The twin: where it is the gateway that stands still, each is tried once and that is all; what
 * comes then is not troubled. */
static void where_nothing_comes_to_anybody_nobody_is_slow(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    hush(&s);
    for (uint32_t word = 0; word < 12; word++) {
        s.now += TB_MS(980);
        for (uint32_t i = 0; i < 3; i++, s.now += TB_MS(10))
            tell(&s, abc[i], 6, 0, 0);
        drain(&s);
    }
    said(&s, "[2020] plan b v6 from gateway\n"
             "[2020] plan a v6 from c\n"
             "[3030] plan c v6 from gateway\n"
             "[3030] plan b v6 from a\n"
             "[4040] plan a v6 from gateway\n"
             "[4040] plan c v6 from b\n");
    for (uint32_t held = 4; held < 44; held += 4)
        second(&s, 6, abc, held, 400);
    said(&s, "");
    assert_false(slow(&s, "a") || slow(&s, "b") || slow(&s, "c"));
    site_close(&s);
}

/* P6: the first of a chain does not even get a connection, and there is nobody else whom it could
 * read from: those behind it do not wait for that, and it goes on behind them. */
static void a_first_of_a_chain_that_reaches_nobody_steps_aside(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    hush(&s);
    const struct tb_id a = session_of("a"), v6 = id_of(6);
    CHECK_OK(tb_catalog_hop_lost(s.c, s.now, &a, &v6, plan_of(&s, "a")));
    said(&s, "[   0] plan b v6 from gateway\n"
             "[   0] plan a v6 from c\n");
    site_close(&s);
}

/* The twin: it had got something there, and may hold much more than they. It tries
 * again, and they stay. */
static void a_first_of_a_chain_that_was_cut_off_tries_again(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    second(&s, 6, abc, 40, 400);
    hush(&s);
    const struct tb_id a = session_of("a"), v6 = id_of(6);
    CHECK_OK(tb_catalog_hop_lost(s.c, s.now, &a, &v6, plan_of(&s, "a")));
    said(&s, "");
    static const char *const renewing[] = {"rank", "a", "b", "c", NULL};
    pass_ms(&s, 1000, renewing);
    said(&s, "[2000] plan a v6 from gateway\n");
    site_close(&s);
}

/* P6: nothing comes from a source that itself reads as well as any: its reader is sent elsewhere,
 * and does not come back for what the source gets meanwhile. */
static void a_source_that_gives_nothing_is_left(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, 8, abc);
    second(&s, 6, abc, 4, 2000);
    hush(&s);
    for (uint32_t held = 8; held < 20; held += 4) {
        land(&s, 6, 0, held + 3); /* a is not to be tried */
        s.now += TB_SECONDS(1);
        tell(&s, "c", 6, 2, 0);
        s.now += TB_MS(10);
        tell(&s, "a", 6, held, 2000);
        tell(&s, "b", 6, held - 1, 2000);
        drain(&s);
    }
    said(&s, "[3020] plan c v6 from a\n");
    const struct tb_id c = session_of("c"), v6 = id_of(6);
    CHECK_OK(tb_catalog_hop_lost(s.c, s.now, &c, &v6, plan_of(&s, "c")));
    said(&s, "[4030] plan c v6 from gateway\n");
    site_close(&s);
}

/* P6: behind the first stands another slow one: it is found too, once it leads all but those that
 * are known to be slow. */
static void two_slow_ones_before_the_others_are_found(void **state)
{
    (void)state;
    struct site s;
    static const char *const abcd[] = {"a", "b", "c", "d", NULL}, *const bcd[] = {"b", "c", "d", NULL},
                             *const cd[] = {"c", "d", NULL};
    three_workers(&s);
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    long_chain(&s, 6, LONG_CHUNKS, abcd);
    second(&s, 6, abcd, 4, 250);
    second(&s, 6, abcd, 8, 250);
    for (uint32_t held = 12; held < 28; held += 4) {
        second(&s, 6, bcd, held, 700);
        tell(&s, "a", 6, held, 250);
    }
    drain(&s);
    assert_true(slow(&s, "a"));
    for (uint32_t held = 28; held < 40; held += 4) {
        second(&s, 6, cd, held, 2000);
        tell(&s, "b", 6, held, 700);
        tell(&s, "a", 6, held, 250);
    }
    drain(&s);
    assert_true(slow(&s, "a") && slow(&s, "b"));
    assert_false(slow(&s, "c") || slow(&s, "d"));
    site_close(&s);
}

/* A look goes over all workers, of which there may be thousands whose words each come from a
 * reader of the first. */
static void a_version_is_looked_at_once_in_10_ms(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    second(&s, 6, abc, 4, 400);
    hush(&s);
    s.now += TB_SECONDS(1);
    tell(&s, "a", 6, 8, 400); /* its reader is not steady yet */
    tell(&s, "b", 6, 7, 400);
    drain(&s);
    said(&s, "");
    s.now += TB_MS(10);
    tell(&s, "b", 6, 7, 400);
    drain(&s);
    said(&s, "[2010] plan b v6 from gateway\n"
             "[2010] plan a v6 from c\n");
    site_close(&s);
}

/* P6: a worker that was tried is no leaf: a worker that joins comes behind it, and shares nobody's
 * NIC. */
static void a_worker_that_joins_after_a_trial_comes_behind_it(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    long_chain(&s, 6, LONG_CHUNKS, abc);
    second(&s, 6, abc, 4, 400);
    second(&s, 6, abc, 8, 400);
    hush(&s);
    CHECK_OK(stage(&s, "d", 6));
    said(&s, "[2000] plan d v6 from a\n");
    site_close(&s);
}

/* P6: where workers join one after another the first holds much more than later ones, and is
 * not put behind them. */
static void where_workers_join_later_nobody_is_tried(void **state)
{
    (void)state;
    struct site s;
    static const char *const joined[] = {"a", "b", "c", NULL};
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, joined + 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(stage(&s, joined[i], 6));
        CHECK_OK(export_of(&s, joined[i], 6, 0));
        s.now += TB_SECONDS(1);
    }
    hush(&s);
    for (uint32_t held = 4; held < 44; held += 4)
        second(&s, 6, joined, held, 400);
    said(&s, "");
    site_close(&s);
}

/* The other twin: a worker that has nearly all that its source has waits for it, and holds up
 * nobody. */
static void a_worker_that_waits_for_its_source_is_not_tried(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, 8, abc);
    hush(&s);
    for (uint32_t held = 4; held < 44; held += 4) {
        land(&s, 6, 0, held + 7);
        second(&s, 6, abc, held, 400);
    }
    said(&s, "");
    land(&s, 6, 0, 60); /* it does not take what is there now */
    second(&s, 6, abc, 44, 400);
    said(&s, "[11000] plan b v6 from gateway\n"
             "[11000] plan a v6 from c\n");
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_first_of_a_chain_is_found),
        cmocka_unit_test(a_chain_as_slow_as_its_source_is_left_alone),
        cmocka_unit_test(a_chain_begun_when_all_have_ended_is_searched_anew),
        cmocka_unit_test(a_first_of_a_chain_that_gets_nothing_is_found),
        cmocka_unit_test(a_first_of_a_chain_that_never_got_anything_is_found),
        cmocka_unit_test(three_that_get_nothing_before_the_others_are_found),
        cmocka_unit_test(where_nothing_comes_to_anybody_nobody_is_slow),
        cmocka_unit_test(a_first_of_a_chain_that_reaches_nobody_steps_aside),
        cmocka_unit_test(a_first_of_a_chain_that_was_cut_off_tries_again),
        cmocka_unit_test(a_source_that_gives_nothing_is_left),
        cmocka_unit_test(two_slow_ones_before_the_others_are_found),
        cmocka_unit_test(a_version_is_looked_at_once_in_10_ms),
        cmocka_unit_test(a_worker_that_joins_after_a_trial_comes_behind_it),
        cmocka_unit_test(where_workers_join_later_nobody_is_tried),
        cmocka_unit_test(a_worker_that_waits_for_its_source_is_not_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

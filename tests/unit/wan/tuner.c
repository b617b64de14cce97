/* tuner.c - the number of streams against models of paths, in virtual time: it ends near the
 * best, and then it rests.
 *
 * Covers: wan/stream/tuner.c */
#include "wan/stream/tuner.h"

#include <string.h>

#include "tests/unit/check.h"

#define EVERY TB_MS(250)

/* The bytes/s that n streams bring on a path: each at most `each`, all at most `all`, and `cost`
 * of a thousandth less for each above the cores. */
struct path {
    uint64_t each, all;
    uint32_t cost;
    uint32_t noise; /* thousandths, to and fro */
    uint32_t open_max;
    tb_time_ns rtt;
    uint64_t window_bytes; /* of the kernel */
};

struct fixture {
    struct tb_tuner t;
    struct path path;
    tb_time_ns now;
    uint64_t bytes;
    uint32_t looks, changes;
};

static uint64_t goodput(const struct path *p, uint32_t n, uint32_t look)
{
    uint64_t rate = p->each * n < p->all ? p->each * n : p->all;
    rate -= rate / 1000 * p->cost * (n > 2 ? n - 2 : 0);
    return look % 2 == 0 ? rate + rate / 1000 * p->noise : rate - rate / 1000 * p->noise;
}

static void setup(struct fixture *f, const struct tb_tuner_options *options, const struct path *path)
{
    memset(f, 0, sizeof *f);
    f->path = *path;
    if (f->path.open_max == 0) f->path.open_max = TB_TUNER_STREAMS_MAX;
    if (f->path.window_bytes == 0) f->path.window_bytes = 32 << 20;
    f->now = TB_SECONDS(1);
    tb_tuner_init(&f->t, options);
}

static void run(struct fixture *f, uint32_t seconds, bool full)
{
    const tb_time_ns end = f->now + TB_SECONDS(seconds);
    while (f->now < end) {
        const uint32_t before = f->t.streams;
        const uint32_t usable = before < f->path.open_max ? before : f->path.open_max;
        f->now += EVERY;
        if (full) f->bytes += goodput(&f->path, usable, f->looks++ / 4) / (TB_SECONDS(1) / EVERY);
        const struct tb_tuner_seen seen = {.now = f->now,
                                           .rtt = f->path.rtt,
                                           .bytes = f->bytes,
                                           .window_bytes = f->path.window_bytes,
                                           .usable = usable,
                                           .full = full};
        f->changes += tb_tuner_look(&f->t, &seen) != before;
    }
}

static const struct tb_tuner_options both = {.cores = 2, .bbr = true, .cubic = true};

/* Where losses hold each stream to a thirtieth of the link, so many are found; and once
 * they are, they stay. */
static void a_lossy_path_gets_many(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 8000000, .all = 240000000, .noise = 5, .rtt = TB_MS(80)});
    run(&f, 30, true);
    assert_true(f.t.streams >= 27 && f.t.streams <= 45);
    assert_int_equal(f.t.state, TB_TUNER_SETTLED);
    f.changes = 0;
    run(&f, 600, true);
    assert_int_equal(f.changes, 0);
}

/* On a near path as many as there are cores to begin with, but not dozens: more are found
 * where they bring more. */
static void a_near_path_begins_with_few(void **state)
{
    (void)state;
    static const uint32_t rows[][2] = {{1, 1}, {5, 5}, {8, 8}, {32, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_tuner t;
        const struct tb_tuner_options o = {.cores = rows[i][0], .cubic = true};
        tb_tuner_init(&t, &o);
        assert_int_equal(t.streams, rows[i][1]);
    }
}

/* Where one is enough and each more costs, few are left. */
static void a_fast_path_gets_few(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both,
          &(struct path){.each = 3000000000, .all = 3000000000, .cost = 20, .noise = 5, .rtt = TB_US(50)});
    assert_int_equal(f.t.streams, 2); /* cores, from the beginning */
    run(&f, 30, true);
    assert_true(f.t.streams <= 2);
    f.changes = 0;
    run(&f, 600, true);
    assert_int_equal(f.changes, 0);
}

/* One crossing of eight seconds is enough to settle where eight are right. */
static void a_good_first_number_is_settled_in_one_crossing(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 31250000, .all = 250000000, .noise = 5, .rtt = TB_MS(80)});
    run(&f, 8, true);
    assert_int_equal(f.t.state, TB_TUNER_SETTLED);
    assert_true(f.t.searched);
    assert_int_equal(f.t.streams, 8);
}

/* The next crossing begins with the number that was found, and gaps between crossings are not
 * looked at. */
static void a_path_is_remembered(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 8000000, .all = 240000000, .rtt = TB_MS(80)});
    run(&f, 30, true);
    const uint32_t found = f.t.streams;
    f.changes = 0;
    for (int i = 0; i < 20; i++) {
        run(&f, 60, false);
        run(&f, 2, true); /* a burst */
    }
    assert_int_equal(f.t.streams, found);
    assert_int_equal(f.changes, 0);
}

/* Silence and bursts say nothing of a number: nothing is tried. */
static void bursts_search_nothing(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 8000000, .all = 240000000, .rtt = TB_MS(80)});
    run(&f, 1, false); /* the RTT is known */
    f.changes = 0;
    for (int i = 0; i < 50; i++) {
        run(&f, 1, true);
        run(&f, 4, false);
    }
    assert_int_equal(f.changes, 0);
}

/* A path that changed is searched again; not at every dip. */
static void a_changed_path_is_searched_again(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 31250000, .all = 250000000, .rtt = TB_MS(80)});
    run(&f, 60, true);
    const uint32_t before = f.t.streams;
    f.path.each = 4000000; /* for two seconds */
    f.changes = 0;
    run(&f, 2, true);
    f.path.each = 31250000;
    run(&f, 60, true);
    assert_int_equal(f.changes, 0);
    f.path.each = 8000000; /* for good */
    run(&f, 60, true);
    assert_true(f.t.streams > 2 * before);
    f.changes = 0;
    run(&f, 600, true);
    assert_int_equal(f.changes, 0);
}

/* A number found under an operator's limit, or at a path's busiest hour, is small: it is not
 * enough when that is over, and that of an earlier process neither. */
static void a_path_that_became_wider_is_searched_again(void **state)
{
    (void)state;
    static const struct path narrow = {.each = 40000000, .all = 6000000, .noise = 5, .rtt = TB_MS(80)};
    struct fixture f, second;
    setup(&f, &both, &narrow);
    run(&f, 60, true);
    const uint32_t few = f.t.streams;
    assert_true(few < 8);
    const uint64_t rate = f.t.best_rate;
    f.path.all = 600000000; /* a burst, in two looks at most */
    f.changes = 0;
    run(&f, 1, true);
    f.path.all = narrow.all;
    run(&f, 60, true);
    assert_int_equal(f.changes, 0);
    f.path.all = 600000000; /* for good: fifteen of them */
    run(&f, 60, true);
    assert_true(f.t.streams >= 13 && f.t.streams <= 23);
    f.changes = 0;
    run(&f, 600, true);
    assert_int_equal(f.changes, 0);
    setup(&second, &both, &f.path);
    tb_tuner_recall(&second.t, few, rate);
    run(&second, 60, true);
    assert_true(second.t.streams >= 13 && second.t.streams <= 23);
}

/* A peer that lets only so many come up is not waited for. */
static void the_streams_that_the_peer_lets_come_up_have_to_do(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 8000000, .all = 240000000, .open_max = 10, .rtt = TB_MS(80)});
    run(&f, 60, true);
    assert_int_equal(f.t.streams, 10);
    f.changes = 0;
    run(&f, 600, true);
    assert_int_equal(f.t.streams, 10);
    assert_true(f.changes <= 2 * 4); /* more are tried now and then, and nothing is searched again */
}

/* P6: streams that did not come up for some seconds, as a path that flaps has it. */
static void a_path_broken_for_seconds_is_not_slow_for_good(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 8000000, .all = 240000000, .rtt = TB_MS(80)});
    run(&f, 60, true);
    const uint32_t before = f.t.streams;
    assert_true(before > 8);
    f.path.open_max = 2;
    run(&f, 20, true);
    assert_int_equal(f.t.streams, 2);
    f.path.open_max = TB_TUNER_STREAMS_MAX;
    run(&f, 180, true);
    assert_true(f.t.streams > before / 2);
    f.changes = 0;
    run(&f, 600, true);
    assert_int_equal(f.changes, 0);
}

/* A session that ended while its streams came up, and the next one: what is not open at once is not
 * what does not come up. */
static void a_time_in_which_nobody_looked_is_no_shortage(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 8000000, .all = 240000000, .open_max = 1, .rtt = TB_MS(80)});
    run(&f, 1, false);
    const uint32_t before = f.t.streams;
    assert_true(before > 1);
    f.now += TB_SECONDS(60);
    run(&f, 1, false);
    assert_int_equal(f.t.streams, before);
    run(&f, 10, false); /* the twin: now somebody looks */
    assert_int_equal(f.t.streams, 1);
}

static void a_number_given_is_kept(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_tuner_options given = both;
    given.streams = 5;
    setup(&f, &given, &(struct path){.each = 8000000, .all = 240000000, .rtt = TB_MS(80)});
    run(&f, 100, true);
    assert_int_equal(f.t.streams, 5);
    assert_int_equal(f.changes, 0);
}

/* 1 Gbit/s for 150 ms is 18.75 MB: five connections of 4 MiB. */
static void the_first_number_is_arithmetic(void **state)
{
    (void)state;
    assert_int_equal(tb_tuner_by_window(125000000, TB_MS(150), 4 << 20), 5);
    assert_int_equal(tb_tuner_by_window(125000000, TB_MS(80), 32 << 20), 1);
    assert_int_equal(tb_tuner_by_window(0, 0, 1), 1);
    assert_int_equal(tb_tuner_by_window(UINT64_MAX, TB_SECONDS(10), 1), TB_TUNER_STREAMS_MAX);
    assert_int_equal(tb_tuner_by_window(125000000, TB_MS(80), 0), 1);
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 1, .all = 1, .rtt = TB_MS(150), .window_bytes = 1 << 20});
    run(&f, 1, false);
    assert_int_equal(f.t.streams, 18);
    f.path.window_bytes = 2 << 20; /* an operator raised the ceilings */
    run(&f, 1, false);
    assert_int_equal(f.t.streams, 9);
    f.path.window_bytes = 1 << 20;
    run(&f, 1, false);
    assert_int_equal(f.t.streams, 18);
}

/* Only where a number begins: one that a search found is the path's, whatever the ceilings. */
static void a_number_that_was_searched_is_no_arithmetic(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, &both, &(struct path){.each = 8000000, .all = 240000000, .rtt = TB_MS(80)});
    run(&f, 60, true);
    f.path.window_bytes = 64 << 10; /* 153 by arithmetic */
    f.changes = 0;
    run(&f, 60, true);
    assert_int_equal(f.changes, 0);
}

static void congestion_follows_the_path(void **state)
{
    (void)state;
    const struct tb_tuner_options no_bbr = {.cubic = true}, no_cubic = {.bbr = true}, none = {0};
    assert_int_equal(tb_tuner_congestion(&both, TB_MS(80)), TB_CONGESTION_BBR);
    assert_int_equal(tb_tuner_congestion(&both, TB_US(200)), TB_CONGESTION_CUBIC);
    assert_int_equal(tb_tuner_congestion(&no_bbr, TB_MS(80)), TB_CONGESTION_CUBIC);
    assert_int_equal(tb_tuner_congestion(&no_cubic, TB_US(200)), TB_CONGESTION_BBR);
    assert_int_equal(tb_tuner_congestion(&none, TB_MS(80)), TB_CONGESTION_SYSTEM);
}

/* The number of an earlier process is begun with and kept. It is searched again only where it
 * brings much less. */
static void a_number_that_was_found_is_recalled(void **state)
{
    (void)state;
    static const struct path path = {.each = 4000000, .all = 120000000, .rtt = TB_MS(80)};
    struct fixture first, second, elsewhere;
    setup(&first, &both, &path);
    run(&first, 120, true);
    assert_true(first.t.searched && first.t.streams > 8);
    setup(&second, &both, &path);
    tb_tuner_recall(&second.t, first.t.streams, first.t.best_rate);
    run(&second, 120, true);
    assert_int_equal(second.changes, 0);
    assert_int_equal(second.t.streams, first.t.streams);
    static const struct path clean = {.each = 20000000, .all = 40000000, .rtt = TB_MS(80)};
    setup(&elsewhere, &both, &clean);
    tb_tuner_recall(&elsewhere.t, first.t.streams, first.t.best_rate);
    run(&elsewhere, 120, true);
    assert_true(elsewhere.t.streams < first.t.streams);
    setup(&elsewhere, &both, &clean);
    tb_tuner_recall(&elsewhere.t, TB_TUNER_STREAMS_MAX + 1, 1); /* no number of ours */
    assert_false(elsewhere.t.searched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lossy_path_gets_many),
        cmocka_unit_test(a_near_path_begins_with_few),
        cmocka_unit_test(a_fast_path_gets_few),
        cmocka_unit_test(a_good_first_number_is_settled_in_one_crossing),
        cmocka_unit_test(a_path_is_remembered),
        cmocka_unit_test(bursts_search_nothing),
        cmocka_unit_test(a_changed_path_is_searched_again),
        cmocka_unit_test(a_path_that_became_wider_is_searched_again),
        cmocka_unit_test(the_streams_that_the_peer_lets_come_up_have_to_do),
        cmocka_unit_test(a_path_broken_for_seconds_is_not_slow_for_good),
        cmocka_unit_test(a_time_in_which_nobody_looked_is_no_shortage),
        cmocka_unit_test(a_number_given_is_kept),
        cmocka_unit_test(the_first_number_is_arithmetic),
        cmocka_unit_test(a_number_that_was_searched_is_no_arithmetic),
        cmocka_unit_test(congestion_follows_the_path),
        cmocka_unit_test(a_number_that_was_found_is_recalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

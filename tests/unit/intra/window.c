/* window.c - how much of a hop's data READs is posted: enough for the path, and little more.
 * Virtual time: a path of one rate and one delay answers in order.
 *
 * Covers: intra/verbs/read_window.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "intra/verbs/read_window.h"

#define READS 64u

struct path {
    uint64_t bytes_per_s;
    tb_time_ns delay;
};

/* Reads `bytes` as fast as window and path allow; how long it took. */
static tb_time_ns carry(struct tb_window *w, const struct path *path, tb_time_ns *now, uint64_t bytes)
{
    struct {
        struct tb_window_sample sample;
        tb_time_ns done_at;
    } ring[READS];
    const tb_time_ns from = *now;
    tb_time_ns free_at = *now; /* when the link has sent what it has been asked for */
    uint32_t first = 0, count = 0;
    uint64_t posted = 0;
    while (bytes > 0 || count > 0) {
        uint32_t n;
        while (bytes > 0 && (n = tb_read_window_next(w, posted, count,
                                                     bytes < (1u << 30) ? (uint32_t)bytes : 1u << 30)) > 0) {
            const tb_time_ns wire = (tb_time_ns)((double)n * 1e9 / (double)path->bytes_per_s);
            free_at = (free_at > *now ? free_at : *now) + wire;
            ring[(first + count++) % READS].done_at = free_at + path->delay;
            ring[(first + count - 1) % READS].sample =
                (struct tb_window_sample){.bytes = n, .posted_at = *now, .done_before = w->done_bytes};
            posted += n;
            bytes -= n;
        }
        assert_true(count > 0); /* something is always let in */
        *now = ring[first].done_at;
        posted -= ring[first].sample.bytes;
        tb_read_window_completed(w, &ring[first].sample, *now);
        first = (first + 1) % READS;
        count--;
    }
    return *now - from;
}

/* A bitmap READ on an idle path shows its delay. */
static void look(struct tb_window *w, const struct path *path, tb_time_ns *now)
{
    const struct tb_window_sample s = {.bytes = 8, .posted_at = *now, .done_before = w->done_bytes};
    *now += path->delay;
    tb_read_window_completed(w, &s, *now);
}

static void paths_are_filled(void **state)
{
    (void)state;
    const struct path paths[] = {{UINT64_C(50000000000), TB_US(10)},
                                 {UINT64_C(50000000000), TB_US(60)},
                                 {UINT64_C(12500000000), TB_US(200)},
                                 {UINT64_C(1250000000), TB_US(20)},
                                 {UINT64_C(80000000), TB_MS(2)}};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct tb_window w;
        tb_time_ns now = TB_SECONDS(1);
        tb_read_window_init(&w, paths[i].bytes_per_s, READS);
        look(&w, &paths[i], &now);
        const uint64_t bytes = paths[i].bytes_per_s / 4 + 1;
        const tb_time_ns took = carry(&w, &paths[i], &now, bytes);
        assert_in_range(took, 1, (tb_time_ns)(1.05 * 0.25e9) + 2 * paths[i].delay);
    }
}

/* Of what is posted beyond what the path holds a bitmap READ has to wait: at most about as long as
 * the path takes anyway. */
static void little_more_than_the_path_holds_is_posted(void **state)
{
    (void)state;
    const struct path path = {UINT64_C(12500000000), TB_US(200)}; /* holds 2.5 MB */
    struct tb_window w;
    tb_time_ns now = TB_SECONDS(1);
    tb_read_window_init(&w, path.bytes_per_s, READS);
    look(&w, &path, &now);
    (void)carry(&w, &path, &now, UINT64_C(2500000000));
    assert_in_range(w.bytes, 2400000, 5500000);
}

static void several_reads_are_in_flight(void **state)
{
    (void)state;
    for (uint64_t rate = 1000000; rate < UINT64_C(200000000000); rate *= 7) {
        struct tb_window w;
        tb_read_window_init(&w, rate, READS);
        assert_true(w.bytes / w.segment_bytes >= 8);
        assert_true(w.bytes >= TB_WINDOW_MIN && w.bytes <= TB_WINDOW_MAX);
    }
}

static void the_queue_is_never_overrun(void **state)
{
    (void)state;
    struct tb_window w;
    tb_read_window_init(&w, 0, 4);
    assert_int_equal(tb_read_window_next(&w, 0, 0, 100), 100);
    assert_int_equal(tb_read_window_next(&w, 0, 0, 1u << 30), w.segment_bytes);
    assert_int_equal(tb_read_window_next(&w, 0, 4, 100), 0);
    assert_int_equal(tb_read_window_next(&w, w.bytes, 1, 100), 0);
    assert_int_equal(tb_read_window_next(&w, w.bytes - 1, 1, 100), 100);
}

/* A path that became slower and longer is measured again, and so is one that became faster. */
static void a_changed_pace_is_measured_again(void **state)
{
    (void)state;
    const struct path fast = {UINT64_C(12500000000), TB_US(20)}, slow = {UINT64_C(12500000000), TB_US(300)};
    struct tb_window w;
    tb_time_ns now = TB_SECONDS(1);
    tb_read_window_init(&w, fast.bytes_per_s, READS);
    (void)carry(&w, &fast, &now, UINT64_C(12500000000));
    assert_true(w.bytes <= 2 * TB_WINDOW_MIN);
    (void)carry(&w, &slow, &now, UINT64_C(125000000000));
    const uint64_t before = w.bytes;
    assert_true(before > UINT64_C(3000000)); /* of 3.75 MB */
    (void)carry(&w, &fast, &now, UINT64_C(125000000000));
    assert_true(w.bytes < before);
}

static void clocks_that_stand_still_are_borne(void **state)
{
    (void)state;
    struct tb_window w;
    tb_read_window_init(&w, 0, READS);
    for (uint32_t i = 0; i < 1000; i++) {
        const struct tb_window_sample s = {.bytes = UINT32_MAX, .posted_at = TB_SECONDS(5), .done_before = 0};
        tb_read_window_completed(&w, &s, TB_SECONDS(5));
        assert_true(w.bytes >= TB_WINDOW_MIN && w.bytes <= TB_WINDOW_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_filled),
        cmocka_unit_test(little_more_than_the_path_holds_is_posted),
        cmocka_unit_test(several_reads_are_in_flight),
        cmocka_unit_test(the_queue_is_never_overrun),
        cmocka_unit_test(a_changed_pace_is_measured_again),
        cmocka_unit_test(clocks_that_stand_still_are_borne),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

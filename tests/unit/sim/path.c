/* One direction of the emulated WAN in virtual time: each fault and its opposite, and
 * that a seed says it all.
 *
 * Covers: sim/wan/path.c */
#include "sim/wan/path.h"

#include <string.h>

#include "tests/unit/check.h"

#define MS       1000000
#define BYTES    1500u
#define PER_CENT (TB_PATH_PPB / 100)

/* A path with one setting, and the queue large. */
struct lane {
    struct tb_path path;
    struct tb_path_queue queue;
};

static void lane_init(struct lane *l, enum tb_path_key key, uint64_t value)
{
    struct tb_path_settings s = {
        .value = {[TB_PATH_QUEUE] = 1u << 30, [TB_PATH_DELAY] = 40 * MS, [TB_PATH_BURST_LOSS] = TB_PATH_PPB}};
    s.value[key] = value;
    l->queue = (struct tb_path_queue){0};
    tb_path_init(&l->path, &s, &l->queue, 7, 3);
}

/* `count` packets, 1 ms apart; how many arrive. */
static uint32_t send_many(struct lane *l, uint32_t count)
{
    uint32_t arrived = 0;
    for (uint32_t i = 0; i < count; i++)
        arrived += tb_path_decide(&l->path, (int64_t)i * MS, BYTES, 0).fate == TB_PATH_ARRIVES;
    return arrived;
}

static void a_clean_path_only_delays(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_DELAY, 40 * MS);
    for (int64_t i = 0; i < 1000; i++) {
        const struct tb_path_verdict v = tb_path_decide(&l.path, i, BYTES, 0);
        assert_true(v.fate == TB_PATH_ARRIVES && v.arrival == i + 40 * MS && !v.twice && !v.flip);
    }
}

static void packets_leave_at_the_rate(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_RATE, 1000000000);
    int64_t last = 0;
    for (int64_t i = 0; i < 100000; i++)
        last = tb_path_decide(&l.path, 0, BYTES, 0).arrival;
    assert_in_range(last - 40 * MS, 1199 * (int64_t)MS, 1201 * (int64_t)MS); /* 1.2 Gbit */
}

static void a_full_queue_drops_and_an_empty_one_does_not(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_RATE, 12000000); /* one packet a ms */
    l.path.now.value[TB_PATH_QUEUE] = l.path.base.value[TB_PATH_QUEUE] = 10 * BYTES;
    assert_int_equal(send_many(&l, 1000), 1000);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < 30; i++)
        kept += tb_path_decide(&l.path, 2000 * (int64_t)MS, BYTES, 0).fate == TB_PATH_ARRIVES;
    assert_int_equal(kept, 10);
    assert_int_equal(l.path.counters.lost_queue, 20);
    assert_int_equal(l.path.counters.queue_bytes_max, 10 * BYTES);
}

static void paths_that_share_a_queue_share_its_rate(void **state)
{
    (void)state;
    struct lane l;
    struct tb_path other;
    lane_init(&l, TB_PATH_RATE, 12000000);
    tb_path_init(&other, &l.path.base, &l.queue, 7, 4);
    assert_int_equal(tb_path_decide(&l.path, 0, BYTES, 0).arrival, 41 * MS);
    assert_int_equal(tb_path_decide(&other, 0, BYTES, 0).arrival, 42 * MS);
    assert_int_equal(tb_path_decide(&l.path, 0, BYTES, 0).arrival, 43 * MS);
}

#define SLOW 1200000u   /* a hundred packets a second */
#define FAST 120000000u /* ten a ms */

/* A queue of 100 packets, full at 0: 1 s at the slow rate, 10 ms at the fast one. */
static void fill_queue(struct lane *l, uint64_t rate)
{
    lane_init(l, TB_PATH_RATE, rate);
    l->path.now.value[TB_PATH_QUEUE] = l->path.base.value[TB_PATH_QUEUE] = 100 * BYTES;
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(tb_path_decide(&l->path, 0, BYTES, 0).fate, TB_PATH_ARRIVES);
    assert_int_equal(tb_path_decide(&l->path, 0, BYTES, 0).fate, TB_PATH_LOST_QUEUE);
}

static void turn_rate(struct tb_path *p, int64_t now, uint64_t rate)
{
    const struct tb_path_settings to = {.value = {[TB_PATH_RATE] = rate}};
    tb_path_turn(p, now, 1u << TB_PATH_RATE, &to);
}

/* When a packet that comes now leaves the queue. */
static int64_t leaves(struct tb_path *p, int64_t now)
{
    const struct tb_path_verdict v = tb_path_decide(p, now, BYTES, 0);
    assert_int_equal(v.fate, TB_PATH_ARRIVES);
    return v.arrival - 40 * MS;
}

/* 100 packets at 0, half of them gone at 500 ms: at a rate a hundred times higher
 * the others take 5 ms. */
static void a_queue_drains_at_the_rate_that_rises(void **state)
{
    (void)state;
    struct lane l;
    fill_queue(&l, SLOW);
    turn_rate(&l.path, 500 * MS, FAST);
    assert_in_range(leaves(&l.path, 500 * MS), 505 * MS, 506 * MS);
    assert_in_range(leaves(&l.path, 502 * MS), 505 * MS, 506 * MS);
    assert_in_range(leaves(&l.path, 600 * MS), 600 * MS, 601 * MS);
    assert_int_equal(l.path.counters.lost_queue, 1);
}

/* Likewise the other way: a queue that is full stays full, and takes a second to drain. */
static void a_queue_drains_at_the_rate_that_falls(void **state)
{
    (void)state;
    struct lane l;
    fill_queue(&l, FAST);
    turn_rate(&l.path, 0, SLOW);
    assert_int_equal(tb_path_decide(&l.path, 0, BYTES, 0).fate, TB_PATH_LOST_QUEUE);
    assert_in_range(leaves(&l.path, 500 * MS), 1009 * MS, 1011 * MS);
}

static void schedule_rate(struct tb_path *p, int64_t at, uint64_t rate)
{
    struct tb_path_change c = {.at = at, .mask = 1u << TB_PATH_RATE};
    c.to.value[TB_PATH_RATE] = rate;
    assert_true(tb_path_schedule(p, &c));
}

/* The rate changes when the schedule says so, not when a packet comes next: of 100 packets half are
 * gone at 500 ms, ten more at 501 ms, and the other forty take 400 ms. */
static void a_schedule_changes_the_rate_while_no_packet_comes(void **state)
{
    (void)state;
    struct lane l;
    fill_queue(&l, SLOW);
    schedule_rate(&l.path, 500 * MS, FAST);
    schedule_rate(&l.path, 501 * MS, SLOW);
    assert_in_range(leaves(&l.path, 700 * MS), 910 * MS, 912 * MS);
    schedule_rate(&l.path, 1000 * (int64_t)MS, FAST); /* nothing waits any more */
    assert_in_range(leaves(&l.path, 2000 * (int64_t)MS), 2000 * (int64_t)MS, 2001 * (int64_t)MS);
}

/* Whichever of them comes first after a change tells the queue, and the other one
 * does not tell it again. */
static void paths_that_share_a_queue_change_its_rate_once(void **state)
{
    (void)state;
    struct lane l;
    struct tb_path other;
    fill_queue(&l, SLOW);
    tb_path_init(&other, &l.path.base, &l.queue, 7, 4);
    struct tb_path *const both[] = {&l.path, &other};
    for (uint32_t i = 0; i < 2; i++) {
        schedule_rate(both[i], 500 * MS, FAST);
        schedule_rate(both[i], 502 * MS, SLOW);
    }
    assert_in_range(leaves(&l.path, 501 * MS), 505 * MS, 506 * MS);
    assert_in_range(leaves(&l.path, 503 * MS), 820 * MS, 824 * MS);
    assert_in_range(leaves(&other, 503 * MS), 830 * MS, 834 * MS);
    turn_rate(&other, 519 * MS, FAST);
    assert_in_range(leaves(&l.path, 519 * MS), 522 * MS, 523 * MS);
}

/* A packet read 5 ms late at an idle queue leaves so much later, and so do packets read with it.
 * Packets that come in time behind them are not counted: on a link that is nearly full one late
 * reading would be told for seconds. */
static void packets_that_were_read_late_are_late(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_RATE, 12000000); /* one packet a ms */
    assert_int_equal(tb_path_decide(&l.path, 100 * MS, BYTES, 5 * MS).late_ns, 5 * MS);
    assert_int_equal(tb_path_decide(&l.path, 100 * MS, BYTES, 5 * MS).late_ns, 5 * MS);
    assert_int_equal(tb_path_decide(&l.path, 100 * MS, BYTES, 0).late_ns, 0);
    assert_int_equal(tb_path_decide(&l.path, 200 * MS, BYTES, 0).late_ns, 0);
    lane_init(&l, TB_PATH_RATE, 0);
    assert_int_equal(tb_path_decide(&l.path, 100 * MS, BYTES, 5 * MS).late_ns, 5 * MS);
}

/* Behind a queue it would have waited anyway. */
static void a_packet_that_was_read_late_behind_a_queue_is_not_late(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_RATE, 12000000);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(tb_path_decide(&l.path, 100 * MS, BYTES, 0).late_ns, 0);
    assert_int_equal(tb_path_decide(&l.path, 105 * MS, BYTES, 5 * MS).late_ns, 0);
    assert_int_equal(tb_path_decide(&l.path, 114 * MS, BYTES, 5 * MS).late_ns, 3 * MS);
}

static void loss_is_as_frequent_as_asked(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_LOSS, PER_CENT);
    assert_in_range(100000 - send_many(&l, 100000), 900, 1100);
    lane_init(&l, TB_PATH_LOSS, TB_PATH_PPB);
    assert_int_equal(send_many(&l, 1000), 0);
}

static void bursts_have_their_length(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_BURST_ENTER, PER_CENT / 10);
    l.path.now.value[TB_PATH_BURST_LEAVE] = 20 * PER_CENT;
    const uint32_t lost = 1000000 - send_many(&l, 1000000);
    assert_in_range(l.path.counters.bursts, 900, 1100);
    assert_in_range(lost / l.path.counters.bursts, 4, 6); /* 1 / 20 % */
}

static void a_burst_that_is_never_left_loses_the_rest(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_BURST_ENTER, TB_PATH_PPB);
    assert_int_equal(send_many(&l, 1000), 0);
    assert_int_equal(l.path.counters.bursts, 1);
}

static void doubled_flipped_and_reordered_as_often_as_asked(void **state)
{
    (void)state;
    static const enum tb_path_key faults[] = {TB_PATH_DUPLICATE, TB_PATH_CORRUPT, TB_PATH_REORDER};
    for (uint32_t f = 0; f < 3; f++) {
        struct lane l;
        lane_init(&l, faults[f], 5 * PER_CENT);
        for (int64_t i = 0; i < 100000; i++) {
            const struct tb_path_verdict v = tb_path_decide(&l.path, i, BYTES, 0);
            assert_true(!v.flip || v.flip_bit < BYTES * 8);
            assert_true(v.arrival == i + 40 * MS || (faults[f] == TB_PATH_REORDER && v.arrival == i));
        }
        const struct tb_path_counters *c = &l.path.counters;
        const uint64_t seen[] = {c->duplicated, c->corrupted, c->reordered};
        for (uint32_t g = 0; g < 3; g++)
            assert_in_range(seen[g], g == f ? 4700 : 0, g == f ? 5300 : 0);
    }
}

static uint32_t overtaken(bool keep_order)
{
    struct lane l;
    lane_init(&l, TB_PATH_JITTER, 10 * MS);
    l.path.now.value[TB_PATH_KEEP_ORDER] = keep_order;
    uint32_t count = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < 10000; i++) {
        const int64_t at = tb_path_decide(&l.path, i * MS, BYTES, 0).arrival;
        assert_in_range(at - i * MS, 40 * MS, 51 * MS);
        count += at < last;
        last = at;
    }
    return count;
}

static void jitter_overtakes_unless_order_is_kept(void **state)
{
    (void)state;
    assert_in_range(overtaken(false), 2000, 6000);
    assert_int_equal(overtaken(true), 0);
}

static void packets_over_the_mtu_vanish(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_MTU, 1400);
    assert_int_equal(tb_path_decide(&l.path, 0, 1400, 0).fate, TB_PATH_ARRIVES);
    assert_int_equal(tb_path_decide(&l.path, 0, 1401, 0).fate, TB_PATH_LOST_MTU);
}

static void a_cut_comes_and_goes_by_the_schedule(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_CUT, 0);
    struct tb_path_change c = {.at = 100 * MS, .every = 1000 * (int64_t)MS, .mask = 1u << TB_PATH_CUT};
    c.to.value[TB_PATH_CUT] = 1;
    assert_true(tb_path_schedule(&l.path, &c));
    c.at = 300 * MS;
    c.to.value[TB_PATH_CUT] = 0;
    assert_true(tb_path_schedule(&l.path, &c));
    for (int64_t ms = 0; ms < 5000; ms++) {
        const bool cut = ms % 1000 >= 100 && ms % 1000 < 300;
        assert_int_equal(tb_path_decide(&l.path, ms * MS, BYTES, 0).fate,
                         cut ? TB_PATH_LOST_CUT : TB_PATH_ARRIVES);
    }
    assert_int_equal(l.path.counters.lost_cut, 1000);
}

static void a_turn_holds_from_the_next_packet_on(void **state)
{
    (void)state;
    struct lane l;
    struct tb_path_settings to = {.value = {[TB_PATH_CUT] = 1, [TB_PATH_DELAY] = 7 * MS}};
    lane_init(&l, TB_PATH_DELAY, 40 * MS);
    tb_path_turn(&l.path, 1, 1u << TB_PATH_CUT, &to);
    assert_int_equal(tb_path_decide(&l.path, 1, BYTES, 0).fate, TB_PATH_LOST_CUT);
    to.value[TB_PATH_CUT] = 0;
    tb_path_turn(&l.path, 2, 1u << TB_PATH_CUT, &to);
    const struct tb_path_verdict v = tb_path_decide(&l.path, 2, BYTES, 0);
    assert_true(v.fate == TB_PATH_ARRIVES && v.arrival == 2 + 40 * MS); /* what is not in the mask stays */
}

static void too_many_changes_are_refused(void **state)
{
    (void)state;
    struct lane l;
    lane_init(&l, TB_PATH_CUT, 0);
    const struct tb_path_change c = {.at = 1, .mask = 1};
    for (uint32_t i = 0; i < TB_PATH_CHANGES_MAX; i++)
        assert_true(tb_path_schedule(&l.path, &c));
    assert_false(tb_path_schedule(&l.path, &c));
}

/* The fate of each of 2000 packets, with all faults on. */
static uint64_t trace(uint64_t seed, uint32_t number, int64_t apart, uint64_t loss)
{
    struct tb_path_queue queue = {0};
    struct tb_path_settings s = {.value = {[TB_PATH_DELAY] = MS,
                                           [TB_PATH_JITTER] = MS,
                                           [TB_PATH_LOSS] = loss,
                                           [TB_PATH_DUPLICATE] = PER_CENT,
                                           [TB_PATH_CORRUPT] = PER_CENT,
                                           [TB_PATH_REORDER] = PER_CENT}};
    struct tb_path p;
    tb_path_init(&p, &s, &queue, seed, number);
    for (int64_t i = 0; i < 2000; i++)
        (void)tb_path_decide(&p, i * apart, BYTES, 0);
    return p.counters.decisions_hash;
}

static void the_same_seed_decides_the_same(void **state)
{
    (void)state;
    assert_int_equal(trace(1, 0, MS, PER_CENT), trace(1, 0, MS, PER_CENT));
    assert_int_equal(trace(1, 0, MS, PER_CENT), trace(1, 0, 3 * MS, PER_CENT)); /* whenever they come */
    assert_int_not_equal(trace(1, 0, MS, PER_CENT), trace(2, 0, MS, PER_CENT));
    assert_int_not_equal(trace(1, 0, MS, PER_CENT),
                         trace(1, 1, MS, PER_CENT)); /* each path has draws of its own */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_path_only_delays),
        cmocka_unit_test(packets_leave_at_the_rate),
        cmocka_unit_test(a_full_queue_drops_and_an_empty_one_does_not),
        cmocka_unit_test(paths_that_share_a_queue_share_its_rate),
        cmocka_unit_test(a_queue_drains_at_the_rate_that_rises),
        cmocka_unit_test(a_queue_drains_at_the_rate_that_falls),
        cmocka_unit_test(a_schedule_changes_the_rate_while_no_packet_comes),
        cmocka_unit_test(paths_that_share_a_queue_change_its_rate_once),
        cmocka_unit_test(packets_that_were_read_late_are_late),
        cmocka_unit_test(a_packet_that_was_read_late_behind_a_queue_is_not_late),
        cmocka_unit_test(loss_is_as_frequent_as_asked),
        cmocka_unit_test(bursts_have_their_length),
        cmocka_unit_test(a_burst_that_is_never_left_loses_the_rest),
        cmocka_unit_test(doubled_flipped_and_reordered_as_often_as_asked),
        cmocka_unit_test(jitter_overtakes_unless_order_is_kept),
        cmocka_unit_test(packets_over_the_mtu_vanish),
        cmocka_unit_test(a_cut_comes_and_goes_by_the_schedule),
        cmocka_unit_test(a_turn_holds_from_the_next_packet_on),
        cmocka_unit_test(too_many_changes_are_refused),
        cmocka_unit_test(the_same_seed_decides_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

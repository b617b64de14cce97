/* Several sites send one version: the fastest sends most, nothing comes twice but chunks that were
 * on their way, and no source holds it up. Virtual time: a source sends chunks that it may send,
 * at its rate, and they are here half a round trip later.
 *
 * Covers: wan/send/source_division.c wan/send/source_division_table.c */
#include "source_division_world.h"

#include <string.h>

#include "tests/unit/check.h"

/* P5: two that hold all, one four times as fast: the work is divided so, and little comes twice. */
static void the_fastest_brings_most(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 0);
    const struct sender *fast = divide_world_source(&w, 80 << 20, 40, 0, CHUNKS);
    const struct sender *slow = divide_world_source(&w, 20 << 20, 80, 0, CHUNKS);
    divide_world_run(&w, 20000);
    assert_int_equal(w.held, CHUNKS);
    assert_in_range(w.ms, 2000, 3000); /* 200 MiB at 100 MiB/s */
    assert_in_range(fast->chunks_sent, 130, 175);
    assert_in_range(slow->chunks_sent, 25, 70);
    assert_in_range(w.twice, 0, 4);
    divide_world_fini(&w);
}

/* P6: each has what the other has not; home is cut off. */
static void halves_complete_each_other(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 30000);
    (void)divide_world_source(&w, 50 << 20, 40, 0, 120);
    (void)divide_world_source(&w, 50 << 20, 40, 80, CHUNKS);
    divide_world_run(&w, 20000);
    assert_int_equal(w.held, CHUNKS);
    assert_in_range(w.ms, 2000, 3200);
    assert_in_range(w.twice, 0, 4);
    divide_world_fini(&w);
}

/* P6: one falls silent with chunks that it was given: they come from the other, a second later. */
static void a_source_that_falls_silent_is_done_without(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 0);
    struct sender *one = divide_world_source(&w, 50 << 20, 40, 0, CHUNKS);
    (void)divide_world_source(&w, 50 << 20, 40, 0, CHUNKS);
    divide_world_run(&w, 500);
    one->bytes_per_s = 0;
    divide_world_run(&w, 20000);
    assert_int_equal(w.held, CHUNKS);
    assert_in_range(w.ms, 3000, 6000);
    divide_world_fini(&w);
}

/* P6: one source brings no chunk any more, and still bytes: a trickle, or many that are dropped.
 * The other brings the chunks that it was given. */
static void a_source_of_bytes_without_chunks_is_done_without(void **state)
{
    (void)state;
    for (uint64_t dropped = 0; dropped <= (uint64_t)50 << 20; dropped += (uint64_t)50 << 20) {
        struct world w;
        divide_world_init(&w, 0);
        struct sender *one = divide_world_source(&w, 50 << 20, 40, 0, CHUNKS);
        (void)divide_world_source(&w, 50 << 20, 40, 0, CHUNKS);
        divide_world_run(&w, 500);
        one->bytes_per_s = 1 << 10;
        one->dropped_per_s = dropped;
        divide_world_run(&w, 60000);
        assert_int_equal(w.held, CHUNKS);
        assert_in_range(w.ms, 3000, 6000);
        assert_in_range(w.twice, 0, 1);
        divide_world_fini(&w);
    }
}

/* One that leaves is as one that never was, and may come back. */
static void a_source_that_leaves_gives_back(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 0);
    (void)divide_world_source(&w, 50 << 20, 40, 0, CHUNKS);
    const struct sender *two = divide_world_source(&w, 50 << 20, 40, 0, CHUNKS);
    divide_world_run(&w, 300);
    tb_divide_leave(&w.d, two->source);
    assert_int_equal(tb_divide_count(&w.d), 1);
    divide_world_run(&w, 20000);
    assert_int_equal(w.held, CHUNKS);
    divide_world_fini(&w);
}

/* A relay has more with time: what it says it has is asked of it then. */
static void a_source_that_fills_is_asked_for_what_it_has(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 0);
    struct sender *relay = divide_world_source(&w, 100 << 20, 20, 0, 0);
    divide_world_run(&w, 1000);
    assert_int_equal(w.held, 0);
    for (uint32_t k = 0; k < CHUNKS; k += 20) {
        for (uint32_t i = k; i < k + 20; i++)
            tb_bitmap_set(relay->has, i);
        divide_world_have(&w, relay);
        divide_world_run(&w, w.ms + 600);
        assert_int_equal(w.held, k + 20);
    }
    divide_world_fini(&w);
}

/* P5: a chunk may take longer than a silence. */
static void a_large_chunk_on_a_slow_path_is_no_silence(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 0);
    (void)divide_world_source(&w, 128 << 10, 40, 0, 12); /* a chunk takes 8 s */
    (void)divide_world_source(&w, 128 << 10, 40, 0, 12);
    w.goal = 12;
    divide_world_run(&w, 100000);
    assert_int_equal(w.held, 12);
    assert_in_range(w.ms, 48000, 64100);
    assert_int_equal(w.twice, 0);
    divide_world_fini(&w);
}

/* P5: neither is a time in which our own process stood still. */
static void our_own_sleep_is_nobodys_silence(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 0);
    (void)divide_world_source(&w, 50 << 20, 40, 0, CHUNKS);
    (void)divide_world_source(&w, 50 << 20, 40, 0, CHUNKS);
    divide_world_run(&w, 500);
    const uint64_t before[2] = {w.d.sources[0].given_bytes, w.d.sources[1].given_bytes};
    assert_true(before[0] > 0 && before[1] > 0);
    w.ms += 3000; /* what comes meanwhile was not read */
    tb_divide_step(&w.d, divide_world_now(&w));
    assert_true(w.d.sources[0].given_bytes >= before[0] && w.d.sources[1].given_bytes >= before[1]);
    assert_false(w.d.sources[0].silent || w.d.sources[1].silent);
    divide_world_run(&w, 20000);
    assert_int_equal(w.held, CHUNKS);
    assert_in_range(w.twice, 0, 4);
    divide_world_fini(&w);
}

/* ---- lanes: two gateways of one site, each with a far source of its own and the other one near
 * ---- */

#define NEAR_PER_S ((uint64_t)400 << 20)

static void lane_init(struct world *w, uint16_t start, uint32_t lane, uint64_t bytes_per_s)
{
    divide_world_init(w, start);
    tb_divide_lane(&w->d, lane, 2);
    (void)divide_world_source(w, bytes_per_s, 40, 0, CHUNKS);
    const struct sender *other = divide_world_source(w, NEAR_PER_S, 1, 0, 0);
    tb_divide_near(&w->d, other->source);
}

/* The near source of each lane has the chunks that the other lane holds. */
static void see(struct world *w, const struct world *other)
{
    struct sender *near = &w->senders[1];
    if (!w->d.sources[near->source].on || near->mute) return;
    memcpy(near->has, other->small.held, sizeof near->has);
    divide_world_have(w, near);
}

static uint32_t run_both(struct world *a, struct world *b, uint32_t until_ms)
{
    while (a->ms < until_ms && (a->held < CHUNKS || b->held < CHUNKS)) {
        see(a, b);
        see(b, a);
        const uint32_t next = a->ms + STEP_MS;
        divide_world_run(a, next);
        divide_world_run(b, next);
        a->ms = b->ms = next;
    }
    return a->ms;
}

/* P5: two paths are twice one, and nothing crosses by both. Wherever the site begins: a share
 * may go around the end. */
static void two_lanes_are_twice_one(void **state)
{
    (void)state;
    for (uint32_t start = 0; start < 65536; start += 9000) {
        struct world a, b;
        lane_init(&a, (uint16_t)start, 0, 20 << 20);
        lane_init(&b, (uint16_t)start, 1, 20 << 20);
        const uint32_t ms = run_both(&a, &b, 20000);
        assert_int_equal(a.held + b.held, 2 * CHUNKS);
        assert_in_range(ms, 5000, 5263); /* 200 MiB at 40 MiB/s; 1.9 of one */
        assert_in_range(a.senders[0].chunks_sent + b.senders[0].chunks_sent, CHUNKS, CHUNKS + 4);
        divide_world_fini(&a);
        divide_world_fini(&b);
    }
}

/* P5: streams have a chunk each in hand when a lane is done, and those are not fetched by both
 * paths; be they so many that each takes half a second for it, or four, and one lane much
 * faster than the other. */
static void a_chunk_in_another_lanes_hand_is_left_to_it(void **state)
{
    (void)state;
    const struct {
        uint32_t streams, fast_mib, slow_mib, least_ms, most_ms;
    } rows[] = {{STREAMS_MAX, 18, 16, 5880, 6800},
                {4, 26, 16, 4760, 5400},
                {4, 26, 4, 6660, 8200},
                {4, 16, 4, 10000, 12500}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (uint32_t start = 0; start < 65536; start += 9000) {
            struct world a, b;
            lane_init(&a, (uint16_t)start, 0, (uint64_t)rows[i].fast_mib << 20);
            lane_init(&b, (uint16_t)start, 1, (uint64_t)rows[i].slow_mib << 20);
            a.senders[0].stream_count = b.senders[0].stream_count = rows[i].streams;
            const uint32_t ms = run_both(&a, &b, 60000);
            assert_in_range(ms, rows[i].least_ms, rows[i].most_ms);
            assert_int_equal(a.senders[0].chunks_sent + b.senders[0].chunks_sent, CHUNKS);
            divide_world_fini(&a);
            divide_world_fini(&b);
        }
}

/* P6: unless it has become so slow that they would come late. */
static void a_chunk_that_a_lane_does_not_bring_comes_from_another(void **state)
{
    (void)state;
    struct world a, b;
    lane_init(&a, 0, 0, 4 << 20);
    lane_init(&b, 0, 1, 4 << 20);
    a.senders[0].stream_count = b.senders[0].stream_count = STREAMS_MAX;
    (void)run_both(&a, &b, 20000);
    assert_true(a.held < CHUNKS);
    b.senders[0].bytes_per_s = 1 << 10;
    const uint32_t ms = run_both(&a, &b, 200000);
    assert_int_equal(a.held + b.held, 2 * CHUNKS);
    assert_in_range(ms, 25000, 45000);
    divide_world_fini(&a);
    divide_world_fini(&b);
}

/* P5: a gateway that is busy says nothing for seconds, and its path goes on. Chunks that
 * its path brings do not come by another path, too. */
static void a_lane_that_says_nothing_is_not_late(void **state)
{
    (void)state;
    for (uint32_t start = 0; start < 65536; start += 9000) {
        struct world a, b;
        lane_init(&a, (uint16_t)start, 0, 20 << 20);
        lane_init(&b, (uint16_t)start, 1, 20 << 20);
        a.senders[0].stream_count = b.senders[0].stream_count = 4;
        (void)run_both(&a, &b, 2000);
        a.senders[1].mute = true;
        (void)run_both(&a, &b, 9000);
        assert_true(a.held < CHUNKS);
        a.senders[1].mute = false;
        (void)run_both(&a, &b, 20000);
        assert_int_equal(a.held + b.held, 2 * CHUNKS);
        assert_int_equal(a.senders[0].chunks_sent + b.senders[0].chunks_sent, CHUNKS);
        assert_int_equal(a.d.sources[0].again_bytes + b.d.sources[0].again_bytes, 0);
        divide_world_fini(&a);
        divide_world_fini(&b);
    }
}

/* P5: the words of a lane come late, and then say that it holds all of its share. It was asked for
 * nothing before, so nobody knows its rate, and that is not slowness. */
static void a_lane_of_unknown_rate_is_not_slow(void **state)
{
    (void)state;
    struct world w;
    lane_init(&w, 0, 0, 20 << 20);
    struct sender *near = &w.senders[1];
    near->mute = true;
    divide_world_run(&w, 6000);
    assert_int_equal(w.held, CHUNKS / 2);
    for (uint32_t k = CHUNKS / 2; k < CHUNKS; k++)
        tb_bitmap_set(near->has, k);
    divide_world_have(&w, near);
    near->mute = false;
    divide_world_run(&w, 20000);
    assert_int_equal(w.held, CHUNKS);
    assert_int_equal(w.senders[0].chunks_sent, CHUNKS / 2);
    divide_world_fini(&w);
}

/* P5: a path stands still for two seconds. No other source could send its share, so it keeps that,
 * and a chunk that is half here is not begun again. */
static void the_only_far_source_keeps_its_share(void **state)
{
    (void)state;
    struct world w;
    lane_init(&w, 0, 0, 20 << 20);
    divide_world_run(&w, 1000);
    const uint64_t given = w.d.sources[0].given_bytes;
    w.senders[0].bytes_per_s = 0;
    divide_world_run(&w, 3000);
    assert_false(w.d.sources[0].silent);
    assert_true(given > 0 && w.d.sources[0].given_bytes + 4 * CHUNK_BYTES >= given);
    divide_world_fini(&w);
}

/* Far away and fast: a path has the content of half a second, and is full from the first round trip
 * on, however seldom we look. */
static void a_share_is_given_whole(void **state)
{
    (void)state;
    struct world a, b;
    lane_init(&a, 20000, 0, 200 << 20);
    lane_init(&b, 20000, 1, 200 << 20);
    a.senders[0].rtt_ms = b.senders[0].rtt_ms = 200;
    tb_divide_rtt(&a.d, a.senders[0].source, TB_MS(200));
    tb_divide_rtt(&b.d, b.senders[0].source, TB_MS(200));
    const uint32_t ms = run_both(&a, &b, 20000);
    assert_in_range(ms, 600, 680); /* half of 200 MiB, and half a round trip */
    assert_int_equal(a.senders[0].chunks_sent + b.senders[0].chunks_sent, CHUNKS);
    divide_world_fini(&a);
    divide_world_fini(&b);
}

/* A share is counted in bytes: a version's small chunks stand together. */
static void shares_have_as_many_bytes(void **state)
{
    (void)state;
    for (uint32_t start = 0; start < 65536; start += 9000) {
        struct world w;
        uint64_t sums[3] = {0}, all = 0;
        for (uint32_t lane = 0; lane < 3; lane++) {
            divide_world_init_uneven(&w, (uint16_t)start, 90);
            all = w.d.ours_lacking_bytes;
            tb_divide_lane(&w.d, lane, 3);
            sums[lane] = w.d.ours_lacking_bytes;
            assert_int_equal(sums[lane] + w.d.theirs_lacking_bytes, all);
            divide_world_fini(&w);
        }
        assert_int_equal(sums[0] + sums[1] + sums[2], all);
        for (uint32_t lane = 0; lane < 3; lane++)
            assert_in_range(sums[lane], all / 3 - CHUNK_BYTES, all / 3 + CHUNK_BYTES);
    }
}

/* A site that was alone was given all of a share: one that joins it gets its part of that, and
 * hardly anything comes twice. */
static void a_joining_source_gets_a_part(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 40000);
    (void)divide_world_source(&w, 20 << 20, 40, 0, CHUNKS);
    divide_world_run(&w, 1000);
    assert_int_equal(w.d.sources[0].given_bytes, (uint64_t)(CHUNKS - w.held) * CHUNK_BYTES);
    const struct sender *two = divide_world_source(&w, 20 << 20, 40, 0, CHUNKS);
    divide_world_run(&w, 20000);
    assert_int_equal(w.held, CHUNKS);
    assert_in_range(w.ms, 5300, 6000); /* 20 MiB alone, and the rest by two */
    assert_in_range(two->chunks_sent, 80, 100);
    assert_in_range(w.twice, 0, 3);
    divide_world_fini(&w);
}

/* P6: a lane with a slow path is helped, from its end. */
static void a_slow_lane_is_helped(void **state)
{
    (void)state;
    struct world a, b;
    lane_init(&a, 20000, 0, 36 << 20);
    lane_init(&b, 20000, 1, 4 << 20);
    const uint32_t ms = run_both(&a, &b, 20000);
    assert_in_range(
        ms, 5000,
        6000); /* as much by both paths as before; a chunk takes the slow one a quarter of a second */
    assert_in_range(a.senders[0].chunks_sent + b.senders[0].chunks_sent, CHUNKS, CHUNKS + 8);
    const uint64_t again = a.d.sources[0].again_bytes; /* all that the fast lane asked of the slow one's */
    assert_in_range(again, 60 * CHUNK_BYTES, 100 * CHUNK_BYTES);
    assert_int_equal(b.d.sources[0].again_bytes, 0);
    assert_true(a.senders[0].chunks_sent * (uint64_t)CHUNK_BYTES <= a.d.share * CHUNK_BYTES + again);
    divide_world_fini(&a);
    divide_world_fini(&b);
}

/* P6: the other lane's gateway is killed: its share comes by the path that is left, and none
 * of what it had given. */
static void a_lane_that_goes_is_done_without(void **state)
{
    (void)state;
    struct world a, b;
    lane_init(&a, 0, 0, 20 << 20);
    lane_init(&b, 0, 1, 20 << 20);
    (void)run_both(&a, &b, 2000);
    const uint32_t held = a.held;
    assert_in_range(held, 60, 80);
    const uint32_t before = a.senders[0].chunks_sent;
    tb_divide_leave(&a.d, a.senders[1].source);
    divide_world_run(&a, 20000);
    assert_int_equal(a.held, CHUNKS);
    assert_in_range(a.senders[0].chunks_sent - before, CHUNKS - held - 4, CHUNKS - held + 1);
    divide_world_fini(&a);
    divide_world_fini(&b);
}

/* P6: another lane that has everything and is slow: what the path from far takes over from
 * it stays taken over. */
static void a_stolen_chunk_stays_stolen(void **state)
{
    (void)state;
    struct world w;
    uint32_t stolen = 0, undone = 0;
    divide_world_init(&w, 0);
    tb_divide_lane(&w.d, 0, 2);
    struct sender *far = divide_world_source(&w, 20 << 20, 40, 0, CHUNKS),
                  *near = divide_world_source(&w, 1 << 20, 1, 0, 0);
    tb_divide_near(&w.d, near->source);
    divide_world_run(&w, 500);
    memcpy(near->has, far->has, sizeof near->has);
    divide_world_have(&w, near);
    divide_world_run(&w, 500 + STEP_MS);
    for (uint32_t i = 0; i < 400; i++) {
        uint64_t before[4];
        memcpy(before, far->take, sizeof before);
        divide_world_run(&w, w.ms + STEP_MS);
        for (uint32_t k = 0; k < 4; k++) {
            stolen += (uint32_t)__builtin_popcountll(far->take[k] & ~before[k]);
            undone += (uint32_t)__builtin_popcountll(before[k] & ~far->take[k] & ~w.small.held[k]);
        }
    }
    assert_int_equal(undone, 0);
    assert_in_range(stolen, 1, CHUNKS);
    divide_world_fini(&w);
}

static void nobody_is_told_of_chunks_that_are_not(void **state)
{
    (void)state;
    struct world w;
    divide_world_init(&w, 0);
    const struct sender *s = divide_world_source(&w, 1, 1, 0, 0);
    const struct tb_held_word past = {3, UINT64_C(1) << 8}, far = {4, 1}; /* chunk 200; word 4 */
    struct tb_span words = small_words(&past, 1);
    CHECK_STATUS(tb_divide_has(&w.d, s->source, 0, &words), TB_PEER_GARBLED);
    words = small_words(&far, 1);
    CHECK_STATUS(tb_divide_has(&w.d, s->source, 0, &words), TB_PEER_GARBLED);
    CHECK_STATUS(tb_divide_has(&w.d, s->source, 1, &words), TB_PEER_GARBLED);
    for (uint32_t i = 1; i < TB_DIVIDE_SOURCES_MAX; i++)
        assert_int_equal(tb_divide_join(&w.d, divide_world_now(&w)), i);
    assert_int_equal(tb_divide_join(&w.d, divide_world_now(&w)), TB_DIVIDE_NONE);
    divide_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_brings_most),
        cmocka_unit_test(halves_complete_each_other),
        cmocka_unit_test(a_source_that_falls_silent_is_done_without),
        cmocka_unit_test(a_source_of_bytes_without_chunks_is_done_without),
        cmocka_unit_test(a_source_that_leaves_gives_back),
        cmocka_unit_test(a_source_that_fills_is_asked_for_what_it_has),
        cmocka_unit_test(a_large_chunk_on_a_slow_path_is_no_silence),
        cmocka_unit_test(our_own_sleep_is_nobodys_silence),
        cmocka_unit_test(two_lanes_are_twice_one),
        cmocka_unit_test(a_chunk_in_another_lanes_hand_is_left_to_it),
        cmocka_unit_test(a_chunk_that_a_lane_does_not_bring_comes_from_another),
        cmocka_unit_test(a_lane_that_says_nothing_is_not_late),
        cmocka_unit_test(a_lane_of_unknown_rate_is_not_slow),
        cmocka_unit_test(the_only_far_source_keeps_its_share),
        cmocka_unit_test(a_share_is_given_whole),
        cmocka_unit_test(shares_have_as_many_bytes),
        cmocka_unit_test(a_joining_source_gets_a_part),
        cmocka_unit_test(a_slow_lane_is_helped),
        cmocka_unit_test(a_lane_that_goes_is_done_without),
        cmocka_unit_test(a_stolen_chunk_stays_stolen),
        cmocka_unit_test(nobody_is_told_of_chunks_that_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

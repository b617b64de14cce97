/* hedge.c - when a parcel is late, and how much may go again. Parcels of one chunk of 1
 * MiB, in virtual time.
 *
 * Covers: wan/send/hedge.c */
#include "wan/send/hedge.h"

#include <stdlib.h>

#include "small_places.h"
#include "tests/unit/check.h"
#include "wan/send/outbound_parcels.h"

#define CHUNKS   200u
#define CHUNK    (1u << 20)
#define CROSSING 7u

struct fixture {
    struct small_place shard;
    struct tb_place place;
    struct tb_outbound c;
    struct tb_hedge h;
    uint64_t told[CHUNKS / 64 + 1];
    void *memory;
    tb_time_ns now, takes; /* how long a parcel does */
    uint64_t hedged_bytes;
    bool on_base;
};

static void setup(struct fixture *f, uint32_t chunks, uint32_t permille)
{
    memset(f, 0, sizeof *f);
    small_place_init(&f->shard, chunks, CHUNK, &f->place);
    small_place_hold(&f->shard, 0, chunks);
    f->memory = malloc(tb_outbound_bytes_for(&f->place, 1));
    tb_outbound_init(&f->c, &f->place, 1, f->memory);
    CHECK_OK(tb_outbound_start(&f->c));
    tb_hedge_init(&f->h, permille);
    f->now = TB_SECONDS(1);
    f->takes = TB_MS(100);
}

/* A stream takes the next parcel. */
static uint32_t take(struct fixture *f, uint8_t slot)
{
    struct tb_hedge_way way = {.crossing = CROSSING, .slot = slot, .on_base = f->on_base};
    assert_true(tb_outbound_next(&f->c, &way.parcel));
    tb_outbound_taken(&f->c, &way.parcel, slot);
    tb_hedge_taken(&f->h, f->now, &way, &f->c);
    return way.parcel.first;
}

/* A stream takes what goes again. */
static void take_again(struct fixture *f, const struct tb_parcel *parcel, uint8_t slot)
{
    const struct tb_hedge_way way = {
        .crossing = CROSSING, .slot = slot, .on_base = f->on_base, .again = true, .parcel = *parcel};
    tb_outbound_taken(&f->c, parcel, slot);
    tb_hedge_taken(&f->h, f->now, &way, &f->c);
}

static void arrive(struct fixture *f, uint32_t chunk)
{
    f->told[chunk / 64] |= UINT64_C(1) << (chunk % 64);
    const struct tb_span span = small_words(&(struct tb_held_word){chunk / 64, f->told[chunk / 64]}, 1);
    CHECK_OK(tb_outbound_held(&f->c, 0, &span));
    tb_hedge_held(&f->h, f->now, CROSSING, &f->c);
}

/* Slots `from` to `to` carry a parcel each, in 100 ms if not said otherwise. */
static void rounds(struct fixture *f, uint32_t count, uint8_t from, uint8_t to)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t chunks[TB_HEDGE_SLOTS_MAX];
        for (uint8_t s = from; s < to; s++)
            chunks[s] = take(f, s);
        f->now += f->takes;
        for (uint8_t s = from; s < to; s++)
            arrive(f, chunks[s]);
    }
}

static bool next(struct fixture *f, struct tb_hedge_again *again_out)
{
    if (!tb_hedge_next(&f->h, f->now, CROSSING, &f->c, again_out)) return false;
    tb_outbound_again(&f->c, &again_out->parcel);
    f->hedged_bytes += again_out->parcel.bytes;
    return true;
}

/* A pushed parcel stood there until START: that is not how long parcels take. */
static void time_before_start_is_not_learned(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, CHUNKS, 20);
    for (int i = 0; i < 16; i++) {
        const uint32_t chunk = take(&f, (uint8_t)(i % 4));
        f.now += TB_SECONDS(1);
        tb_hedge_started(&f.h, f.now, CROSSING);
        f.now += TB_MS(100);
        arrive(&f, chunk);
    }
    assert_int_equal(tb_hedge_usual(&f.h.kinds[0]), TB_MS(100));
    free(f.memory);
}

/* P6: near the end what a stalled stream has goes again, by others, once. */
static void the_last_parcel_of_a_stalled_stream_goes_again(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 61, 20);
    const uint32_t stuck = take(&f, 0);
    rounds(&f, 15, 1, 5);
    assert_true(tb_outbound_all_on_their_way(&f.c));
    assert_true(next(&f, &again));
    assert_int_equal(again.parcel.first, stuck);
    assert_int_equal(again.parcel.count, 1);
    assert_true((again.avoid & 1) != 0);
    assert_int_equal(again.avoid & ~UINT64_C(1), 0);
    assert_false(next(&f, &again));
    assert_int_equal(f.hedged_bytes, CHUNK);
    free(f.memory);
}

/* Its twin: a parcel that is no later than usual is let be, however near the end. */
static void a_parcel_in_time_goes_once(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 61, 20);
    rounds(&f, 15, 1, 5);
    (void)take(&f, 1);
    f.now += TB_MS(200);
    assert_false(next(&f, &again));
    assert_int_equal(f.hedged_bytes, 0);
    free(f.memory);
}

/* Before the end a slow stream keeps what it has: it still carries its share. */
static void a_slow_stream_is_left_alone_before_the_end(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, CHUNKS, 20);
    for (int i = 0; i < 3; i++) { /* a parcel a second by slot 0, each 100 ms by four others: at a tenth */
        const uint32_t slow = take(&f, 0);
        rounds(&f, 4, 1, 5);
        f.now += TB_MS(100);
        assert_false(next(&f, &again));
        arrive(&f, slow);
    }
    free(f.memory);
}

/* P6: one that stands still altogether loses what it has in the middle, so that the end
 * does not wait for it. */
static void a_stalled_stream_loses_its_parcel_before_the_end(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, CHUNKS, 20);
    rounds(&f, 12, 1, 6);
    const uint32_t stuck = take(&f, 0);
    rounds(&f, 6, 1, 6);
    assert_false(next(&f, &again)); /* 600 ms of 4 x 100 + 250 */
    rounds(&f, 1, 1, 6);
    assert_true(next(&f, &again));
    assert_int_equal(again.parcel.first, stuck);
    assert_false(tb_outbound_all_on_their_way(&f.c));
    free(f.memory);
}

/* A stream that is known to be slow is not waited for near the end: its parcels go again at
 * once. */
static void a_known_slow_stream_is_not_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 62, 40);
    const uint32_t first = take(&f, 0);
    rounds(&f, 10, 1, 5);
    arrive(&f, first); /* took a second */
    rounds(&f, 5, 1, 5);
    const uint32_t last = take(&f, 0);
    f.now += TB_MS(1);
    assert_false(next(&f, &again)); /* nothing came by another since it was taken */
    assert_true(tb_outbound_all_on_their_way(&f.c));
    f.h.slots[1].moved_at = f.now;
    f.now += TB_MS(1);
    assert_true(next(&f, &again));
    assert_int_equal(again.parcel.first, last);
    free(f.memory);
}

/* When nothing moves anywhere it is the link that stands still: a second copy would
 * stand behind the first. */
static void a_link_that_stands_still_hedges_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, CHUNKS, 20);
    rounds(&f, 12, 1, 5);
    for (uint8_t s = 1; s < 5; s++)
        (void)take(&f, s);
    f.now += TB_SECONDS(20);
    assert_false(next(&f, &again));
    free(f.memory);
}

/* At most so many thousandths of what was sent. */
static void hedges_stay_within_their_share(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 110, 20);
    for (int i = 0; i < 10; i++)
        (void)take(&f, 0);
    rounds(&f, 25, 1, 5);
    uint32_t count = 0;
    while (next(&f, &again))
        count++;
    assert_int_equal(count, 2); /* of 110 MiB */
    assert_true(f.hedged_bytes * 1000 <= 110 * (uint64_t)CHUNK * 20);
    free(f.memory);
}

/* P7: 64 versions before went without a hedge. The last four parcels of this one are stuck: what it
 * sent itself pays for one of them, those before it for another, and no more. */
static void versions_before_pay_for_one_parcel(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 64, 20);
    const struct tb_hedge_way before = {.parcel = {.bytes = (uint64_t)100 * CHUNK}, .again = false};
    for (uint32_t k = 1; k <= 64; k++) {
        struct tb_hedge_way way = before;
        way.crossing = CROSSING + k;
        tb_hedge_taken(&f.h, f.now, &way, &f.c);
        tb_hedge_over(&f.h, CROSSING + k);
    }
    for (int i = 0; i < 4; i++)
        (void)take(&f, 0);
    rounds(&f, 15, 1, 5);
    uint32_t count = 0;
    while (next(&f, &again))
        count++;
    assert_int_equal(count, 2);
    free(f.memory);
}

/* Its twin: a small version, whose own bytes would pay for none, has one. */
static void a_small_version_hedges_one_parcel(void **state)
{
    (void)state;
    for (int saved = 0; saved < 2; saved++) {
        struct fixture f;
        struct tb_hedge_again again;
        setup(&f, 17, 20);
        const struct tb_hedge_way way = {.crossing = CROSSING + 1, .parcel = {.bytes = (uint64_t)50 * CHUNK}};
        tb_hedge_taken(&f.h, f.now, &way, &f.c);
        if (saved) tb_hedge_over(&f.h, CROSSING + 1); /* else it may hedge its own yet */
        (void)take(&f, 0);
        rounds(&f, 4, 1, 5);
        f.now += TB_SECONDS(1);
        assert_int_equal(next(&f, &again), saved);
        assert_false(next(&f, &again));
        free(f.memory);
    }
}

/* Steps come in a tenth of the time: a whole chunk behind them is not late for that, and the bytes
 * they stand for pay for no second copy of it. */
static void deltas_say_nothing_of_a_full_copy(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 177, 20);
    rounds(&f, 12, 1, 5);
    f.on_base = true;
    f.takes = TB_MS(10);
    rounds(&f, 30, 1, 5);
    f.on_base = false;
    (void)take(&f, 0);
    for (uint8_t s = 1; s < 5; s++)
        (void)take(&f, s);
    f.now += TB_MS(90);
    for (uint32_t k = 169; k < 173; k++)
        arrive(&f, k);
    for (uint8_t s = 1; s < 5; s++)
        (void)take(&f, s);
    assert_true(tb_outbound_all_on_their_way(&f.c));
    f.now += TB_MS(100);
    assert_false(next(&f, &again)); /* 190 ms of 2 x 100 + 20 */
    f.now += TB_MS(100);
    f.h.credits[0].millibytes[0] -= 20 * 8 * CHUNK;
    assert_false(next(&f, &again)); /* late, but a chunk is more than a fiftieth of 49 */
    f.h.credits[0].millibytes[0] += 20 * 8 * CHUNK;
    assert_true(next(&f, &again));
    assert_int_equal(again.parcel.first, 168);
    free(f.memory);
}

/* Its twin: a time that is usual for whole chunks is late for a step. */
static void a_full_copy_says_nothing_of_deltas(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 137, 20);
    f.on_base = true;
    f.takes = TB_MS(10);
    rounds(&f, 20, 1, 5);
    f.on_base = false;
    f.takes = TB_SECONDS(1);
    rounds(&f, 10, 1, 5);
    f.on_base = true;
    f.takes = TB_MS(10);
    const uint32_t stuck = take(&f, 0);
    rounds(&f, 4, 1, 5);
    assert_false(next(&f, &again)); /* 40 ms of 2 x 10 + 20 */
    f.now += TB_MS(1);
    assert_true(next(&f, &again));
    assert_int_equal(again.parcel.first, stuck);
    free(f.memory);
}

/* A chunk whose base its peer has lost goes whole in the middle of a step, and is as
 * slow as others that do. */
static void a_chunk_without_its_base_is_no_delta(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 101, 20);
    f.on_base = true;
    f.takes = TB_MS(10);
    rounds(&f, 20, 1, 5);
    const uint32_t refused = take(&f, 0);
    tb_hedge_over(&f.h, CROSSING);
    uint32_t times;
    const struct tb_frame_refused no_base = {
        .crossing = CROSSING, .chunk = refused, .why = TB_REFUSAL_NO_BASE};
    CHECK_OK(tb_outbound_refused(&f.c, &no_base, &times));
    rounds(&f, 4, 1, 5);
    for (uint8_t s = 1; s < 5; s++)
        (void)take(&f, s);
    assert_int_equal(take(&f, 0), refused);
    assert_int_equal(f.h.kinds[1].left_millibytes, 20 * 81 * CHUNK); /* over, above */
    assert_int_equal(f.h.credits[0].millibytes[1], 20 * 20 * CHUNK);
    assert_int_equal(f.h.credits[0].millibytes[0], 20 * CHUNK);
    assert_true(tb_outbound_all_on_their_way(&f.c));
    f.now += TB_MS(50);
    for (uint32_t k = 97; k < 101; k++)
        arrive(&f, k);
    assert_false(next(&f, &again)); /* 50 ms, which for a step were late */
    assert_int_equal(tb_hedge_usual(&f.h.kinds[0]), 0);
    arrive(&f, refused);
    assert_int_equal(f.h.slots[0].parcel_ns[0], TB_MS(50));
    free(f.memory);
}

/* The second way dies with its stream: the first is the only one again, and may be given a
 * second. */
static void a_second_way_that_is_lost_is_made_up_for(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 121, 20);
    const uint32_t stuck = take(&f, 0);
    rounds(&f, 30, 1, 5);
    assert_true(next(&f, &again));
    take_again(&f, &again.parcel, 1);
    assert_false(next(&f, &again));
    assert_int_equal(tb_outbound_stream_gone(&f.c, 1), 0);
    tb_hedge_stream_gone(&f.h, 1);
    assert_true(next(&f, &again));
    assert_int_equal(again.parcel.first, stuck);
    free(f.memory);
}

/* The first way dies: the second is the only one, and nothing goes a third time because of it. */
static void a_first_way_that_is_lost_leaves_the_second(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    struct tb_parcel parcel;
    setup(&f, 61, 20);
    const uint32_t stuck = take(&f, 0);
    rounds(&f, 15, 1, 5);
    assert_true(next(&f, &again));
    take_again(&f, &again.parcel, 1);
    assert_int_equal(tb_outbound_stream_gone(&f.c, 0), 0);
    tb_hedge_stream_gone(&f.h, 0);
    assert_false(tb_outbound_next(&f.c, &parcel));
    f.now += TB_MS(100);
    arrive(&f, stuck);
    assert_true(tb_outbound_whole(&f.c));
    assert_int_equal(f.h.way_count, 0);
    free(f.memory);
}

/* It came, was refused, and goes again: of its two journeys the one that ended is not late, and one
 * second way is given. */
static void a_chunk_that_was_refused_has_one_way(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    uint32_t times;
    setup(&f, 121, 20);
    const uint32_t stuck = take(&f, 0);
    rounds(&f, 10, 1, 5);
    const struct tb_frame_refused lost = {.crossing = CROSSING, .chunk = stuck, .why = TB_REFUSAL_LOST};
    CHECK_OK(tb_outbound_refused(&f.c, &lost, &times));
    tb_hedge_refused(&f.h, &lost, &f.c);
    assert_int_equal(f.h.way_count, 0);
    rounds(&f, 20, 1, 5);
    assert_int_equal(take(&f, 0), stuck);
    assert_true(tb_outbound_all_on_their_way(&f.c));
    assert_false(
        next(&f, &again)); /* since the first time it took three seconds; since this one it is not late */
    assert_int_equal(f.h.way_count, 1);
    free(f.memory);
}

/* Its twin: the rest of its parcel is still on its way, and late. */
static void chunks_beside_a_refused_one_are_still_late(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t times;
    setup(&f, 40, 20);
    struct tb_hedge_way way = {.crossing = CROSSING, .parcel = {.first = 3, .count = 4, .bytes = 4 * CHUNK}};
    tb_hedge_taken(&f.h, f.now, &way, &f.c);
    const struct tb_frame_refused lost = {.crossing = CROSSING, .chunk = 5, .why = TB_REFUSAL_LOST};
    CHECK_OK(tb_outbound_refused(&f.c, &lost, &times));
    tb_hedge_refused(&f.h, &lost, &f.c);
    assert_int_equal(f.h.way_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct tb_hedge_way *left = &f.h.ways[i];
        assert_int_equal(left->taken_at, f.now);
        assert_int_equal(left->parcel.first, i == 0 ? 3 : 6);
        assert_int_equal(left->parcel.count, i == 0 ? 2 : 1);
        assert_int_equal(left->left, left->parcel.count);
    }
    free(f.memory);
}

/* A chunk that came by its first way while the second waited for a stream is not on its way, and
 * is no sign of the stream that took it then. */
static void a_chunk_that_is_there_is_not_on_its_way(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 61, 20);
    const uint32_t stuck = take(&f, 0);
    rounds(&f, 15, 1, 5);
    assert_true(next(&f, &again));
    arrive(&f, stuck);
    f.now += TB_MS(1);
    take_again(&f, &again.parcel, 5);
    assert_int_equal(f.h.way_count, 0);
    tb_hedge_held(&f.h, f.now, CROSSING, &f.c);
    assert_int_equal(f.h.slots[5].moved_at, 0);
    assert_int_equal(f.h.slots[5].parcel_ns[0], 0);
    free(f.memory);
}

/* Both are lost: it is sent again as if it had never gone. */
static void a_chunk_that_lost_both_ways_is_sent_again(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    struct tb_parcel parcel;
    setup(&f, 61, 20);
    const uint32_t stuck = take(&f, 0);
    rounds(&f, 15, 1, 5);
    assert_true(next(&f, &again));
    tb_outbound_taken(&f.c, &again.parcel, 1);
    assert_int_equal(tb_outbound_stream_gone(&f.c, 1), 0);
    assert_int_equal(tb_outbound_stream_gone(&f.c, 0), 1);
    assert_true(tb_outbound_next(&f.c, &parcel));
    assert_int_equal(parcel.first, stuck);
    free(f.memory);
}

/* A parcel that was to go again and was not taken yet goes back to its first way. */
static void one_taken_back_from_the_queue_has_one_way(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_hedge_again again;
    setup(&f, 61, 20);
    (void)take(&f, 0);
    rounds(&f, 15, 1, 5);
    assert_true(next(&f, &again));
    tb_outbound_unqueued(&f.c, &again.parcel);
    assert_true(tb_outbound_all_on_their_way(&f.c));
    assert_int_equal(tb_outbound_stream_gone(&f.c, 0), 1);
    free(f.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_before_start_is_not_learned),
        cmocka_unit_test(the_last_parcel_of_a_stalled_stream_goes_again),
        cmocka_unit_test(a_parcel_in_time_goes_once),
        cmocka_unit_test(a_slow_stream_is_left_alone_before_the_end),
        cmocka_unit_test(a_stalled_stream_loses_its_parcel_before_the_end),
        cmocka_unit_test(a_known_slow_stream_is_not_waited_for),
        cmocka_unit_test(a_link_that_stands_still_hedges_nothing),
        cmocka_unit_test(hedges_stay_within_their_share),
        cmocka_unit_test(versions_before_pay_for_one_parcel),
        cmocka_unit_test(a_small_version_hedges_one_parcel),
        cmocka_unit_test(deltas_say_nothing_of_a_full_copy),
        cmocka_unit_test(a_full_copy_says_nothing_of_deltas),
        cmocka_unit_test(a_chunk_without_its_base_is_no_delta),
        cmocka_unit_test(a_second_way_that_is_lost_is_made_up_for),
        cmocka_unit_test(a_first_way_that_is_lost_leaves_the_second),
        cmocka_unit_test(a_chunk_that_was_refused_has_one_way),
        cmocka_unit_test(chunks_beside_a_refused_one_are_still_late),
        cmocka_unit_test(a_chunk_that_is_there_is_not_on_its_way),
        cmocka_unit_test(a_chunk_that_lost_both_ways_is_sent_again),
        cmocka_unit_test(one_taken_back_from_the_queue_has_one_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

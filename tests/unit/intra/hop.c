/* hop.c - what a hop asks for, in virtual time.
 *
 * Covers: intra/hop/hop.c */
#include "intra/hop/hop.h"

#include <stdlib.h>
#include <string.h>

#include "island.h"

struct world {
    struct cargo cargo;
    struct hold hold;
    struct tb_source_shard source;
    struct tb_hop_shard shard;
    struct tb_hop_state s;
    tb_time_ns now;
};

static void world_init(struct world *w, uint32_t chunks, uint32_t seed)
{
    memset(w, 0, sizeof *w);
    cargo_make(&w->cargo, chunks, 600000); /* one chunk each, and three more */
    hold_make(&w->hold, &w->cargo);
    w->source = (struct tb_source_shard){.held_buffer = 1};
    w->shard = (struct tb_hop_shard){.source = &w->source, .place = &w->hold.place};
    w->shard.memory = calloc(tb_hop_shard_words(w->cargo.manifest.chunk_count), 8);
    w->now = TB_SECONDS(5);
    tb_hop_state_init(&w->s, &w->shard, 1, seed, w->now);
}

static void world_fini(struct world *w)
{
    free(w->shard.memory);
    hold_free(&w->hold);
    cargo_free(&w->cargo);
}

/* The source holds [first, end) and nothing else, and we have seen it. */
static void see(struct world *w, uint32_t first, uint32_t end)
{
    uint64_t words[64] = {0};
    for (uint32_t k = first; k < end; k++)
        (void)tb_bitmap_set(words, k);
    const uint32_t count = (uint32_t)TB_BITMAP_WORDS(w->cargo.manifest.chunk_count);
    assert_int_equal(tb_hop_seen(&w->s, 0, 0, words, count), TB_OK);
    tb_hop_round_done(&w->s, w->now);
}

static void arrive(struct world *w, const struct tb_hop_aim *aim)
{
    const struct tb_chunk *c = &w->cargo.manifest.chunks[aim->chunk];
    memcpy(w->hold.bytes + c->offset, w->cargo.bytes + c->offset, c->bytes);
    assert_int_equal(tb_place_finish(&w->hold.place, aim->chunk), TB_OK);
    tb_hop_landed(&w->s, aim);
}

static void P1_nothing_is_asked_before_its_bit_was_seen(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    world_init(&w, 8, 0);
    assert_false(tb_hop_next(&w.s, &aim));
    see(&w, 3, 5);
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 3);
    assert_int_equal(aim.bytes, w.cargo.manifest.chunks[3].bytes);
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 4);
    assert_false(tb_hop_next(&w.s, &aim));
    world_fini(&w);
}

static void the_seed_says_where_to_begin(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    world_init(&w, 5, 6);
    const uint32_t n = w.cargo.manifest.chunk_count;
    see(&w, 0, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(tb_hop_next(&w.s, &aim));
        assert_int_equal(aim.chunk, (6 + i) % n);
        arrive(&w, &aim);
    }
    assert_false(tb_hop_next(&w.s, &aim));
    assert_true(tb_hop_whole(&w.s));
    world_fini(&w);
}

static void P4_what_another_hop_claimed_is_left_alone(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    world_init(&w, 3, 0);
    see(&w, 0, 3);
    assert_true(tb_place_claim(&w.hold.place, 0));
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 1);
    arrive(&w, &aim);
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 2);
    arrive(&w, &aim);
    assert_false(tb_hop_next(&w.s, &aim));
    tb_place_unclaim(&w.hold.place, 0);    /* its hop was lost */
    assert_false(tb_hop_next(&w.s, &aim)); /* not looked at again before the next round */
    tb_hop_round_done(&w.s, w.now);
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 0);
    world_fini(&w);
}

static void P7_the_window_bounds_what_is_in_flight(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim, first = {0};
    for (uint64_t window = TB_HOP_WINDOW_BYTES; window >= 1000000; window /= 2) {
        world_init(&w, 60, 0);
        assert_int_equal(w.s.window_bytes, TB_HOP_WINDOW_BYTES);
        w.s.window_bytes = window;
        see(&w, 0, 60);
        uint32_t asked = 0;
        while (tb_hop_next(&w.s, &aim)) {
            if (asked++ == 0) first = aim;
        }
        assert_int_equal(asked, (window + 599999) / 600000);
        arrive(&w, &first);
        assert_true(tb_hop_next(&w.s, &aim));
        assert_false(tb_hop_next(&w.s, &aim));
        world_fini(&w);
    }
}

/* Two chunks may be in flight however large they are: one on its way while the other is
 * digested. */
static void P6_large_chunks_are_pipelined(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    world_init(&w, 5, 0);
    struct tb_chunk *chunks = (struct tb_chunk *)(uintptr_t)w.cargo.manifest.chunks;
    chunks[0].bytes = chunks[1].bytes = 16 << 20;
    see(&w, 0, 3);
    assert_true(tb_hop_next(&w.s, &aim));
    assert_true(tb_hop_next(&w.s, &aim));
    assert_false(tb_hop_next(&w.s, &aim));
    world_fini(&w);
}

/* A NIC that brings one chunk after another, and threads that digest what came, in its order;
 * time in units of ours. */
struct digesters {
    uint32_t nic, digest; /* time of a chunk */
    uint32_t thread_free[8];
    struct tb_hop_aim aims[64];
    uint32_t come_at[64], done_at[64]; /* of each that was asked for, in that order */
    uint32_t asked, came, ahead_most;
};

static void ask(struct world *w, struct digesters *d, uint32_t now)
{
    for (; tb_hop_next(&w->s, &d->aims[d->asked]); d->asked++) {
        const uint32_t behind = d->asked > 0 ? d->come_at[d->asked - 1] : 0;
        d->come_at[d->asked] = (behind > now ? behind : now) + d->nic;
        d->done_at[d->asked] = UINT32_MAX;
    }
}

static void come(struct world *w, struct digesters *d, uint32_t now)
{
    for (; d->came < d->asked && d->come_at[d->came] <= now; d->came++) {
        uint32_t *thread = &d->thread_free[0];
        for (uint32_t i = 1; i < w->s.threads; i++)
            if (d->thread_free[i] < *thread) thread = &d->thread_free[i];
        *thread = (*thread > now ? *thread : now) + d->digest;
        d->done_at[d->came] = *thread;
        tb_hop_came(&w->s, &d->aims[d->came]);
        if (w->s.came_chunks > d->ahead_most) d->ahead_most = w->s.came_chunks;
    }
}

/* When all of `chunks` are held. */
static uint32_t digested_at(struct world *w, struct digesters *d, uint32_t chunks)
{
    see(w, 0, chunks);
    for (uint32_t now = 0, held = 0;; now++) {
        come(w, d, now);
        for (uint32_t i = 0; i < d->came; i++) {
            if (d->done_at[i] != now) continue;
            arrive(w, &d->aims[i]);
            if (++held == chunks) return now;
        }
        ask(w, d, now);
    }
}

/* Of the largest chunks two fill the window. That is no reason to digest with two threads alone,
 * nor for the NIC to wait. */
static void P6_a_nic_does_not_wait_for_digests(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 8; threads *= 2) {
        struct world w;
        struct digesters d = {.nic = 10, .digest = 36};
        world_init(&w, 40, 0);
        w.s.window_bytes = w.s.came_max_bytes = 1;
        w.s.threads = threads;
        const uint32_t slowest = threads < 4 ? d.digest / threads : d.nic, at = digested_at(&w, &d, 40);
        assert_in_range(at, 39 * slowest, 40 * slowest + d.nic + d.digest);
        assert_in_range(d.ahead_most, threads < 4 ? threads : 4,
                        threads + 3); /* it does not run away from them */
        assert_int_equal(w.s.came_chunks, 0);
        assert_int_equal(w.s.came_bytes, 0);
        world_fini(&w);
    }
}

static void P1_a_chunk_that_fails_is_read_once_more(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    world_init(&w, 3, 0);
    see(&w, 1, 2);
    assert_true(tb_hop_next(&w.s, &aim));
    tb_place_unclaim(&w.hold.place, aim.chunk);
    assert_false(tb_hop_failed(&w.s, &aim));
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 1);
    tb_place_unclaim(&w.hold.place, aim.chunk);
    assert_true(tb_hop_failed(&w.s, &aim)); /* twice */
    assert_false(tb_hop_next(&w.s, &aim));
    tb_hop_round_done(&w.s, w.now);
    assert_false(tb_hop_next(&w.s, &aim)); /* never again from here */
    assert_int_equal(w.s.in_flight_chunks, 0);
    assert_int_equal(w.s.in_flight_bytes, 0);
    world_fini(&w);
}

static void know_proof(struct world *w, uint32_t k)
{
    const struct tb_chunk *c = &w->cargo.manifest.chunks[k];
    const struct tb_blake3 proof = tb_blake3_of(w->cargo.bytes + c->offset, c->bytes);
    tb_manifest_set_proof(&w->cargo.manifest, k, &proof);
}

/* P1: a chunk that could not be judged when it comes is not asked for; one that can goes on at
 * once. */
static void P1_a_foreign_chunk_is_asked_for_once_its_proof_is_known(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    world_init(&w, 8, 0);
    w.shard.foreign = true;
    know_proof(&w, 6);
    see(&w, 2, 5);
    assert_false(tb_hop_next(&w.s, &aim)); /* the source has not shown the one that could be judged */
    know_proof(&w, 3);
    assert_false(tb_hop_next(&w.s, &aim));
    tb_hop_look_again(&w.s);
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 3);
    arrive(&w, &aim);
    assert_false(tb_hop_next(&w.s, &aim));
    know_proof(&w, 2);
    tb_hop_round_done(&w.s, w.now); /* as well */
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 2);
    arrive(&w, &aim);
    world_fini(&w);
}

/* The twin: a chunk that was cut off is no failure, and is asked for as often as it takes. */
static void P6_a_chunk_that_was_dropped_is_asked_again(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    world_init(&w, 3, 0);
    see(&w, 1, 2);
    for (int i = 0; i < 4; i++) {
        assert_true(tb_hop_next(&w.s, &aim));
        tb_place_unclaim(&w.hold.place, aim.chunk);
        tb_hop_dropped(&w.s, &aim);
    }
    world_fini(&w);
}

static void a_chunk_that_a_source_lost_is_asked_no_more(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    world_init(&w, 8, 0);
    see(&w, 0, 8);
    see(&w, 0, 1);
    assert_true(tb_hop_next(&w.s, &aim));
    assert_int_equal(aim.chunk, 0);
    assert_false(tb_hop_next(&w.s, &aim));
    world_fini(&w);
}

static void P7_bits_past_the_last_chunk_are_garbled(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 8, 0);
    uint64_t word = (uint64_t)1 << w.cargo.manifest.chunk_count;
    assert_int_equal(tb_hop_seen(&w.s, 0, 0, &word, 1), TB_PEER_GARBLED);
    word >>= 1;
    assert_int_equal(tb_hop_seen(&w.s, 0, 0, &word, 1), TB_OK);
    world_fini(&w);
}

/* Looks until `at`; the source shows nothing new. How often it looked. */
static uint32_t look_in_vain(struct world *w, uint32_t held, tb_time_ns at)
{
    uint32_t looks = 0;
    for (; w->s.poll_at < at; looks++) {
        w->now = w->s.poll_at;
        see(w, 0, held);
    }
    return looks;
}

/* P6: chunks come every 8 ms; each is seen at most an eighth of that late, by few looks. */
static void it_looks_at_the_rhythm_of_its_source(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 40, 0);
    assert_int_equal(w.s.poll_at, w.now); /* the first at once */
    const tb_time_ns began = w.now;
    for (uint32_t k = 1; k < 12; k++) {
        const tb_time_ns there = began + k * TB_MS(8);
        const uint32_t looks = look_in_vain(&w, k - 1, there);
        w.now = w.s.poll_at;
        if (k > 2) assert_true(w.now - there <= TB_US(1250));
        if (k > 2) assert_in_range(looks, 6, 9);
        see(&w, 0, k);
    }
    for (uint32_t k = 12; k < 15; k++, w.now = w.s.poll_at)
        see(&w, 0, k); /* each look finds something: as often as may be */
    assert_int_equal(w.s.poll_every, TB_HOP_POLL_MIN);
    world_fini(&w);
}

/* P6: eight chunks each 64 ms are as one each 8. */
static void many_at_once_are_as_many_one_after_another(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 40, 0);
    for (uint32_t k = 8; k <= 32; k += 8) {
        w.now += TB_MS(64);
        see(&w, 0, k);
    }
    assert_int_equal(w.s.poll_every, TB_MS(1));
    world_fini(&w);
}

/* P6: a chunk each 8 ms, then none for a second. The first after that is seen 1/64 of the pause
 * late at most, and the next ones as ever: else each hop of a chain would make the pause longer
 * for those behind it. */
static void one_pause_is_no_new_rhythm(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 40, 0);
    w.s.depth = 1;
    for (uint32_t k = 1; k < 5; k++) {
        w.now += TB_MS(8);
        see(&w, 0, k);
    }
    const tb_time_ns there = w.now + TB_SECONDS(1);
    (void)look_in_vain(&w, 4, there);
    w.now = w.s.poll_at;
    assert_in_range(w.now - there, 0, TB_SECONDS(1) / 63);
    see(&w, 0, 5);
    assert_true(w.s.poll_every <= TB_MS(2));
    w.now += TB_MS(8);
    see(&w, 0, 6);
    assert_true(w.s.poll_every <= TB_MS(1));
    world_fini(&w);
}

/* The twin: it is slower from now on. The looks grow rarer, chunk by chunk. */
static void a_new_rhythm_is_learnt(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 40, 0);
    for (uint32_t k = 1; k < 12; k++) {
        w.now += k < 5 ? TB_MS(1) : TB_MS(40);
        see(&w, 0, k);
    }
    assert_int_equal(w.s.poll_every, TB_MS(5));
    world_fini(&w);
}

/* It stops coming. The looks grow rare with the wait, to 20 ms. */
static void it_looks_less_often_at_a_source_that_stopped(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 40, 0);
    w.s.depth = 1;
    for (uint32_t k = 1; k < 4; k++, w.now = w.s.poll_at)
        see(&w, 0, k);
    tb_time_ns before = 0;
    for (int i = 0; i < 800; i++, w.now = w.s.poll_at) {
        see(&w, 0, 3);
        assert_true(w.s.poll_every >= before);
        before = w.s.poll_every;
    }
    assert_int_equal(w.s.poll_every, TB_HOP_POLL_MAX);
    world_fini(&w);
}

/* P6: far down a chain the first chunk comes late; waiting for it the hop looks as often as may be,
 * and does not for ever. */
static void before_the_first_chunk_it_looks_often(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 40, 0);
    see(&w, 0, 0);
    const tb_time_ns began = w.now;
    (void)look_in_vain(&w, 0, began + TB_MS(1500));
    assert_int_equal(w.s.poll_every, TB_HOP_POLL_MIN);
    (void)look_in_vain(&w, 0, began + TB_SECONDS(240));
    assert_int_equal(w.s.poll_every, TB_HOP_POLL_MAX);
    world_fini(&w);
}

/* The nearer the chain's beginning, the sooner a long wait says that nothing comes: then few looks
 * are left of thousands a second, and with the first chunks they are frequent again. */
static void an_idle_hop_near_the_beginning_looks_seldom(void **state)
{
    (void)state;
    const struct {
        uint32_t depth, looks_min, looks_max; /* in the third second */
    } rows[] = {{0, 3300, 3400}, {1, 50, 51}, {4, 95, 110}, {128, 3300, 3400}, {UINT32_MAX, 3300, 3400}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world w;
        world_init(&w, 40, 0);
        w.s.depth = rows[i].depth;
        const tb_time_ns began = w.now;
        (void)look_in_vain(&w, 0, began + TB_MS(12));
        assert_int_equal(w.s.poll_every, TB_HOP_POLL_MIN); /* a wait that is short is looked at as ever */
        (void)look_in_vain(&w, 0, began + TB_SECONDS(2));
        assert_in_range(look_in_vain(&w, 0, began + TB_SECONDS(3)), rows[i].looks_min, rows[i].looks_max);
        for (uint32_t k = 1; k < 4; k++, w.now = w.s.poll_at)
            see(&w, 0, k);
        assert_int_equal(w.s.poll_every, TB_HOP_POLL_MIN);
        world_fini(&w);
    }
}

static void only_what_is_not_full_is_polled(void **state)
{
    (void)state;
    struct world w;
    uint32_t first = 0, count = 0;
    world_init(&w, 300, 0);
    const uint32_t n = w.cargo.manifest.chunk_count;
    assert_true(tb_hop_poll_words(&w.s, 0, &first, &count));
    assert_int_equal(first, 0);
    assert_int_equal(count, TB_BITMAP_WORDS(n));
    see(&w, 0, 130);
    assert_true(tb_hop_poll_words(&w.s, 0, &first, &count));
    assert_int_equal(first, 2);
    assert_int_equal(count, TB_BITMAP_WORDS(n) - 2);
    see(&w, 0, n);
    assert_false(tb_hop_poll_words(&w.s, 0, &first, &count));
    world_fini(&w);
}

static void a_source_without_bitmap_is_whole(void **state)
{
    (void)state;
    struct world w;
    struct tb_hop_aim aim;
    uint32_t first = 0, count = 0;
    world_init(&w, 3, 0);
    w.source.held_buffer = TB_SOURCE_ALL_HELD;
    tb_hop_state_init(&w.s, &w.shard, 1, 0, w.now);
    assert_false(tb_hop_poll_words(&w.s, 0, &first, &count));
    for (uint32_t k = 0; k < w.cargo.manifest.chunk_count; k++)
        assert_true(tb_hop_next(&w.s, &aim));
    assert_false(tb_hop_next(&w.s, &aim));
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P1_nothing_is_asked_before_its_bit_was_seen),
        cmocka_unit_test(the_seed_says_where_to_begin),
        cmocka_unit_test(P4_what_another_hop_claimed_is_left_alone),
        cmocka_unit_test(P7_the_window_bounds_what_is_in_flight),
        cmocka_unit_test(P6_large_chunks_are_pipelined),
        cmocka_unit_test(P6_a_nic_does_not_wait_for_digests),
        cmocka_unit_test(P1_a_chunk_that_fails_is_read_once_more),
        cmocka_unit_test(P1_a_foreign_chunk_is_asked_for_once_its_proof_is_known),
        cmocka_unit_test(P6_a_chunk_that_was_dropped_is_asked_again),
        cmocka_unit_test(a_chunk_that_a_source_lost_is_asked_no_more),
        cmocka_unit_test(P7_bits_past_the_last_chunk_are_garbled),
        cmocka_unit_test(it_looks_at_the_rhythm_of_its_source),
        cmocka_unit_test(many_at_once_are_as_many_one_after_another),
        cmocka_unit_test(one_pause_is_no_new_rhythm),
        cmocka_unit_test(a_new_rhythm_is_learnt),
        cmocka_unit_test(it_looks_less_often_at_a_source_that_stopped),
        cmocka_unit_test(before_the_first_chunk_it_looks_often),
        cmocka_unit_test(an_idle_hop_near_the_beginning_looks_seldom),
        cmocka_unit_test(only_what_is_not_full_is_polled),
        cmocka_unit_test(a_source_without_bitmap_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

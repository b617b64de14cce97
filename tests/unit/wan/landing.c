/* landing.c - what the peer is told, how often, and what is asked for again.
 *
 * Covers: wan/send/inbound.c */
#include "wan/send/inbound.h"

#include <stdlib.h>
#include <string.h>

#include "small_places.h"
#include "tests/unit/check.h"

struct fixture {
    struct small_place shards[2];
    struct tb_place places[2];
    struct tb_inbound l;
    void *memory;
};

static void setup(struct fixture *f, uint32_t chunks)
{
    for (int s = 0; s < 2; s++)
        small_place_init(&f->shards[s], chunks, 1 << 20, &f->places[s]);
    f->memory = malloc(tb_inbound_bytes_for(f->places, 2));
    tb_inbound_init(&f->l, f->places, 2, f->memory);
}

static void each_difference_is_told_once(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_held_word words[8];
    uint32_t shard = 9;
    setup(&f, 130);
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 0);
    small_place_hold(&f.shards[0], 63, 65);
    small_place_hold(&f.shards[1], 129, 130);
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 2);
    assert_int_equal(shard, 0);
    assert_int_equal(words[0].index, 0);
    assert_int_equal(words[0].word, UINT64_C(1) << 63);
    assert_int_equal(words[1].index, 1);
    assert_int_equal(words[1].word, 1);
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 1);
    assert_int_equal(shard, 1);
    assert_int_equal(words[0].index, 2);
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 0);
    small_place_hold(&f.shards[0], 0, 1); /* a word is told with all its bits */
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 1);
    assert_int_equal(words[0].word, UINT64_C(1) << 63 | 1);
    free(f.memory);
}

static void a_full_table_of_words_goes_on_next_time(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_held_word words[2];
    uint32_t shard = 0;
    setup(&f, 256);
    small_place_hold(&f.shards[0], 0, 256);
    small_place_hold(&f.shards[1], 0, 256);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 2), 2);
    assert_true(tb_inbound_whole(&f.l));
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 2), 0);
    free(f.memory);
}

/* Whole means that the peer was told of each chunk, by whatever way it came here. */
static void whole_is_when_all_was_told(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_held_word words[8];
    uint32_t shard = 0;
    setup(&f, 3);
    small_place_hold(&f.shards[0], 0, 3);
    small_place_hold(&f.shards[1], 0, 3);
    assert_false(tb_inbound_whole(&f.l));
    while (tb_inbound_differences(&f.l, &shard, words, 8) > 0) {
    }
    assert_true(tb_inbound_whole(&f.l));
    tb_inbound_rewind(&f.l); /* a new session knows nothing */
    assert_false(tb_inbound_whole(&f.l));
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 1);
    free(f.memory);
}

static void held_goes_at_most_every_10_ms(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 3);
    assert_true(tb_inbound_due(&f.l, TB_SECONDS(1)));
    tb_inbound_told(&f.l, TB_SECONDS(1));
    assert_false(tb_inbound_due(&f.l, TB_SECONDS(1) + TB_MS(10) - 1));
    assert_true(tb_inbound_due(&f.l, TB_SECONDS(1) + TB_MS(10)));
    free(f.memory);
}

/* A chunk that was told and is gone (re-verification): no lie is told, the crossing has to begin
 * again. */
static void a_chunk_lost_after_it_was_told_is_noticed(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_held_word words[8];
    uint32_t shard = 0;
    setup(&f, 3);
    small_place_hold(&f.shards[0], 0, 2);
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 1);
    assert_false(f.l.lost);
    tb_bitmap_clear(f.shards[0].held, 1);
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 0);
    assert_true(f.l.lost);
    tb_inbound_rewind(&f.l);
    assert_false(f.l.lost);
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 1);
    assert_int_equal(words[0].word, 1);
    free(f.memory);
}

static void a_frame_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 3);
    struct tb_chunk_frame frame = {.shard = 1, .chunk = 2, .raw_bytes = 1 << 20};
    CHECK_OK(tb_inbound_check(f.places, 2, &frame));
    frame.raw_bytes++;
    CHECK_STATUS(tb_inbound_check(f.places, 2, &frame), TB_PEER_GARBLED);
    frame.raw_bytes -= 2; /* short of it */
    CHECK_STATUS(tb_inbound_check(f.places, 2, &frame), TB_PEER_GARBLED);
    frame.raw_bytes++;
    frame.chunk = 3;
    f.shards[1].chunks[3].bytes = 1 << 20; /* what lies behind the table must not decide */
    CHECK_STATUS(tb_inbound_check(f.places, 2, &frame), TB_PEER_GARBLED);
    frame.chunk = 0;
    frame.shard = 2;
    CHECK_STATUS(tb_inbound_check(f.places, 2, &frame), TB_PEER_GARBLED);
    free(f.memory);
}

/* P6: a duplicate was dropped because another writer had claimed the chunk. If that writer fails it
 * is asked for again; while it writes, or once it is held, it is not. */
static void a_dropped_duplicate_is_asked_for_when_its_writer_fails(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_inbound_chunk chunk;
    setup(&f, 3);
    tb_bitmap_set(f.shards[0].claimed, 1);
    tb_bitmap_set(f.shards[0].claimed, 2);
    assert_true(tb_inbound_dropped(&f.l, 0, 1));
    assert_true(tb_inbound_dropped(&f.l, 0, 2));
    assert_false(tb_inbound_again(&f.l, &chunk));
    tb_bitmap_set(f.shards[0].held, 1); /* this writer landed it */
    tb_bitmap_clear(f.shards[0].claimed, 1);
    assert_false(tb_inbound_again(&f.l, &chunk));
    assert_int_equal(f.l.dropped_count, 1);
    tb_bitmap_clear(f.shards[0].claimed, 2); /* this one gave up */
    assert_true(tb_inbound_again(&f.l, &chunk));
    assert_int_equal(chunk.chunk, 2);
    assert_false(tb_inbound_again(&f.l, &chunk));
    for (uint32_t i = 0; i < TB_INBOUND_DROPPED_MAX; i++)
        assert_true(tb_inbound_dropped(&f.l, 1, 0));
    assert_false(tb_inbound_dropped(&f.l, 1, 0)); /* full: at once */
    assert_true(tb_inbound_dropped(&f.l, 0, 1));  /* held: nothing to do */
    free(f.memory);
}

/* P5: a chunk that another session's writers dropped says nothing about this one's. */
static void a_new_session_begins_without_dropped_chunks(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_inbound_chunk chunk;
    setup(&f, 3);
    tb_bitmap_set(f.shards[0].claimed, 1);
    assert_true(tb_inbound_dropped(&f.l, 0, 1));
    tb_inbound_rewind(&f.l);
    tb_bitmap_clear(f.shards[0].claimed, 1);
    assert_false(tb_inbound_again(&f.l, &chunk));
    free(f.memory);
}

/* Found held by another way and told: refusing it would break the protocol. */
static void a_version_that_the_peer_knows_is_not_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_held_word words[8];
    uint32_t shard = 0;
    setup(&f, 130);
    small_place_hold(&f.shards[1], 129, 130);
    assert_false(tb_inbound_knows(&f.l, 1, 129));
    assert_int_equal(tb_inbound_differences(&f.l, &shard, words, 8), 1);
    assert_true(tb_inbound_knows(&f.l, 1, 129));
    assert_false(tb_inbound_knows(&f.l, 1, 128));
    tb_inbound_rewind(&f.l);
    assert_false(tb_inbound_knows(&f.l, 1, 129));
    free(f.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_difference_is_told_once),
        cmocka_unit_test(a_full_table_of_words_goes_on_next_time),
        cmocka_unit_test(whole_is_when_all_was_told),
        cmocka_unit_test(held_goes_at_most_every_10_ms),
        cmocka_unit_test(a_chunk_lost_after_it_was_told_is_noticed),
        cmocka_unit_test(a_frame_that_does_not_fit_is_refused),
        cmocka_unit_test(a_dropped_duplicate_is_asked_for_when_its_writer_fails),
        cmocka_unit_test(a_new_session_begins_without_dropped_chunks),
        cmocka_unit_test(a_version_that_the_peer_knows_is_not_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Held bits: exactly one setter is told true, and a thread that sees a bit sees the bytes behind it
 * (P1).
 *
 * Covers: base/bitmap.c */
#include "base/bitmap.h"

#include <pthread.h>
#include <string.h>

#include "tests/unit/check.h"

static void set_and_clear_return_the_bit_before(void **state)
{
    (void)state;
    uint64_t words[3] = {0};
    for (uint32_t i = 0; i < 130; i++) {
        assert_false(tb_bitmap_test(words, i));
        assert_true(tb_bitmap_set(words, i));
        assert_false(tb_bitmap_set(words, i));
        assert_true(tb_bitmap_test(words, i));
    }
    assert_int_equal(tb_bitmap_popcount(words, 130), 130);
    assert_true(tb_bitmap_clear(words, 64));
    assert_false(tb_bitmap_clear(words, 64));
    assert_int_equal(tb_bitmap_popcount(words, 130), 129);
    assert_true(tb_bitmap_test(words, 63) && tb_bitmap_test(words, 65));
}

/* Against a plain array of bools, at every count around word borders. */
static void searches_match_a_scan(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (uint32_t count = 0; count <= 200; count++) {
        uint64_t words[4] = {0};
        for (uint32_t i = 0; i < count; i++) {
            if (check_random(&seed) % 3 == 0) tb_bitmap_set(words, i);
        }
        for (uint32_t from = 0; from <= count + 1; from++) {
            uint32_t set = from;
            uint32_t clear = from;
            while (set < count && !tb_bitmap_test(words, set))
                set++;
            while (clear < count && tb_bitmap_test(words, clear))
                clear++;
            assert_int_equal(tb_bitmap_next_set(words, count, from), set < count ? set : count);
            assert_int_equal(tb_bitmap_next_clear(words, count, from), clear < count ? clear : count);
        }
    }
}

static void the_tail_is_not_believed(void **state)
{
    (void)state;
    uint64_t words[2] = {UINT64_MAX, UINT64_C(1) << 6};
    assert_false(tb_bitmap_tail_clear(words, 70));
    assert_true(tb_bitmap_tail_clear(words, 71));
    assert_int_equal(tb_bitmap_popcount(words, 70), 64);
    assert_int_equal(tb_bitmap_next_set(words, 70, 64), 70);
    assert_true(tb_bitmap_tail_clear(words, 64));
    assert_true(tb_bitmap_tail_clear(words, 128));
    assert_true(tb_bitmap_tail_clear(words, 0));
    assert_int_equal(tb_bitmap_popcount(words, 0), 0);
}

static void copy_takes_whole_words(void **state)
{
    (void)state;
    const uint64_t from[2] = {5, 9};
    uint64_t to[3] = {0, 0, 77};
    tb_bitmap_copy(to, from, 65);
    assert_true(to[0] == 5 && to[1] == 9 && to[2] == 77);
}

#define RACE_BITS    4096
#define RACE_THREADS 4

struct race {
    uint64_t words[TB_BITMAP_WORDS(RACE_BITS)];
    uint32_t bytes[RACE_BITS]; /* written before the bit, read after it */
};

struct racer {
    struct race *race;
    uint32_t won;
};

static void *race_run(void *arg)
{
    struct racer *me = arg;
    for (uint32_t i = 0; i < RACE_BITS; i++) {
        if (tb_bitmap_set(me->race->words, i)) me->won++;
    }
    return NULL;
}

static void one_of_several_setters_wins(void **state)
{
    (void)state;
    static struct race race;
    pthread_t threads[RACE_THREADS];
    struct racer racers[RACE_THREADS];
    uint32_t won = 0;
    for (int i = 0; i < RACE_THREADS; i++) {
        racers[i] = (struct racer){&race, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, race_run, &racers[i]), 0);
    }
    for (int i = 0; i < RACE_THREADS; i++) {
        pthread_join(threads[i], NULL);
        won += racers[i].won;
    }
    assert_int_equal(won, RACE_BITS);
    assert_int_equal(tb_bitmap_popcount(race.words, RACE_BITS), RACE_BITS);
}

static void *publish_run(void *arg)
{
    struct race *race = arg;
    for (uint32_t i = 0; i < RACE_BITS; i++) {
        race->bytes[i] = i + 1;
        tb_bitmap_set(race->words, i);
    }
    return NULL;
}

/* The plain array is written and read without a lock: tsan reports it if the bit's release
 * and acquire are lost. */
static void a_reader_of_the_bit_sees_the_bytes(void **state)
{
    (void)state;
    static struct race race;
    pthread_t thread;
    uint32_t seen = 0;
    memset(&race, 0, sizeof race);
    assert_int_equal(pthread_create(&thread, NULL, publish_run, &race), 0);
    while (seen < RACE_BITS) {
        if (!tb_bitmap_test(race.words, seen)) continue;
        assert_int_equal(race.bytes[seen], seen + 1);
        seen++;
    }
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_and_clear_return_the_bit_before),
        cmocka_unit_test(searches_match_a_scan),
        cmocka_unit_test(the_tail_is_not_believed),
        cmocka_unit_test(copy_takes_whole_words),
        cmocka_unit_test(one_of_several_setters_wins),
        cmocka_unit_test(a_reader_of_the_bit_sees_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Range sets: the same set as an array of bools says, always sorted, disjoint and not touching. */
#include "base/ranges.h"

#include <string.h>

#include "base/bitmap.h"
#include "tests/unit/check.h"

#define INDEXES 40u

static void assert_canonical(const struct tb_ranges *s)
{
    assert_true(s->count <= s->count_max);
    for (uint32_t i = 0; i < s->count; i++) {
        assert_true(s->items[i].first < s->items[i].end);
        if (i > 0) assert_true(s->items[i - 1].end < s->items[i].first);
    }
}

static void any_history_matches_bools(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 300; round++) {
        struct tb_range memory[INDEXES];
        struct tb_ranges s;
        bool want[INDEXES] = {false};
        tb_ranges_init(&s, memory, INDEXES);
        for (int step = 0; step < 30; step++) {
            const uint32_t first = (uint32_t)(check_random(&seed) % INDEXES);
            const uint32_t end = first + (uint32_t)(check_random(&seed) % (INDEXES - first + 1));
            const bool add = check_random(&seed) % 2 == 0;
            const struct tb_range r = {first, end};
            if (add) {
                CHECK_OK(tb_ranges_add(&s, r));
            } else {
                CHECK_OK(tb_ranges_remove(&s, r));
            }
            uint64_t size = 0;
            for (uint32_t i = 0; i < INDEXES; i++) {
                if (i >= first && i < end) want[i] = add;
                size += want[i];
                assert_int_equal(tb_ranges_has(&s, i), want[i]);
            }
            assert_int_equal(tb_ranges_size(&s), size);
            assert_canonical(&s);
        }
    }
}

static void what_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    struct tb_range memory[2];
    struct tb_ranges s;
    tb_ranges_init(&s, memory, 2);
    CHECK_OK(tb_ranges_add(&s, (struct tb_range){0, 10}));
    CHECK_OK(tb_ranges_add(&s, (struct tb_range){20, 30}));
    CHECK_STATUS(tb_ranges_add(&s, (struct tb_range){40, 50}), TB_SITE_NOMEM);
    CHECK_STATUS(tb_ranges_remove(&s, (struct tb_range){4, 5}), TB_SITE_NOMEM);
    assert_int_equal(s.count, 2);
    assert_int_equal(tb_ranges_size(&s), 20);
    CHECK_OK(tb_ranges_add(&s, (struct tb_range){10, 20})); /* touches both: one range is left */
    assert_int_equal(s.count, 1);
    assert_int_equal(s.items[0].end, 30);
    CHECK_STATUS(tb_ranges_add(&s, (struct tb_range){5, 4}), TB_BAD_ARGUMENT);
    CHECK_STATUS(tb_ranges_remove(&s, (struct tb_range){5, 4}), TB_BAD_ARGUMENT);
}

static void the_last_index_is_one_like_any(void **state)
{
    (void)state;
    struct tb_range memory[2];
    struct tb_ranges s;
    tb_ranges_init(&s, memory, 2);
    CHECK_OK(tb_ranges_add(&s, (struct tb_range){UINT32_MAX - 2, UINT32_MAX}));
    assert_true(tb_ranges_has(&s, UINT32_MAX - 1));
    assert_false(tb_ranges_has(&s, UINT32_MAX));
    CHECK_OK(tb_ranges_add(&s, (struct tb_range){0, UINT32_MAX}));
    assert_int_equal(s.count, 1);
    assert_true(tb_ranges_size(&s) == UINT32_MAX);
}

static void bitmaps_become_ranges(void **state)
{
    (void)state;
    uint64_t words[2] = {0};
    struct tb_range memory[3];
    struct tb_ranges s;
    tb_ranges_init(&s, memory, 3);
    CHECK_OK(tb_ranges_from_bitmap(&s, words, 100));
    assert_int_equal(s.count, 0);
    for (uint32_t i = 0; i < 100; i++) {
        if (i < 3 || (i > 60 && i < 70) || i == 99) tb_bitmap_set(words, i);
    }
    CHECK_OK(tb_ranges_from_bitmap(&s, words, 100));
    const struct tb_range want[] = {{0, 3}, {61, 70}, {99, 100}};
    assert_int_equal(s.count, 3);
    assert_memory_equal(s.items, want, sizeof want);
    tb_bitmap_set(words, 97);
    CHECK_STATUS(tb_ranges_from_bitmap(&s, words, 100), TB_SITE_NOMEM);
    assert_int_equal(s.count, 3); /* the first ones are there */
}

static enum tb_status decode_pairs(const uint32_t *pairs, uint32_t count, uint32_t index_end,
                                   uint32_t count_max)
{
    uint8_t bytes[256];
    struct tb_range memory[8];
    struct tb_ranges s;
    struct tb_writer w;
    struct tb_reader r;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, count);
    for (uint32_t i = 0; i < 2 * count; i++)
        tb_write_u32(&w, pairs[i]);
    tb_reader_init(&r, bytes, w.used);
    tb_ranges_init(&s, memory, count_max);
    const enum tb_status status = tb_ranges_decode(&r, index_end, &s);
    if (status != TB_OK) assert_int_equal(s.count, 0);
    return status;
}

static void decode_refuses_what_encode_would_not_write(void **state)
{
    (void)state;
    const uint32_t good[] = {0, 2, 4, 9};
    CHECK_OK(decode_pairs(good, 2, 9, 2));
    CHECK_STATUS(decode_pairs(good, 2, 8, 2), TB_PEER_GARBLED);                     /* past the end */
    CHECK_STATUS(decode_pairs(good, 2, 9, 1), TB_PEER_GARBLED);                     /* one more than fits */
    CHECK_STATUS(decode_pairs((uint32_t[]){0, 2, 2, 4}, 2, 9, 8), TB_PEER_GARBLED); /* touch */
    CHECK_STATUS(decode_pairs((uint32_t[]){0, 3, 2, 4}, 2, 9, 8), TB_PEER_GARBLED); /* overlap */
    CHECK_STATUS(decode_pairs((uint32_t[]){4, 6, 0, 2}, 2, 9, 8), TB_PEER_GARBLED); /* disorder */
    CHECK_STATUS(decode_pairs((uint32_t[]){3, 3}, 1, 9, 8), TB_PEER_GARBLED);       /* empty */
    CHECK_STATUS(decode_pairs((uint32_t[]){3, 2}, 1, 9, 8), TB_PEER_GARBLED);       /* inside out */
    CHECK_STATUS(decode_pairs((uint32_t[]){0, UINT32_MAX, 0, 5}, 2, UINT32_MAX, 8), TB_PEER_GARBLED);
    CHECK_OK(decode_pairs((uint32_t[]){0, UINT32_MAX}, 1, UINT32_MAX, 8));
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[64];
    struct tb_range memory[4] = {{1, 5}, {8, 9}, {100, 1000}};
    struct tb_range other[4];
    struct tb_ranges s = {memory, 3, 4};
    struct tb_ranges back;
    struct tb_writer w;
    struct tb_reader r;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_ranges_encode(&s, &w);
    for (size_t cut = 0; cut < w.used; cut++) {
        tb_reader_init(&r, bytes, cut);
        tb_ranges_init(&back, other, 4);
        CHECK_STATUS(tb_ranges_decode(&r, 1000, &back), TB_PEER_GARBLED);
    }
    tb_reader_init(&r, bytes, w.used);
    tb_ranges_init(&back, other, 4);
    CHECK_OK(tb_ranges_decode(&r, 1000, &back));
    assert_true(tb_reader_ended(&r));
    assert_int_equal(back.count, 3);
    assert_memory_equal(other, memory, 3 * sizeof *memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_history_matches_bools),
        cmocka_unit_test(what_does_not_fit_changes_nothing),
        cmocka_unit_test(the_last_index_is_one_like_any),
        cmocka_unit_test(bitmaps_become_ranges),
        cmocka_unit_test(decode_refuses_what_encode_would_not_write),
        cmocka_unit_test(every_truncation_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

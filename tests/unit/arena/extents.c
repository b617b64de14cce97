/* extents.c - the allocator against a map of pages that is too simple to be wrong.
 * Covers: gateway/arena/extents.c */
#include "gateway/arena/extents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define G     TB_EXTENT_GRAIN
#define PAGES 256u

static const struct tb_extent all = {16 * G, PAGES *G};

static void first_fit_takes_the_lowest(void **state)
{
    (void)state;
    struct tb_extent memory[8];
    struct tb_extents e;
    uint64_t a, b, c, d;
    tb_extents_init(&e, memory, 8, all);
    assert_int_equal(tb_extents_take(&e, 4 * G, G, &a), TB_OK);
    assert_int_equal(tb_extents_take(&e, 4 * G, G, &b), TB_OK);
    assert_int_equal(tb_extents_take(&e, 4 * G, G, &c), TB_OK);
    tb_extents_give(&e, (struct tb_extent){a, 4 * G});
    assert_int_equal(tb_extents_take(&e, 2 * G, G, &d), TB_OK);
    assert_int_equal(d, a);
    tb_extents_give(&e, (struct tb_extent){b, 4 * G});
    assert_int_equal(e.count, 2); /* what was a's second half and b are one */
    assert_int_equal(tb_extents_take(&e, 6 * G, G, &d), TB_OK);
    assert_int_equal(d, a + 2 * G);
    assert_int_equal(c, a + 8 * G);
}

static void alignment_leaves_its_gap_free(void **state)
{
    (void)state;
    struct tb_extent memory[8];
    struct tb_extents e;
    uint64_t a, b;
    tb_extents_init(&e, memory, 8, (struct tb_extent){17 * G, PAGES * G});
    assert_int_equal(tb_extents_take(&e, 2 * G, 32 * G, &a), TB_OK);
    assert_int_equal(a, 32 * G);
    assert_int_equal(tb_extents_take(&e, 15 * G, G, &b), TB_OK);
    assert_int_equal(b, 17 * G);
    assert_int_equal(tb_extents_take(&e, PAGES * G, G, &b), TB_SITE_NOMEM);
    assert_int_equal(e.free_bytes, (PAGES - 17) * G);
}

static void take_at_refuses_taken_pieces(void **state)
{
    (void)state;
    struct tb_extent memory[8];
    struct tb_extents e;
    tb_extents_init(&e, memory, 8, all);
    assert_int_equal(tb_extents_take_at(&e, (struct tb_extent){20 * G, 4 * G}), TB_OK);
    const struct tb_extent refused[] = {
        {20 * G, 4 * G},
        {23 * G, G},
        {19 * G, 2 * G},
        {16 * G, 5 * G},
        {15 * G, G},
        {16 * G, 0},
        {16 * G + 1, G},
        {16 * G, G - 1},
        {(16 + PAGES) * G, G},
        {16 * G, 257 * G},
        {(15 + PAGES) * G, 2 * G},
        {UINT64_MAX - G + 1, 2 * G},
        {UINT64_MAX / G * G, G},
        {24 * G, UINT64_MAX / G * G},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_int_equal(tb_extents_take_at(&e, refused[i]), TB_CONFLICT);
    assert_int_equal(tb_extents_take_at(&e, (struct tb_extent){16 * G, 4 * G}), TB_OK);
    assert_int_equal(tb_extents_take_at(&e, (struct tb_extent){24 * G, (PAGES - 8) * G}), TB_OK);
    assert_int_equal(e.count, 0);
    assert_int_equal(tb_extents_largest(&e), 0);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* The table must be the sorted list of the map's free runs, and the first fit must be the map's. */
static void assert_same(const struct tb_extents *e, const bool *taken)
{
    uint32_t at = 0;
    uint64_t free_pages = 0;
    for (uint32_t page = 0; page < PAGES;) {
        uint32_t end = page;
        while (end < PAGES && taken[end] == taken[page])
            end++;
        if (!taken[page]) {
            assert_true(at < e->count);
            assert_int_equal(e->free[at].offset, all.offset + page * G);
            assert_int_equal(e->free[at].bytes, (end - page) * G);
            free_pages += end - page;
            at++;
        }
        page = end;
    }
    assert_int_equal(at, e->count);
    assert_int_equal(free_pages * G, e->free_bytes);
}

static uint32_t fit_in_map(const bool *taken, uint32_t pages, uint32_t align)
{
    for (uint32_t page = 0; page + pages <= PAGES; page++) {
        if ((16 + page) % align != 0) continue;
        uint32_t run = 0;
        while (run < pages && !taken[page + run])
            run++;
        if (run == pages) return page;
    }
    return PAGES;
}

static void random_use_matches_a_map_of_pages(void **state)
{
    (void)state;
    static struct tb_extent memory[PAGES];
    for (uint64_t round = 1; round <= 50; round++) {
        uint64_t seed = round * 0x9E3779B97F4A7C15u;
        bool taken[PAGES] = {false};
        struct tb_extent held[PAGES];
        uint32_t held_count = 0;
        struct tb_extents e;
        tb_extents_init(&e, memory, PAGES, all);
        for (uint32_t step = 0; step < 500; step++) {
            const uint64_t r = next_random(&seed);
            if (r % 5 < 3 || held_count == 0) {
                const uint32_t pages = 1 + (uint32_t)(r >> 8) % 24;
                const uint32_t align = 1u << (r >> 20) % 5;
                const uint32_t want = fit_in_map(taken, pages, align);
                uint64_t offset = 0;
                const enum tb_status status = tb_extents_take(&e, pages * G, align * G, &offset);
                assert_int_equal(status, want == PAGES ? TB_SITE_NOMEM : TB_OK);
                if (status != TB_OK) continue;
                assert_int_equal(offset, all.offset + want * G);
                memset(&taken[want], true, pages);
                held[held_count++] = (struct tb_extent){offset, pages * G};
            } else {
                const uint32_t i = (uint32_t)(r >> 8) % held_count;
                tb_extents_give(&e, held[i]);
                memset(&taken[(held[i].offset - all.offset) / G], false, held[i].bytes / G);
                held[i] = held[--held_count];
            }
            assert_same(&e, taken);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_fit_takes_the_lowest),
        cmocka_unit_test(alignment_leaves_its_gap_free),
        cmocka_unit_test(take_at_refuses_taken_pieces),
        cmocka_unit_test(random_use_matches_a_map_of_pages),
    };
    return cmocka_run_group_tests_name("extents", tests, NULL, NULL);
}

/* stretches.c - pieces joined by their addresses: every piece is inside its stretch, and a stretch
 * is nothing but its pieces.
 *
 * Covers: intra/client/memory/stretches.c */
#include "intra/client/memory/stretches.h"

#include <string.h>

#include "base/fault.h"
#include "unit/check.h"

#define ROOM 4096u

static uint8_t room[ROOM];

struct cut {
    uint32_t at, bytes;
};

static struct tb_stretches make(const struct cut *cuts, uint32_t count)
{
    struct tb_stretch pieces[64];
    struct tb_stretches s;
    assert_true(count <= 64);
    for (uint32_t i = 0; i < count; i++)
        pieces[i] = (struct tb_stretch){room + cuts[i].at, cuts[i].bytes};
    CHECK_OK(tb_stretches_make(pieces, count, &s));
    return s;
}

static void is_at(const struct tb_stretches *s, uint32_t stretch, uint32_t at, uint32_t bytes)
{
    assert_ptr_equal(s->list[stretch].at, room + at);
    assert_int_equal(s->list[stretch].bytes, bytes);
}

static void a_flat_buffer_is_one_in_whatever_order(void **state)
{
    (void)state;
    struct tb_stretches s = make((const struct cut[]){{100, 50}, {10, 30}, {60, 40}, {40, 20}}, 4);
    assert_int_equal(s.count, 1);
    is_at(&s, 0, 10, 140);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(s.of[i], 0);
    tb_stretches_free(&s);
    assert_null(s.list);
}

/* P8: one byte between two of them was not published. */
static void a_gap_is_in_no_stretch(void **state)
{
    (void)state;
    struct tb_stretches s = make((const struct cut[]){{151, 9}, {10, 30}, {100, 50}, {40, 20}}, 4);
    assert_int_equal(s.count, 3);
    is_at(&s, 0, 10, 50);
    is_at(&s, 1, 100, 50);
    is_at(&s, 2, 151, 9);
    const uint32_t of[] = {2, 0, 1, 0};
    assert_memory_equal(s.of, of, sizeof of);
    tb_stretches_free(&s);
}

/* Tied weights: two names for the same bytes, or one for a part of another's. */
static void overlapping_pieces_are_one(void **state)
{
    (void)state;
    struct tb_stretches s = make((const struct cut[]){{10, 100}, {20, 10}, {10, 100}, {100, 20}}, 4);
    assert_int_equal(s.count, 1);
    is_at(&s, 0, 10, 110);
    tb_stretches_free(&s);
}

static void an_empty_tensor_is_nowhere(void **state)
{
    (void)state;
    struct tb_stretches s = make((const struct cut[]){{10, 0}, {50, 5}, {45, 0}}, 3);
    assert_int_equal(s.count, 1);
    is_at(&s, 0, 50, 5);
    const uint32_t of[] = {TB_STRETCH_NONE, 0, TB_STRETCH_NONE};
    assert_memory_equal(s.of, of, sizeof of);
    tb_stretches_free(&s);
    s = make(NULL, 0);
    assert_int_equal(s.count, 0);
    tb_stretches_free(&s);
}

/* Against the plain way: a mark on every byte. */
static void random_pieces_are_as_marked(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (uint32_t round = 0; round < 2000; round++) {
        struct cut cuts[64];
        uint8_t marks[ROOM + 1] = {0};
        const uint32_t count = (uint32_t)(check_random(&seed) % 65);
        for (uint32_t i = 0; i < count; i++) {
            cuts[i].at = (uint32_t)(check_random(&seed) % 256) * 8; /* so that many touch */
            cuts[i].bytes = (uint32_t)(check_random(&seed) % 5) * 8;
            memset(marks + cuts[i].at, 1, cuts[i].bytes);
        }
        struct tb_stretches s = make(cuts, count);
        uint32_t begun = 0;
        for (uint32_t at = 0; at < ROOM; at++)
            if (marks[at] != 0 && (at == 0 || marks[at - 1] == 0))
                is_at(&s, begun++, at, (uint32_t)strlen((char *)marks + at));
        assert_int_equal(s.count, begun);
        for (uint32_t i = 0; i < count; i++) {
            if (cuts[i].bytes == 0) continue;
            const struct tb_stretch *of = &s.list[s.of[i]];
            assert_true(room + cuts[i].at >= of->at &&
                        room + cuts[i].at + cuts[i].bytes <= of->at + of->bytes);
        }
        tb_stretches_free(&s);
    }
}

static void want_of_memory_leaves_nothing(void **state)
{
    (void)state;
    const struct tb_stretch piece = {room, 1};
    struct tb_stretches s = {.count = 9};
    for (uint64_t fail = 1; fail <= 3; fail++) {
        tb_fault_arm(TB_FAULT_malloc, fail, false);
        assert_int_equal(tb_stretches_make(&piece, 1, &s), TB_SITE_NOMEM);
        assert_int_equal(s.count, 9);
    }
    tb_fault_arm(TB_FAULT_malloc, 0, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flat_buffer_is_one_in_whatever_order),
        cmocka_unit_test(a_gap_is_in_no_stretch),
        cmocka_unit_test(overlapping_pieces_are_one),
        cmocka_unit_test(an_empty_tensor_is_nowhere),
        cmocka_unit_test(random_pieces_are_as_marked),
        cmocka_unit_test(want_of_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

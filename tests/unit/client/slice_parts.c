/* slice_parts.c - numbers of the boxes of one name: by hand, and over random tensors against
 * what a layout asks for.
 *
 * Covers: intra/client/memory/slice_parts.c */
#include "intra/client/memory/slice_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/layout/layout.h"
#include "unit/check.h"

#define PIECES 4096u

struct list {
    struct tb_tensor tensors[PIECES];
    uint32_t slice_of[PIECES];
    struct tb_slice_parts parts;
};

/* A box of a tensor of two axes; each is a slice of its own. */
static struct tb_tensor *add(struct list *l, const char *name, const uint64_t *full, const uint64_t *first,
                             const uint64_t *count)
{
    const uint32_t i = l->parts.count++;
    assert_true(i < PIECES);
    l->slice_of[i] = i;
    l->tensors[i] = (struct tb_tensor){.name = name, .dtype = TB_DTYPE_BF16, .rank = 2};
    memcpy(l->tensors[i].full, full, 2 * sizeof *full);
    memcpy(l->tensors[i].box_first, first, 2 * sizeof *first);
    memcpy(l->tensors[i].box_count, count, 2 * sizeof *count);
    return &l->tensors[i];
}

/* Rows of a tensor. */
static struct tb_tensor *rows(struct list *l, const char *name, uint64_t all, uint64_t first, uint64_t count)
{
    const uint64_t full[] = {all, 10}, from[] = {first, 0}, to[] = {count, 10};
    return add(l, name, full, from, to);
}

static struct list *list_new(void)
{
    struct list *l = calloc(1, sizeof *l);
    assert_non_null(l);
    return l;
}

static void number(struct list *l)
{
    l->parts.tensors = l->tensors;
    l->parts.slice_of = l->slice_of;
    CHECK_OK(tb_slice_parts_number(&l->parts));
}

static void refused(struct list *l, enum tb_slice_parts_fault fault, uint32_t a, uint32_t b)
{
    number(l);
    assert_int_equal(l->parts.fault, fault);
    assert_int_equal(l->parts.slices[0], a);
    assert_int_equal(l->parts.slices[1], b);
    free(l);
}

static bool builds(const struct list *l)
{
    struct tb_layout layout;
    const size_t bytes = tb_layout_bytes_for(l->tensors, l->parts.count);
    void *memory = malloc(bytes);
    const enum tb_status status = tb_layout_build(l->tensors, l->parts.count, memory, bytes, &layout);
    free(memory);
    return status == TB_OK;
}

/* P9: the layout of a publisher with one box of each name is what it was. */
static void one_box_of_a_name_keeps_its_parts(void **state)
{
    (void)state;
    struct list *l = list_new();
    (void)rows(l, "norm", 1, 0, 1);
    for (uint16_t p = 0; p < 4; p++) {
        rows(l, "up", 64, 16 + 4u * p, 4)->part = (uint16_t)(5 + p);
        l->slice_of[l->parts.count - 1] = 1;
    }
    number(l);
    assert_int_equal(l->parts.fault, TB_SLICE_PARTS_FINE);
    assert_int_equal(l->tensors[0].part, 0);
    for (uint16_t p = 0; p < 4; p++)
        assert_int_equal(l->tensors[1 + p].part, 5 + p);
    free(l);
}

/* Two layers' q, k and v stand together, q with q; experts are cut in another way and stand apart;
 * and what one box of a name has keeps its numbers, which are none of theirs. */
static void boxes_cut_alike_have_one_number(void **state)
{
    (void)state;
    struct list *l = list_new();
    rows(l, "up", 64, 0, 8)->part = 3;
    struct tb_tensor *v = rows(l, "b.qkv", 96, 80, 4), *q = rows(l, "b.qkv", 96, 0, 16),
                     *k = rows(l, "b.qkv", 96, 64, 4);
    struct tb_tensor *q0 = rows(l, "a.qkv", 96, 0, 16), *k0 = rows(l, "a.qkv", 96, 64, 4),
                     *v0 = rows(l, "a.qkv", 96, 80, 4);
    struct tb_tensor *six = rows(l, "experts", 8, 6, 1), *one = rows(l, "experts", 8, 1, 1);
    number(l);
    assert_int_equal(l->parts.fault, TB_SLICE_PARTS_FINE);
    assert_int_equal(l->tensors[0].part, 3);
    assert_int_equal(q->part, q0->part);
    assert_int_equal(k->part, k0->part);
    assert_int_equal(v->part, v0->part);
    assert_int_equal(q->part, 4); /* by where they begin, whatever the order of the list */
    assert_int_equal(one->part, 5);
    assert_int_equal(six->part, 6);
    assert_int_equal(k->part, 7);
    assert_int_equal(v->part, 8);
    assert_true(builds(l));
    free(l);
}

/* Two boxes that lie in one part of their split do not have its number both. */
static void boxes_are_split_each_for_itself(void **state)
{
    (void)state;
    struct list *l = list_new();
    const uint64_t full[] = {8, 10};
    for (uint32_t e = 0; e < 2; e++)
        for (uint32_t p = 0; p < 2; p++) {
            const uint64_t first[] = {e == 0 ? 1 : 6, 5u * p}, count[] = {1, 5};
            add(l, "experts", full, first, count)->part = (uint16_t)(p + 1);
            l->slice_of[l->parts.count - 1] = e;
        }
    number(l);
    assert_int_equal(l->parts.fault, TB_SLICE_PARTS_FINE);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(l->tensors[i].part, i + 1);
    assert_true(builds(l));
    free(l);
}

static void a_box_that_no_shard_may_have_is_named(void **state)
{
    (void)state;
    struct list *l = list_new();
    (void)rows(l, "other", 8, 0, 3);
    (void)rows(l, "w", 8, 4, 2);
    (void)rows(l, "w", 8, 0, 2);
    (void)rows(l, "w", 8, 1, 1); /* in the one before */
    refused(l, TB_SLICE_PARTS_OVERLAP, 2, 3);
    l = list_new();
    (void)rows(l, "w", 8, 0, 8);
    (void)rows(l, "w", 8, 0, 8);
    refused(l, TB_SLICE_PARTS_OVERLAP, 0, 1);
    l = list_new();
    (void)rows(l, "w", 8, 3, 0);
    (void)rows(l, "w", 8, 3, 0);
    refused(l, TB_SLICE_PARTS_OVERLAP, 0, 1);
    l = list_new();
    (void)rows(l, "w", 8, 4, 2);
    rows(l, "w", 8, 0, 2)->dtype = TB_DTYPE_F16;
    refused(l, TB_SLICE_PARTS_DIFFER, 0, 1);
    l = list_new();
    (void)rows(l, "w", 8, 4, 2);
    (void)rows(l, "w", 9, 0, 2);
    refused(l, TB_SLICE_PARTS_DIFFER, 0, 1);
    l = list_new();
    (void)rows(l, "w", 8, 4, 2);
    rows(l, "w", 8, 0, 2)->rank = 1;
    refused(l, TB_SLICE_PARTS_DIFFER, 0, 1);
}

/* An empty box beside others is one of them. */
static void an_empty_box_is_in_nobodys_way(void **state)
{
    (void)state;
    struct list *l = list_new();
    (void)rows(l, "w", 8, 0, 4);
    (void)rows(l, "w", 8, 2, 0);
    (void)rows(l, "w", 8, 4, 4);
    number(l);
    assert_int_equal(l->parts.fault, TB_SLICE_PARTS_FINE);
    assert_true(builds(l));
    free(l);
}

static void there_are_as_many_numbers_as_parts(void **state)
{
    (void)state;
    for (uint32_t more = 0; more < 2; more++) {
        struct list *l = list_new();
        rows(l, "up", 64, 0, 8)->part = 100;
        for (uint32_t i = 0; i < TB_PARTS_MAX - 100 + more; i++)
            (void)rows(l, "w", PIECES, i, 1);
        if (more > 0) {
            refused(l, TB_SLICE_PARTS_TOO_MANY, 1, 1);
            continue;
        }
        number(l);
        assert_int_equal(l->parts.fault, TB_SLICE_PARTS_FINE);
        assert_int_equal(l->tensors[l->parts.count - 1].part, TB_PARTS_MAX);
        assert_true(builds(l));
        free(l);
    }
    struct list *l = list_new();
    for (uint32_t i = 0; i < TB_PARTS_MAX + 1; i++)
        (void)rows(l, "w", PIECES, i, 1);
    refused(l, TB_SLICE_PARTS_TOO_MANY, 0, 0);
}

/* Where names are cut in more ways than there are numbers, they share them. */
static void many_ways_to_cut_share_numbers(void **state)
{
    (void)state;
    struct list *l = list_new();
    char names[3][2] = {"a", "b", "c"};
    rows(l, "up", 64, 0, 8)->part = 7;
    for (uint32_t n = 0; n < 3; n++)
        for (uint32_t i = 0; i < 400; i++)
            (void)rows(l, names[n], 1000 + n, i, 1);
    number(l);
    assert_int_equal(l->parts.fault, TB_SLICE_PARTS_FINE);
    for (uint32_t n = 0; n < 3; n++)
        for (uint32_t i = 0; i < 400; i++)
            assert_int_equal(l->tensors[1 + n * 400 + i].part, 8 + i);
    assert_true(builds(l));
    free(l);
}

/* Grids of boxes of some names, in any order: a layout can be made of them, and two have one number
 * only if they are cut alike. */
static void any_boxes_beside_each_other_make_a_layout(void **state)
{
    (void)state;
    static const char names[][2] = {"a", "b", "c", "d"};
    uint64_t seed = 5;
    for (int round = 0; round < 300; round++) {
        struct list *l = list_new();
        for (uint32_t n = 0; n < 4; n++) {
            const uint64_t full[] = {1 + check_random(&seed) % 6, 1 + check_random(&seed) % 6};
            for (uint64_t x = 0; x < full[0]; x++)
                for (uint64_t y = 0; y < full[1]; y++) {
                    const uint64_t first[] = {x, y}, one[] = {1, 1};
                    if (check_random(&seed) % 3 == 0) (void)add(l, names[n], full, first, one);
                }
        }
        for (uint32_t i = l->parts.count; i > 1; i--) {
            const uint32_t k = (uint32_t)(check_random(&seed) % i);
            const struct tb_tensor swap = l->tensors[k];
            l->tensors[k] = l->tensors[i - 1];
            l->tensors[i - 1] = swap;
        }
        number(l);
        assert_int_equal(l->parts.fault, TB_SLICE_PARTS_FINE);
        assert_true(builds(l));
        for (uint32_t i = 0; i < l->parts.count; i++)
            for (uint32_t k = 0; k < i; k++) {
                const struct tb_tensor *a = &l->tensors[i], *b = &l->tensors[k];
                if (a->part == 0 || a->part != b->part) continue;
                for (uint32_t axis = 0; axis < 2; axis++)
                    assert_true(a->box_first[axis] == b->box_first[axis] && a->full[axis] == b->full[axis]);
            }
        free(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_box_of_a_name_keeps_its_parts),
        cmocka_unit_test(boxes_cut_alike_have_one_number),
        cmocka_unit_test(boxes_are_split_each_for_itself),
        cmocka_unit_test(a_box_that_no_shard_may_have_is_named),
        cmocka_unit_test(an_empty_box_is_in_nobodys_way),
        cmocka_unit_test(there_are_as_many_numbers_as_parts),
        cmocka_unit_test(many_ways_to_cut_share_numbers),
        cmocka_unit_test(any_boxes_beside_each_other_make_a_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

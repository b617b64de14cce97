/* boxes.c - boxes out of boxes, against the plain way: element by element.
 *
 * Covers: intra/client/memory/boxes.c */
#include "intra/client/memory/boxes.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/bitmap.h"
#include "base/layout/tensor.h"
#include "intra/client/memory/slice_parts.h"
#include "unit/check.h"

#define SHARDS 6u

/* A tensor whose element at an index is that index counted through, and the shards' packed bytes of
 * it. */
struct world {
    struct tb_tensor whole;
    struct tb_layout layouts[SHARDS];
    void *memory[SHARDS];
    uint16_t *bytes[SHARDS];
    uint32_t count;
};

static uint64_t number_of(const struct tb_tensor *whole, const uint64_t *at)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < whole->rank; i++)
        n = n * whole->full[i] + at[i];
    return n;
}

/* Every element of the tensor's box, in order: filled, or looked at. */
static void walk(const struct world *w, const struct tb_tensor *t, uint16_t *bytes, bool check)
{
    uint64_t at[TB_RANK_MAX], total = t->bytes / 2;
    memcpy(at, t->box_first, sizeof at);
    for (uint64_t i = 0; i < total; i++) {
        const uint16_t wanted = (uint16_t)(number_of(&w->whole, at) + 1);
        if (check)
            assert_int_equal(bytes[i], wanted);
        else
            bytes[i] = wanted;
        for (uint32_t axis = t->rank; axis-- > 0;) {
            if (++at[axis] < t->box_first[axis] + t->box_count[axis]) break;
            at[axis] = t->box_first[axis];
        }
    }
}

/* A shard with these boxes. */
static void add_shard(struct world *w, const struct tb_tensor *boxes, uint32_t count)
{
    const size_t bytes = tb_layout_bytes_for(boxes, count);
    const uint32_t s = w->count++;
    assert_true(s < SHARDS);
    w->memory[s] = malloc(bytes);
    CHECK_OK(tb_layout_build(boxes, count, w->memory[s], bytes, &w->layouts[s]));
    w->bytes[s] = malloc(w->layouts[s].bytes + 1);
    for (uint32_t i = 0; i < w->layouts[s].tensor_count; i++)
        walk(w, &w->layouts[s].tensors[i], w->bytes[s] + w->layouts[s].tensors[i].offset / 2, false);
}

static void world_close(struct world *w)
{
    for (uint32_t s = 0; s < w->count; s++) {
        free(w->memory[s]);
        free(w->bytes[s]);
    }
}

static struct tb_tensor tensor(uint8_t rank, const uint64_t *full)
{
    struct tb_tensor t = {.name = "w", .dtype = TB_DTYPE_BF16, .rank = rank};
    memcpy(t.full, full, rank * sizeof *full);
    memcpy(t.box_count, full, rank * sizeof *full);
    return t;
}

static void measure(struct tb_tensor *t)
{
    t->bytes = 2;
    for (uint32_t i = 0; i < t->rank; i++)
        t->bytes *= t->box_count[i];
}

static enum tb_status match(const struct world *w, const struct tb_tensor *want, struct tb_box_copies *copies)
{
    const struct tb_layout *layouts[SHARDS];
    for (uint32_t s = 0; s < w->count; s++)
        layouts[s] = &w->layouts[s];
    const struct tb_box_question q = {layouts, w->count, want, 1};
    uint32_t missing;
    return tb_boxes_match(&q, copies, &missing);
}

/* Copies, and looks at each element and at each chunk's bit. */
static void check(const struct world *w, struct tb_tensor *want)
{
    struct tb_box_copies copies;
    measure(want);
    CHECK_OK(match(w, want, &copies));
    assert_int_equal(copies.bytes, want->bytes);
    uint16_t *out = calloc(1, want->bytes + 1);
    for (uint32_t i = 0; i < copies.count; i++) {
        const struct tb_box_copy *c = &copies.list[i];
        for (uint64_t row = 0; row < c->rows; row++)
            memcpy((uint8_t *)out + c->to + row * c->to_stride,
                   (const uint8_t *)w->bytes[c->shard] + c->from + row * c->from_stride, c->run);
    }
    walk(w, want, out, true);
    free(out);
    for (uint32_t s = 0; s < w->count; s++) {
        /* A chunk every 64 bytes: wanted exactly where a run meets it. */
        const uint32_t chunks = (uint32_t)(w->layouts[s].bytes / 64 + 1);
        struct tb_chunk *list = calloc(chunks, sizeof *list);
        uint64_t *wanted = calloc(TB_BITMAP_WORDS(chunks), 8), *plain = calloc(TB_BITMAP_WORDS(chunks), 8);
        for (uint32_t k = 0; k < chunks; k++)
            list[k] = (struct tb_chunk){k * 64ull, 64};
        tb_boxes_chunks(&copies, s, list, chunks, wanted);
        for (uint32_t i = 0; i < copies.count; i++)
            for (uint64_t row = 0; row < copies.list[i].rows && copies.list[i].shard == s; row++)
                for (uint64_t b = 0; b < copies.list[i].run; b++)
                    (void)tb_bitmap_set(
                        plain, (uint32_t)((copies.list[i].from + row * copies.list[i].from_stride + b) / 64));
        assert_memory_equal(wanted, plain, TB_BITMAP_WORDS(chunks) * 8);
        free(list);
        free(wanted);
        free(plain);
    }
    tb_free(copies.list);
}

/* Any box of a tensor of any rank, out of shards that split it along any axis, some in
 * parts, some overlapping. */
static void any_box_out_of_any_boxes(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 400; round++) {
        struct world w = {.count = 0};
        uint64_t full[4];
        const uint8_t rank = (uint8_t)(1 + check_random(&seed) % 4);
        for (uint32_t i = 0; i < rank; i++)
            full[i] = 1 + check_random(&seed) % 12;
        w.whole = tensor(rank, full);
        const uint32_t axis = (uint32_t)(check_random(&seed) % rank);
        const uint64_t shards = 1 + check_random(&seed) % 4;
        for (uint64_t s = 0; s < shards; s++) {
            struct tb_tensor boxes[4];
            const uint64_t overlap = check_random(&seed) % 2;
            const uint64_t first = s * full[axis] / shards;
            uint64_t end = (s + 1) * full[axis] / shards + overlap;
            if (end > full[axis]) end = full[axis];
            const uint32_t other = (uint32_t)(check_random(&seed) % rank);
            const uint32_t parts = other == axis ? 1 : (uint32_t)(1 + check_random(&seed) % 3);
            for (uint32_t p = 0; p < parts; p++) {
                boxes[p] = w.whole;
                boxes[p].part = (uint16_t)(parts > 1 ? p + 1 : 0);
                boxes[p].box_first[axis] = first;
                boxes[p].box_count[axis] = end - first;
                if (other == axis) continue;
                boxes[p].box_first[other] = p * full[other] / parts;
                boxes[p].box_count[other] = (p + 1) * full[other] / parts - p * full[other] / parts;
            }
            add_shard(&w, boxes, parts);
        }
        struct tb_tensor want = w.whole;
        check(&w, &want);
        for (int k = 0; k < 4; k++) {
            for (uint32_t i = 0; i < rank; i++) {
                want.box_first[i] = check_random(&seed) % full[i];
                want.box_count[i] = 1 + check_random(&seed) % (full[i] - want.box_first[i]);
            }
            check(&w, &want);
        }
        world_close(&w);
    }
}

/* A wall along each axis, and the cells between them. */
static uint32_t cells_of(const struct tb_tensor *whole, uint64_t *seed, struct tb_tensor *cells)
{
    uint32_t count = 1;
    cells[0] = *whole;
    for (uint32_t axis = 0; axis < whole->rank; axis++) {
        const uint64_t wall = check_random(seed) % whole->full[axis];
        for (uint32_t i = 0; i < count && wall > 0; i++) {
            cells[count + i] = cells[i];
            cells[i].box_count[axis] = wall;
            cells[count + i].box_first[axis] = wall;
            cells[count + i].box_count[axis] -= wall;
        }
        count *= wall > 0 ? 2 : 1;
    }
    return count;
}

/* Its cells, as a registration of them numbers them. */
static void add_cells(struct world *w, struct tb_tensor *cells, uint32_t count)
{
    static const uint32_t slice_of[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct tb_slice_parts parts = {.tensors = cells, .slice_of = slice_of, .count = count};
    CHECK_OK(tb_slice_parts_number(&parts));
    assert_int_equal(parts.fault, TB_SLICE_PARTS_FINE);
    add_shard(w, cells, count);
}

/* Any box, out of shards that have several boxes of the tensor each, wherever these lie;
 * some are at two shards. */
static void any_box_out_of_several_boxes_a_shard(void **state)
{
    (void)state;
    uint64_t seed = 12;
    for (int round = 0; round < 400; round++) {
        struct world w = {.count = 0};
        struct tb_tensor cells[16], of[SHARDS][16];
        uint32_t has[SHARDS] = {0};
        uint64_t full[4];
        const uint8_t rank = (uint8_t)(1 + check_random(&seed) % 4);
        for (uint32_t i = 0; i < rank; i++)
            full[i] = 1 + check_random(&seed) % 12;
        w.whole = tensor(rank, full);
        const uint32_t count = cells_of(&w.whole, &seed, cells);
        const uint32_t shards = 1 + (uint32_t)(check_random(&seed) % 3);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t s = (uint32_t)(check_random(&seed) % shards), other = (s + 1) % shards;
            of[s][has[s]++] = cells[i];
            if (other != s && check_random(&seed) % 4 == 0) of[other][has[other]++] = cells[i];
        }
        for (uint32_t s = 0; s < shards; s++)
            add_cells(&w, of[s], has[s]);
        struct tb_tensor want = w.whole;
        check(&w, &want);
        for (int k = 0; k < 4; k++) {
            for (uint32_t i = 0; i < rank; i++) {
                want.box_first[i] = check_random(&seed) % full[i];
                want.box_count[i] = 1 + check_random(&seed) % (full[i] - want.box_first[i]);
            }
            check(&w, &want);
        }
        world_close(&w);
    }
}

static void a_box_that_is_not_there_is_said(void **state)
{
    (void)state;
    struct world w = {.count = 0};
    const uint64_t full[] = {8, 6};
    w.whole = tensor(2, full);
    struct tb_tensor half = w.whole;
    half.box_count[0] = 4;
    add_shard(&w, &half, 1);
    struct tb_box_copies copies;
    struct tb_tensor want = w.whole;
    measure(&want);
    CHECK_STATUS(match(&w, &want, &copies), TB_LAYOUT_MISMATCH); /* the other half is nowhere */
    tb_free(copies.list);
    want.box_count[0] = 4;
    check(&w, &want);
    want.full[1] = 7; /* of another shape */
    CHECK_STATUS(match(&w, &want, &copies), TB_LAYOUT_MISMATCH);
    tb_free(copies.list);
    want = half;
    want.dtype = TB_DTYPE_F16;
    CHECK_STATUS(match(&w, &want, &copies), TB_LAYOUT_MISMATCH);
    tb_free(copies.list);
    want = half;
    want.name = "other";
    CHECK_STATUS(match(&w, &want, &copies), TB_LAYOUT_MISMATCH);
    tb_free(copies.list);
    world_close(&w);
}

static void large_copies_are_cut(void **state)
{
    (void)state;
    struct world w = {.count = 0};
    const uint64_t full[] = {3, 1 << 21};
    w.whole = tensor(2, full);
    add_shard(&w, &w.whole, 1);
    struct tb_tensor want = w.whole;
    check(&w, &want);
    want.box_first[1] = 5;
    want.box_count[1] = 1 << 20;
    check(&w, &want);
    struct tb_box_copies copies;
    CHECK_OK(match(&w, &w.layouts[0].tensors[0], &copies));
    assert_int_equal(copies.count, 12); /* 1 MiB each */
    tb_free(copies.list);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_box_out_of_any_boxes),
        cmocka_unit_test(any_box_out_of_several_boxes_a_shard),
        cmocka_unit_test(a_box_that_is_not_there_is_said),
        cmocka_unit_test(large_copies_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

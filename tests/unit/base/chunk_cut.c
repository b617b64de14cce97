/* The cut: one published rule, no gap, no overlap, and chunk k covers the same bytes
 * whatever blobs travel (P5).
 *
 * Covers: base/layout/chunk_cut.c base/layout/layout.c */
#include "base/layout/layout.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/check.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct cut {
    uint32_t count;
    struct tb_chunk *chunks;
};

static struct cut cut_of(const struct tb_layout *layout, uint64_t blob_bytes)
{
    struct cut c = {.count = tb_cut_count(layout, blob_bytes)};
    c.chunks = calloc(c.count + 1u, sizeof *c.chunks);
    c.chunks[c.count].bytes = 0xdead; /* nothing may be written behind */
    tb_cut(layout, blob_bytes, c.chunks);
    assert_int_equal(c.chunks[c.count].bytes, 0xdead);
    return c;
}

/* A layout of U8 tensors with these sizes in this order (names count up). */
static void *layout_of(const uint64_t *bytes, uint32_t count, enum tb_dtype dtype,
                       struct tb_layout *layout_out)
{
    char(*names)[12] = calloc(count + 1u, sizeof *names);
    struct tb_tensor *tensors = calloc(count + 1u, sizeof *tensors);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t elements = bytes[i] / tb_dtype_element_bytes(dtype);
        snprintf(names[i], sizeof names[i], "%08u", i);
        tensors[i] = (struct tb_tensor){
            .name = names[i], .dtype = dtype, .rank = 1, .full = {elements}, .box_count = {elements}};
    }
    const size_t need = tb_layout_bytes_for(tensors, count);
    void *memory = malloc(need + 16);
    CHECK_OK(tb_layout_build(tensors, count, memory, need, layout_out));
    free(tensors);
    free(names);
    return memory;
}

static void target_is_a_4096th(void **state)
{
    (void)state;
    assert_true(tb_cut_target_bytes(0) == MIB);
    assert_true(tb_cut_target_bytes(8 * GIB - 1) == MIB);
    assert_true(tb_cut_target_bytes(8 * GIB) == 2 * MIB);
    assert_true(tb_cut_target_bytes(32 * GIB - 1) == 4 * MIB);
    assert_true(tb_cut_target_bytes(64 * GIB) == 16 * MIB);
    assert_true(tb_cut_target_bytes((uint64_t)1 << 44) == 16 * MIB);
}

/* Worked examples: what docs/protocol.md shows. */
static void worked_examples(void **state)
{
    (void)state;
    struct tb_layout layout;
    /* 2.5 MiB alone: 3 pieces, each start rounded down to 4096 */
    void *memory = layout_of((uint64_t[]){2 * MIB + 512 * KIB}, 1, TB_DTYPE_BF16, &layout);
    struct cut c = cut_of(&layout, 0);
    assert_int_equal(c.count, 3);
    assert_true(c.chunks[1].offset == (2 * MIB + 512 * KIB) / 3 / 4096 * 4096);
    assert_true(c.chunks[2].offset == 2 * (2 * MIB + 512 * KIB) / 3 / 4096 * 4096);
    free(c.chunks);
    free(memory);

    /* small ones are grouped until the next would pass the target; a large one ends the group */
    const uint64_t mixed[] = {400 * KIB, 400 * KIB, 224 * KIB, 2, 2 * MIB, 10, 0, 20};
    memory = layout_of(mixed, 8, TB_DTYPE_BF16, &layout);
    c = cut_of(&layout, 0);
    const uint32_t want[] = {1024 * 1024, 2, 1024 * 1024, 1024 * 1024, 30};
    assert_int_equal(c.count, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(c.chunks[i].bytes, want[i]);
    free(c.chunks);
    free(memory);
}

/* tensors.many: what costs something for each chunk costs a version of 100,000 small tensors at
 * most a tenth more than one large tensor of the same bytes. (Their layout is taken apart once for
 * all versions: layouts.c.) */
static void many_small_tensors_are_hardly_more_chunks(void **state)
{
    (void)state;
    enum { MANY = 100000, EACH = 5368 };
    struct tb_layout layout;
    uint64_t *bytes = calloc(MANY, sizeof *bytes);
    for (uint32_t i = 0; i < MANY; i++)
        bytes[i] = EACH;
    void *memory = layout_of(bytes, MANY, TB_DTYPE_BF16, &layout);
    const uint32_t many = tb_cut_count(&layout, 0);
    free(memory);
    memory = layout_of((uint64_t[]){(uint64_t)MANY * EACH}, 1, TB_DTYPE_BF16, &layout);
    const uint32_t one = tb_cut_count(&layout, 0);
    free(memory);
    free(bytes);
    assert_int_equal(one, 512);
    assert_in_range(many, one, one * 11 / 10);
}

static void groups_have_one_dtype(void **state)
{
    (void)state;
    const struct tb_tensor tensors[] = {
        {.name = "a", .dtype = TB_DTYPE_BF16, .rank = 1, .full = {10}, .box_count = {10}},
        {.name = "b", .dtype = TB_DTYPE_F16, .rank = 1, .full = {10}, .box_count = {10}},
        {.name = "c", .dtype = TB_DTYPE_F32, .rank = 1, .full = {0}, .box_count = {0}},
        {.name = "d", .dtype = TB_DTYPE_BF16, .rank = 1, .full = {10}, .box_count = {10}},
    };
    static _Alignas(16) uint8_t memory[4096];
    struct tb_layout layout;
    CHECK_OK(tb_layout_build(tensors, 4, memory, sizeof memory, &layout));
    struct cut c = cut_of(&layout, 5);
    assert_int_equal(c.count, 3);
    assert_int_equal(c.chunks[0].bytes, 20); /* F16 has the smaller number */
    assert_int_equal(c.chunks[1].bytes, 40);
    assert_int_equal(c.chunks[2].bytes, 5);
    assert_true(c.chunks[2].offset == 60);
    free(c.chunks);
}

static void assert_tiles(const struct cut *c, uint64_t bytes, uint64_t target)
{
    uint64_t at = 0;
    for (uint32_t k = 0; k < c->count; k++) {
        assert_true(c->chunks[k].offset == at);
        assert_true(c->chunks[k].bytes > 0);
        assert_true(c->chunks[k].bytes <= target + 4096);
        at += c->chunks[k].bytes;
    }
    assert_true(at == bytes);
}

/* No gap, no overlap, no chunk across a large tensor's border; blobs change nothing before them. */
static void random_layouts_are_tiled(void **state)
{
    (void)state;
    uint64_t seed = 23;
    for (int round = 0; round < 200; round++) {
        uint64_t sizes[60];
        struct tb_layout layout;
        const uint32_t count = (uint32_t)(check_random(&seed) % 60);
        const uint64_t scale = UINT64_C(1) << (check_random(&seed) % 36);
        for (uint32_t i = 0; i < count; i++)
            sizes[i] = check_random(&seed) % scale / 4 * 4;
        void *memory = layout_of(sizes, count, TB_DTYPE_F32, &layout);
        const uint64_t target = tb_cut_target_bytes(layout.bytes);
        const uint64_t blob_bytes = check_random(&seed) % (5 * target);
        struct cut bare = cut_of(&layout, 0);
        struct cut with = cut_of(&layout, blob_bytes);
        assert_tiles(&bare, layout.bytes, target);
        assert_tiles(&with, layout.bytes + blob_bytes, target);
        assert_true(with.count >= bare.count);
        assert_memory_equal(bare.chunks, with.chunks, bare.count * sizeof *bare.chunks);
        for (uint32_t k = 0; k < bare.count; k++)
            assert_true(bare.chunks[k].offset % 4 == 0); /* every chunk starts on an element */
        free(bare.chunks);
        free(with.chunks);
        free(memory);
    }
}

/* 2^44 bytes in one tensor: i x bytes comes close to 2^64. */
static void the_largest_shard_is_cut_right(void **state)
{
    (void)state;
    struct tb_layout layout;
    const uint64_t bytes = TB_SHARD_BYTES_MAX - 12345 * 8;
    void *memory = layout_of(&bytes, 1, TB_DTYPE_F64, &layout);
    struct cut c = cut_of(&layout, 0);
    assert_int_equal(c.count, (bytes + TB_CHUNK_BYTES_MAX - 1) / TB_CHUNK_BYTES_MAX);
    assert_tiles(&c, bytes, TB_CHUNK_BYTES_MAX);
    for (uint32_t k = 0; k < c.count; k += 999) {
        const unsigned __int128 product = (unsigned __int128)k * bytes;
        assert_true(c.chunks[k].offset == (uint64_t)(product / c.count) / 4096 * 4096);
    }
    free(c.chunks);
    free(memory);
}

static void nothing_gives_no_chunk(void **state)
{
    (void)state;
    struct tb_layout layout;
    void *memory = layout_of((uint64_t[]){0, 0}, 2, TB_DTYPE_U8, &layout);
    assert_int_equal(tb_cut_count(&layout, 0), 0);
    assert_int_equal(tb_cut_count(&layout, 1), 1);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_is_a_4096th),
        cmocka_unit_test(worked_examples),
        cmocka_unit_test(many_small_tensors_are_hardly_more_chunks),
        cmocka_unit_test(groups_have_one_dtype),
        cmocka_unit_test(random_layouts_are_tiled),
        cmocka_unit_test(the_largest_shard_is_cut_right),
        cmocka_unit_test(nothing_gives_no_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

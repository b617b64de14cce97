/* layout.c - one canonical order and id for the same tensors, and a decoder that believes nothing
 * (P7).
 *
 * Covers: base/layout/layout.c */
#include "base/layout/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/layout_fixture.h"
#include "tests/unit/check.h"

static struct tb_tensor whole(const char *name, enum tb_dtype dtype, uint64_t rows, uint64_t columns)
{
    return (struct tb_tensor){
        .name = name, .dtype = dtype, .rank = 2, .full = {rows, columns}, .box_count = {rows, columns}};
}

static void dtypes_have_names_and_sizes(void **state)
{
    (void)state;
#define CHECK_DTYPE(name, number, text, bits)                                                                \
    assert_int_equal(tb_dtype_parse(text), name);                                                            \
    assert_string_equal(tb_dtype_name(name), text);                                                          \
    assert_int_equal(tb_dtype_element_bytes(name), (bits) / 8);
    TB_DTYPE_LIST(CHECK_DTYPE)
#undef CHECK_DTYPE
    assert_int_equal(tb_dtype_parse("bf16"), 0);
    assert_int_equal(tb_dtype_parse(""), 0);
    assert_null(tb_dtype_name((enum tb_dtype)99));
    assert_int_equal(tb_dtype_element_bytes((enum tb_dtype)0), 0);
}

static void packed_order_is_size_dtype_name(void **state)
{
    (void)state;
    const struct tb_tensor tensors[] = {
        whole("b", TB_DTYPE_U8, 1, 3),  whole("z", TB_DTYPE_F64, 2, 2),  whole("c", TB_DTYPE_BF16, 2, 3),
        whole("a", TB_DTYPE_F32, 1, 1), whole("B", TB_DTYPE_BF16, 1, 1), whole("a0", TB_DTYPE_F16, 1, 1),
    };
    static const char *const want[] = {"z", "a", "a0", "B", "c", "b"};
    struct tb_layout layout;
    void *memory = build(tensors, 6, &layout);
    uint64_t at = 0;
    for (uint32_t i = 0; i < 6; i++) {
        const struct tb_tensor *t = &layout.tensors[i];
        assert_string_equal(t->name, want[i]);
        assert_true(t->offset == at);
        assert_true(t->offset % tb_dtype_element_bytes(t->dtype) == 0);
        at += t->bytes;
    }
    assert_true(layout.bytes == at);
    assert_true(at == 32 + 4 + 2 + 2 + 12 + 3);
    free(memory);
}

/* Equal layouts have one id and cross once, in any order of their tensors (P4). */
static void the_order_given_does_not_matter(void **state)
{
    (void)state;
    enum { COUNT = 97 };
    static char names[COUNT][16];
    struct tb_tensor tensors[COUNT];
    struct tb_digest first = {{0}};
    uint64_t seed = 5;
    for (uint32_t i = 0; i < COUNT; i++) {
        static const enum tb_dtype kinds[] = {TB_DTYPE_BF16, TB_DTYPE_F32, TB_DTYPE_U8, TB_DTYPE_F16};
        snprintf(names[i], sizeof names[i], "layer.%u", i * 7919 % COUNT);
        tensors[i] = whole(names[i], kinds[i % 4], i, 3);
    }
    for (int round = 0; round < 20; round++) {
        struct tb_layout layout;
        void *memory = build(tensors, COUNT, &layout);
        if (round == 0) first = layout.id;
        assert_true(tb_digest_equal(&first, &layout.id));
        for (uint32_t i = 0; i < COUNT; i++)
            assert_string_equal(tb_layout_find(&layout, names[i])->name, names[i]);
        assert_null(tb_layout_find(&layout, "layer"));
        free(memory);
        for (uint32_t i = COUNT - 1; i > 0; i--) {
            const uint32_t j = (uint32_t)(check_random(&seed) % (i + 1));
            const struct tb_tensor t = tensors[i];
            tensors[i] = tensors[j];
            tensors[j] = t;
        }
    }
}

static void the_id_sees_every_number(void **state)
{
    (void)state;
    struct tb_tensor variants[8];
    struct tb_digest ids[8];
    for (int i = 0; i < 8; i++)
        variants[i] = whole("w", TB_DTYPE_BF16, 8, 8);
    variants[1].name = "v";
    variants[2].dtype = TB_DTYPE_F16;
    variants[3].full[0] = 9;
    variants[4].box_count[0] = 7;
    variants[5].box_count[0] = 7;
    variants[5].box_first[0] = 1;
    variants[6].rank = 1;
    variants[7].full[1] = 9;
    for (int i = 0; i < 8; i++) {
        struct tb_layout layout;
        free(build(&variants[i], 1, &layout));
        ids[i] = layout.id;
        for (int j = 0; j < i; j++)
            assert_false(tb_digest_equal(&ids[i], &ids[j]));
    }
    variants[0].full[5] = 77; /* past the rank: not part of it */
    struct tb_layout layout;
    free(build(&variants[0], 1, &layout));
    assert_true(tb_digest_equal(&layout.id, &ids[0]));
}

static void impossible_values_are_refused(void **state)
{
    (void)state;
    char long_name[TB_TENSOR_NAME_MAX + 2];
    memset(long_name, 'n', sizeof long_name);
    long_name[TB_TENSOR_NAME_MAX + 1] = '\0';
    struct tb_tensor t = whole(long_name, TB_DTYPE_U8, 1, 1);
    CHECK_STATUS(try_build(&t, 1), TB_BAD_ARGUMENT);
    long_name[TB_TENSOR_NAME_MAX] = '\0';
    CHECK_OK(try_build(&t, 1));

    static const char *const unclean[] = {"", "a\nb", "\x1b[31m", "\xff", "a\x7f"};
    for (size_t i = 0; i < sizeof unclean / sizeof unclean[0]; i++) {
        t = whole(unclean[i], TB_DTYPE_U8, 1, 1);
        CHECK_STATUS(try_build(&t, 1), TB_BAD_ARGUMENT);
    }
    t = whole("a", (enum tb_dtype)16, 1, 1);
    CHECK_STATUS(try_build(&t, 1), TB_BAD_ARGUMENT);
    t = whole("a", TB_DTYPE_U8, 1, 1);
    t.rank = TB_RANK_MAX + 1;
    CHECK_STATUS(try_build(&t, 1), TB_BAD_ARGUMENT);

    /* equal names are not neighbours in packed order when their dtypes differ */
    const struct tb_tensor twice[] = {whole("a", TB_DTYPE_U8, 1, 1), whole("b", TB_DTYPE_F32, 1, 1),
                                      whole("a", TB_DTYPE_F64, 1, 1)};
    CHECK_OK(try_build(twice, 2));
    CHECK_STATUS(try_build(twice, 3), TB_BAD_ARGUMENT);
}

static void boxes_stay_inside(void **state)
{
    (void)state;
    static const struct {
        uint64_t full, first, count;
        enum tb_status status;
    } rows[] = {
        {10, 0, 10, TB_OK},
        {10, 3, 7, TB_OK},
        {10, 3, 8, TB_BAD_ARGUMENT},
        {10, 11, 0, TB_BAD_ARGUMENT},
        {10, 10, 0, TB_OK},
        {0, 0, 0, TB_OK},
        {10, 1, UINT64_MAX, TB_BAD_ARGUMENT},
        {UINT64_MAX, 0, 1, TB_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tb_tensor t = {.name = "a",
                                    .dtype = TB_DTYPE_BF16,
                                    .rank = 1,
                                    .full = {rows[i].full},
                                    .box_first = {rows[i].first},
                                    .box_count = {rows[i].count}};
        CHECK_STATUS(try_build(&t, 1), rows[i].status);
    }
}

static void sizes_do_not_overflow(void **state)
{
    (void)state;
    struct tb_tensor t = whole("a", TB_DTYPE_F64, (uint64_t)1 << 41, 1);
    CHECK_OK(try_build(&t, 1)); /* exactly the maximum */
    t = whole("a", TB_DTYPE_F64, ((uint64_t)1 << 41) + 1, 1);
    CHECK_STATUS(try_build(&t, 1), TB_TOO_LARGE);
    t = whole("a", TB_DTYPE_U8, (uint64_t)1 << 32, (uint64_t)1 << 32); /* 2^64 is 0 */
    CHECK_STATUS(try_build(&t, 1), TB_TOO_LARGE);
    t = whole("a", TB_DTYPE_U8, UINT64_MAX, 0); /* no bytes, but a shape that nobody can multiply out */
    CHECK_STATUS(try_build(&t, 1), TB_TOO_LARGE);
    const struct tb_tensor two[] = {whole("a", TB_DTYPE_U8, (uint64_t)1 << 43, 1),
                                    whole("b", TB_DTYPE_U8, ((uint64_t)1 << 43) + 1, 1)};
    CHECK_STATUS(try_build(two, 2), TB_TOO_LARGE);
    CHECK_STATUS(tb_layout_build(two, TB_TENSORS_MAX + 1, NULL, 0, &(struct tb_layout){0}), TB_TOO_LARGE);
}

static void too_little_memory_is_said(void **state)
{
    (void)state;
    const struct tb_tensor tensors[] = {whole("a", TB_DTYPE_U8, 1, 1), whole("bb", TB_DTYPE_U8, 1, 1)};
    static _Alignas(16) uint8_t memory[4096];
    struct tb_layout layout;
    const size_t need = tb_layout_bytes_for(tensors, 2);
    for (size_t cap = 0; cap < need; cap++)
        CHECK_STATUS(tb_layout_build(tensors, 2, memory, cap, &layout), TB_SITE_NOMEM);
    CHECK_OK(tb_layout_build(tensors, 2, memory, need, &layout));
    for (size_t cap = 0; cap < tb_layout_copy_bytes(&layout); cap++) {
        static _Alignas(16) uint8_t other[4096];
        struct tb_layout copy;
        CHECK_STATUS(tb_layout_copy(&layout, other, cap, &copy), TB_SITE_NOMEM);
    }
}

static void copies_do_not_share_names(void **state)
{
    (void)state;
    char name[] = "embed";
    const struct tb_tensor t = whole(name, TB_DTYPE_BF16, 4, 4);
    static _Alignas(16) uint8_t memory[1024];
    struct tb_layout layout;
    struct tb_layout copy;
    void *first = build(&t, 1, &layout);
    name[0] = 'X';
    assert_string_equal(layout.tensors[0].name, "embed");
    CHECK_OK(tb_layout_copy(&layout, memory, sizeof memory, &copy));
    free(first);
    assert_string_equal(copy.tensors[0].name, "embed");
    assert_true(copy.bytes == 32);
}

static void the_tensor_at_an_offset(void **state)
{
    (void)state;
    const struct tb_tensor tensors[] = {whole("f", TB_DTYPE_F32, 2, 2), whole("none", TB_DTYPE_BF16, 0, 4),
                                        whole("b", TB_DTYPE_BF16, 2, 2), whole("u", TB_DTYPE_I8, 1, 3)};
    /* packed: f, b, "none" of no bytes where u begins, u, what is behind */
    static const enum tb_dtype dtypes[] = {TB_DTYPE_F32, TB_DTYPE_BF16, TB_DTYPE_BF16, TB_DTYPE_I8,
                                           TB_DTYPE_U8};
    struct tb_layout layout;
    void *memory = build(tensors, 4, &layout);
    for (uint64_t at = 0; at < 30; at++) {
        const uint32_t want = at < 16 ? 0 : at < 24 ? 1 : at < 27 ? 3 : 4;
        assert_int_equal(tb_layout_tensor_at(&layout, at), want);
        assert_int_equal(tb_layout_dtype_at(&layout, at), dtypes[want]);
    }
    free(memory);
}

/* A layout of everything that encoding has to carry. */
static size_t encode_sample(uint8_t *bytes, size_t cap)
{
    struct tb_tensor tensors[3] = {whole("model.norm", TB_DTYPE_F32, 1, 5),
                                   whole("model.embed", TB_DTYPE_BF16, 64, 16),
                                   {.name = "scale", .dtype = TB_DTYPE_BF16, .rank = 0}};
    tensors[1].box_first[0] = 32;
    tensors[1].box_count[0] = 32;
    struct tb_layout layout;
    struct tb_writer w;
    void *memory = build(tensors, 3, &layout);
    tb_writer_init(&w, bytes, cap);
    tb_layout_encode(&layout, &w);
    assert_false(w.full);
    assert_int_equal(w.used, tb_layout_encoded_bytes(&layout));
    free(memory);
    return w.used;
}

static void decode_gives_back_what_encode_wrote(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    uint8_t again[1024];
    const size_t count = encode_sample(bytes, sizeof bytes);
    struct tb_layout layout;
    struct tb_writer w;
    CHECK_OK(decode(bytes, count, &layout));
    assert_int_equal(layout.tensor_count, 3);
    const struct tb_tensor *embed = tb_layout_find(&layout, "model.embed");
    assert_true(embed->offset == 20 && embed->bytes == 1024 && embed->box_first[0] == 32);
    assert_true(tb_layout_find(&layout, "scale")->bytes == 2);
    tb_writer_init(&w, again, sizeof again);
    tb_layout_encode(&layout, &w);
    assert_int_equal(w.used, count);
    assert_memory_equal(bytes, again, count);
    const struct tb_digest id = tb_digest_of(bytes, count);
    assert_true(tb_digest_equal(&id, &layout.id));
}

static void every_truncation_and_tail_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    struct tb_layout layout;
    const size_t count = encode_sample(bytes, sizeof bytes);
    for (size_t cut = 0; cut < count; cut++) {
        assert_int_equal(tb_layout_decode_bytes(bytes, cut), 0);
        CHECK_STATUS(decode(bytes, cut, &layout), TB_PEER_GARBLED);
    }
    bytes[count] = 0;
    CHECK_STATUS(decode(bytes, count + 1, &layout), TB_PEER_GARBLED);
}

/* A layout that passes with a flipped byte is a layout again, byte for byte: nothing is repaired in
 * silence. */
static void every_flipped_byte_is_refused_or_meant(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    uint8_t again[1024];
    const size_t count = encode_sample(bytes, sizeof bytes);
    int taken = 0;
    for (size_t i = 0; i < count * 8; i++) {
        struct tb_layout layout;
        bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
        if (decode(bytes, count, &layout) == TB_OK) {
            struct tb_writer w;
            tb_writer_init(&w, again, sizeof again);
            tb_layout_encode(&layout, &w);
            assert_int_equal(w.used, count);
            assert_memory_equal(bytes, again, count);
            taken++;
        }
        bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
    assert_true(taken > 0 && taken < (int)count * 8);
}

static void put_tensor(struct tb_writer *w, enum tb_dtype dtype, const char *name)
{
    tb_write_u8(w, (uint8_t)dtype);
    tb_write_u8(w, 0);
    tb_write_str(w, name);
}

static enum tb_status decode_pair(enum tb_dtype a, const char *a_name, enum tb_dtype b, const char *b_name)
{
    uint8_t bytes[256];
    struct tb_layout layout;
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, 2);
    put_tensor(&w, a, a_name);
    put_tensor(&w, b, b_name);
    return decode(bytes, w.used, &layout);
}

static void order_and_names_are_checked(void **state)
{
    (void)state;
    CHECK_OK(decode_pair(TB_DTYPE_F32, "b", TB_DTYPE_BF16, "a"));
    CHECK_OK(decode_pair(TB_DTYPE_U8, "a", TB_DTYPE_U8, "b"));
    CHECK_STATUS(decode_pair(TB_DTYPE_U8, "b", TB_DTYPE_U8, "a"), TB_PEER_GARBLED);
    CHECK_STATUS(decode_pair(TB_DTYPE_U8, "a", TB_DTYPE_U8, "a"), TB_PEER_GARBLED);
    CHECK_STATUS(decode_pair(TB_DTYPE_BF16, "a", TB_DTYPE_F32, "b"), TB_PEER_GARBLED);
    CHECK_STATUS(decode_pair(TB_DTYPE_F32, "a", TB_DTYPE_BF16, "a"), TB_PEER_GARBLED);
    CHECK_STATUS(decode_pair(TB_DTYPE_U8, "a", TB_DTYPE_U8, "a\n"), TB_PEER_GARBLED);
    CHECK_STATUS(decode_pair(TB_DTYPE_U8, "", TB_DTYPE_U8, "a"), TB_PEER_GARBLED);
}

/* P7: a count of a million in four bytes asks for no memory. */
static void counts_are_bounded_by_what_was_sent(void **state)
{
    (void)state;
    uint8_t bytes[64] = {0};
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, TB_TENSORS_MAX);
    assert_int_equal(tb_layout_decode_bytes(bytes, sizeof bytes), 0);
    struct tb_layout layout;
    static const uint8_t empty[4];
    CHECK_OK(decode(empty, sizeof empty, &layout));
    assert_true(layout.bytes == 0 && layout.tensor_count == 0);

    /* the worst ratio: tensors of five bytes each */
    uint8_t *dense = calloc(1, 4 + 5 * 200);
    tb_writer_init(&w, dense, 4 + 5 * 200);
    tb_write_u32(&w, 200);
    for (int i = 0; i < 200; i++) {
        tb_write_u8(&w, TB_DTYPE_U8);
        tb_write_u8(&w, 0);
        tb_write_str(&w, "a");
    }
    assert_false(w.full);
    assert_true(tb_layout_decode_bytes(dense, w.used) < 64 * w.used);
    free(dense);
}

static void many_tensors_are_sorted_in_time(void **state)
{
    (void)state;
    const uint32_t count = 100000; /* a tenth of the maximum; a quadratic step would take minutes */
    char(*names)[12] = calloc(count, sizeof *names);
    struct tb_tensor *tensors = calloc(count, sizeof *tensors);
    struct tb_layout layout;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%u", (uint32_t)(i * UINT32_C(2654435761)));
        tensors[i] = whole(names[i], i % 2 == 0 ? TB_DTYPE_BF16 : TB_DTYPE_F32, 1, 1);
    }
    void *memory = build(tensors, count, &layout);
    for (uint32_t i = 0; i < count; i += 997)
        assert_non_null(tb_layout_find(&layout, names[i]));
    free(memory);
    free(tensors);
    free(names);
}

/* The parts of split tensors that one reader wants stand together, and survive the wire. */
static void parts_stand_together(void **state)
{
    (void)state;
    struct tb_tensor tensors[5];
    for (uint32_t i = 0; i < 4; i++) {
        tensors[i] = whole(i / 2 == 0 ? "a" : "b", TB_DTYPE_BF16, 8, 6);
        tensors[i].part = (uint16_t)(i % 2 + 1);
        tensors[i].box_first[1] = i % 2 * 3;
        tensors[i].box_count[1] = 3;
    }
    tensors[4] = whole("norm", TB_DTYPE_BF16, 1, 6);
    struct tb_layout layout, back;
    void *memory = build(tensors, 5, &layout);
    static const char *const names[] = {"norm", "a", "b", "a", "b"};
    static const uint16_t parts[] = {0, 1, 1, 2, 2};
    for (uint32_t i = 0; i < 5; i++) {
        assert_string_equal(layout.tensors[i].name, names[i]);
        assert_int_equal(layout.tensors[i].part, parts[i]);
    }
    assert_int_equal(tb_layout_part_max(&layout), 2);
    assert_null(tb_layout_find(&layout, "a"));
    const struct tb_tensor like = {.name = "a", .dtype = TB_DTYPE_BF16, .part = 2};
    assert_ptr_equal(tb_layout_find_like(&layout, &like), &layout.tensors[3]);
    uint8_t wire[1024], decoded[4096] __attribute__((aligned(16)));
    struct tb_writer w;
    tb_writer_init(&w, wire, sizeof wire);
    tb_layout_encode(&layout, &w);
    assert_int_equal(w.used, tb_layout_encoded_bytes(&layout));
    CHECK_OK(tb_layout_decode(wire, w.used, decoded, sizeof decoded, &back));
    assert_true(tb_digest_equal(&back.id, &layout.id));
    assert_int_equal(back.tensors[4].part, 2);
    assert_int_equal(back.tensors[4].box_first[1], 3);
    struct tb_chunk chunks[8];
    assert_int_equal(tb_cut_count(&layout, 0), 3);
    tb_cut(&layout, 0, chunks);
    assert_int_equal(chunks[1].offset, layout.tensors[1].offset);
    assert_int_equal(chunks[2].offset, layout.tensors[3].offset);
    tensors[3].part = 1; /* "b" twice */
    assert_int_equal(try_build(tensors, 5), TB_BAD_ARGUMENT);
    tensors[3].part = TB_PARTS_MAX;
    assert_int_equal(try_build(tensors, 5), TB_OK);
    tensors[3].part = TB_PARTS_MAX + 1;
    assert_int_equal(try_build(tensors, 5), TB_BAD_ARGUMENT);
    /* Of the last tensor, whose number may be any above those before it: readers look for
     * each up to the largest. */
    uint8_t *last = wire + w.used - (2 + 2 + 1 + 48);
    last[0] = TB_PARTS_MAX & 0xff;
    last[1] = TB_PARTS_MAX >> 8;
    CHECK_OK(tb_layout_decode(wire, w.used, decoded, sizeof decoded, &back));
    assert_int_equal(back.tensors[4].part, TB_PARTS_MAX);
    last[0]++;
    assert_int_equal(tb_layout_decode(wire, w.used, decoded, sizeof decoded, &back), TB_PEER_GARBLED);
    last[0]--;
    wire[4 + 1 + 1 + 2 + 4 + 48 + 1 + 1] = 0; /* a part of number 0 is no part */
    assert_int_equal(tb_layout_decode(wire, w.used, decoded, sizeof decoded, &back), TB_PEER_GARBLED);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_sizes),
        cmocka_unit_test(packed_order_is_size_dtype_name),
        cmocka_unit_test(the_order_given_does_not_matter),
        cmocka_unit_test(the_id_sees_every_number),
        cmocka_unit_test(impossible_values_are_refused),
        cmocka_unit_test(boxes_stay_inside),
        cmocka_unit_test(sizes_do_not_overflow),
        cmocka_unit_test(too_little_memory_is_said),
        cmocka_unit_test(copies_do_not_share_names),
        cmocka_unit_test(the_tensor_at_an_offset),
        cmocka_unit_test(decode_gives_back_what_encode_wrote),
        cmocka_unit_test(every_truncation_and_tail_is_refused),
        cmocka_unit_test(every_flipped_byte_is_refused_or_meant),
        cmocka_unit_test(order_and_names_are_checked),
        cmocka_unit_test(counts_are_bounded_by_what_was_sent),
        cmocka_unit_test(parts_stand_together),
        cmocka_unit_test(many_tensors_are_sorted_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

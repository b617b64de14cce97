/* layout_dtypes.c - dtypes that a layout knows by name and bits alone: their place in packed order,
 * their sizes, and names that are refused (P7).
 *
 * Covers: base/layout/layout.c base/layout/tensor.c */
#include "base/layout/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/layout_fixture.h"
#include "tests/unit/check.h"

/* One dimension of so many elements. */
static struct tb_tensor row(const char *name, const char *dtype, uint64_t count)
{
    struct tb_tensor t = {.name = name, .rank = 1, .full = {count}, .box_count = {count}};
    assert_true(tb_tensor_set_dtype(&t, dtype));
    return t;
}

static void a_dtype_is_a_name_and_bits(void **state)
{
    (void)state;
    struct tb_tensor t = {0};
#define CHECK_OTHER(text, size, codec)                                                                       \
    assert_true(tb_tensor_set_dtype(&t, text));                                                              \
    assert_int_equal(t.dtype, TB_DTYPE_OTHER);                                                               \
    assert_int_equal(tb_tensor_bits(&t), size);                                                              \
    assert_string_equal(tb_tensor_dtype_name(&t), text);
    TB_DTYPE_OTHER_LIST(CHECK_OTHER)
#undef CHECK_OTHER
    assert_true(tb_tensor_set_dtype(&t, "BF16:16"));
    assert_int_equal(t.dtype, TB_DTYPE_BF16);
    assert_int_equal(t.other.bits, 0);
    assert_true(tb_tensor_set_dtype(&t, "abcdefghijklmnopqrstuvwxyz.-_:1024"));
    assert_int_equal(tb_tensor_bits(&t), TB_DTYPE_BITS_MAX);
    static const char *const none[] = {"",
                                       "bf16",
                                       "F5",
                                       ":8",
                                       "X:",
                                       "X:0",
                                       "X:1025",
                                       "X:8:8",
                                       "X:-8",
                                       "X: 8",
                                       "X:8 ",
                                       "X Y:8",
                                       "F4:8",
                                       "BF16:8",
                                       "X:4294967304",
                                       "\xc3\xa4:8",
                                       "abcdefghijklmnopqrstuvwxyz.-_1:8"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const struct tb_tensor before = t;
        assert_false(tb_tensor_set_dtype(&t, none[i]));
        assert_memory_equal(&before, &t, sizeof t);
    }
}

/* Units of 8, 4, 2 and 1 bytes, the named dtypes first in each; an odd count ends inside a byte,
 * and the next begins on one. */
static void other_dtypes_have_their_place(void **state)
{
    (void)state;
    struct tb_tensor tensors[] = {
        row("f4", "F4", 5),      row("bf16", "BF16", 3), row("a8", "A:8", 3),       row("c64", "C64", 2),
        row("a48", "A:48", 1),   row("u8", "U8", 7),     row("e8m0", "F8_E8M0", 1), row("f32", "F32", 1),
        row("f6", "F6_E2M3", 3), row("a32", "A:32", 1),  row("c128", "C128:128", 1)};
    enum { COUNT = sizeof tensors / sizeof tensors[0] };
    static const char *const order[] = {"c128", "c64", "f32", "a32", "bf16", "a48",
                                        "u8",   "a8",  "f4",  "f6",  "e8m0"};
    static const uint64_t bytes[] = {16, 16, 4, 4, 6, 6, 7, 3, 3, 3, 1};
    struct tb_layout layout, back;
    void *memory = build(tensors, COUNT, &layout);
    uint64_t at = 0;
    assert_true(layout.other_dtypes);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_string_equal(layout.tensors[i].name, order[i]);
        assert_true(layout.tensors[i].bytes == bytes[i] && layout.tensors[i].offset == at);
        assert_ptr_equal(tb_layout_find(&layout, order[i]), &layout.tensors[i]);
        at += bytes[i];
    }
    assert_null(tb_layout_find(&layout, "f5"));
    assert_int_equal(tb_layout_dtype_at(&layout, 16), TB_DTYPE_F32); /* complex: pairs of floats */
    assert_int_equal(tb_layout_dtype_at(&layout, 0), TB_DTYPE_U64);
    assert_int_equal(tb_layout_dtype_at(&layout, 36), TB_DTYPE_U32);
    assert_int_equal(tb_layout_dtype_at(&layout, at - 1), TB_DTYPE_U8);

    uint8_t wire[1024], decoded[8192] __attribute__((aligned(16)));
    struct tb_writer w;
    tb_writer_init(&w, wire, sizeof wire);
    tb_layout_encode(&layout, &w);
    assert_int_equal(w.used, tb_layout_encoded_bytes(&layout));
    CHECK_OK(tb_layout_decode(wire, w.used, decoded, sizeof decoded, &back));
    assert_true(back.other_dtypes && back.bytes == at && tb_digest_equal(&back.id, &layout.id));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(tb_tensor_dtype_equal(&back.tensors[i], &layout.tensors[i]));
    assert_int_equal(tb_cut_count(&layout, 0), 11); /* no two dtypes share a chunk */
    free(memory);
    tensors[2] = row("a8", "B:8", 3); /* the id sees the name, */
    memory = build(tensors, COUNT, &back);
    assert_false(tb_digest_equal(&back.id, &layout.id));
    const struct tb_tensor of_7_bits = row("a8", "A:7", 3), of_8_bits = row("a8", "A:8", 3);
    assert_false(tb_tensor_dtype_equal(&of_7_bits, &of_8_bits));
    free(memory);
    tensors[2] = row("a8", "A:7", 3); /* and the bits, of as many bytes */
    memory = build(tensors, COUNT, &back);
    assert_true(back.bytes == at && !tb_digest_equal(&back.id, &layout.id));
    free(memory);
}

static void a_layout_of_known_dtypes_says_nothing_new(void **state)
{
    (void)state;
    struct tb_layout layout;
    const struct tb_tensor t = row("w", "BF16", 3);
    void *memory = build(&t, 1, &layout);
    assert_false(layout.other_dtypes);
    assert_int_equal(tb_layout_encoded_bytes(&layout), 4 + 4 + 1 + 24);
    free(memory);
}

/* A fraction of a byte belongs to no box but that of all elements. */
static void boxes_end_on_bytes(void **state)
{
    (void)state;
    struct tb_tensor t = {.name = "w", .rank = 2, .full = {3, 6}, .box_count = {3, 6}};
    assert_true(tb_tensor_set_dtype(&t, "F4"));
    CHECK_OK(try_build(&t, 1));
    t.box_first[0] = 1; /* rows of three bytes */
    t.box_count[0] = 1;
    CHECK_OK(try_build(&t, 1));
    t.box_first[1] = 2;
    t.box_count[1] = 4;
    CHECK_OK(try_build(&t, 1));
    t.box_first[1] = 1;
    assert_false(tb_tensor_box_on_bytes(&t));
    CHECK_STATUS(try_build(&t, 1), TB_BAD_ARGUMENT);
    t.box_first[1] = 2;
    t.box_count[1] = 3;
    CHECK_STATUS(try_build(&t, 1), TB_BAD_ARGUMENT);
    t.full[1] = 7; /* rows of three bytes and a half */
    t.box_first[1] = 0;
    t.box_count[1] = 6;
    CHECK_STATUS(try_build(&t, 1), TB_BAD_ARGUMENT);
    t.box_first[0] = 0;
    t.box_count[0] = 3;
    t.box_count[1] = 7;
    CHECK_OK(try_build(&t, 1));
    assert_true(tb_tensor_set_dtype(&t, "F6_E3M2"));
    t.box_count[0] = 2;
    CHECK_STATUS(try_build(&t, 1), TB_BAD_ARGUMENT);
    t.full[1] = t.box_count[1] = 8;
    CHECK_OK(try_build(&t, 1));
    assert_true(tb_tensor_set_dtype(&t, "BF16"));
    t.full[1] = 7;
    t.box_count[1] = 3;
    CHECK_OK(try_build(&t, 1));
}

static void sizes_in_bits_are_bounded(void **state)
{
    (void)state;
    struct tb_tensor t = row("w", "F4", TB_SHARD_BYTES_MAX * 2);
    CHECK_OK(try_build(&t, 1));
    t = row("w", "F4", TB_SHARD_BYTES_MAX * 2 + 1);
    CHECK_STATUS(try_build(&t, 1), TB_TOO_LARGE);
    t = row("w", "A:1024", TB_SHARD_BYTES_MAX / 128 + 1);
    CHECK_STATUS(try_build(&t, 1), TB_TOO_LARGE);
}

/* P7: each other dtype is looked through when a tensor is looked for by name. */
static void so_many_other_dtypes_a_layout(void **state)
{
    (void)state;
    static struct tb_tensor tensors[TB_DTYPES_OTHER_MAX + 1];
    static char names[TB_DTYPES_OTHER_MAX + 1][16];
    for (uint32_t i = 0; i <= TB_DTYPES_OTHER_MAX; i++) {
        char dtype[16];
        snprintf(dtype, sizeof dtype, "T%u:8", i);
        snprintf(names[i], sizeof names[i], "w%u", i);
        tensors[i] = row(names[i], dtype, 1);
    }
    CHECK_OK(try_build(tensors, TB_DTYPES_OTHER_MAX));
    CHECK_STATUS(try_build(tensors, TB_DTYPES_OTHER_MAX + 1), TB_TOO_LARGE);
    tensors[TB_DTYPES_OTHER_MAX] = row(names[TB_DTYPES_OTHER_MAX], "T0:8", 1);
    CHECK_OK(try_build(tensors, TB_DTYPES_OTHER_MAX + 1));
}

/* A peer may not say more than a caller. */
static enum tb_status decode_other(uint16_t bits, const char *name, uint16_t name_bytes)
{
    uint8_t bytes[256];
    struct tb_layout layout;
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, 1);
    tb_write_u8(&w, TB_DTYPE_OTHER);
    tb_write_u8(&w, 0);
    tb_write_u16(&w, bits);
    tb_write_u16(&w, name_bytes);
    tb_write_bytes(&w, name, name_bytes);
    tb_write_str(&w, "w");
    const enum tb_status status = decode(bytes, w.used, &layout);
    for (size_t cut = 0; status == TB_OK && cut < w.used; cut++)
        CHECK_STATUS(decode(bytes, cut, &layout), TB_PEER_GARBLED);
    return status;
}

static void other_dtypes_are_checked(void **state)
{
    (void)state;
    CHECK_OK(decode_other(1, "A", 1));
    CHECK_OK(decode_other(TB_DTYPE_BITS_MAX, "abcdefghijklmnopqrstuvwxyz123", TB_DTYPE_NAME_MAX));
    CHECK_OK(decode_other(5, "F4", 2)); /* another release may know better */
    CHECK_STATUS(decode_other(0, "A", 1), TB_PEER_GARBLED);
    CHECK_STATUS(decode_other(TB_DTYPE_BITS_MAX + 1, "A", 1), TB_PEER_GARBLED);
    CHECK_STATUS(decode_other(8, "", 0), TB_PEER_GARBLED);
    CHECK_STATUS(decode_other(8, "abcdefghijklmnopqrstuvwxyz1234", TB_DTYPE_NAME_MAX + 1), TB_PEER_GARBLED);
    CHECK_STATUS(decode_other(8, "A\0", 2), TB_PEER_GARBLED);
    CHECK_STATUS(decode_other(8, "A:8", 3), TB_PEER_GARBLED);
    CHECK_STATUS(decode_other(16, "BF16", 4), TB_PEER_GARBLED); /* it has a number */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dtype_is_a_name_and_bits),
        cmocka_unit_test(other_dtypes_have_their_place),
        cmocka_unit_test(a_layout_of_known_dtypes_says_nothing_new),
        cmocka_unit_test(boxes_end_on_bytes),
        cmocka_unit_test(sizes_in_bits_are_bounded),
        cmocka_unit_test(so_many_other_dtypes_a_layout),
        cmocka_unit_test(other_dtypes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

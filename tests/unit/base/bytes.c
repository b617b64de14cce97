/* P7: nothing is read past what is there, whatever lengths a stranger writes.
 * Covers: base/bytes.c
 * Covers: base/utf8.c */
#include "base/bytes.h"

#include <string.h>

#include "base/utf8.h"
#include "tests/unit/check.h"

static void numbers_are_little_endian(void **state)
{
    (void)state;
    uint8_t memory[32];
    struct tb_writer w;
    tb_writer_init(&w, memory, sizeof memory);
    tb_write_u8(&w, 0x01);
    tb_write_u16(&w, 0x0203);
    tb_write_u32(&w, 0x04050607);
    tb_write_u64(&w, UINT64_C(0x08090a0b0c0d0e0f));
    const uint8_t want[] = {1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8};
    assert_false(w.full);
    assert_int_equal(w.used, sizeof want);
    assert_memory_equal(memory, want, sizeof want);

    struct tb_reader r;
    tb_reader_init(&r, memory, w.used);
    assert_int_equal(tb_read_u8(&r), 0x01);
    assert_int_equal(tb_read_u16(&r), 0x0203);
    assert_int_equal(tb_read_u32(&r), 0x04050607);
    assert_true(tb_read_u64(&r) == UINT64_C(0x08090a0b0c0d0e0f));
    assert_true(tb_reader_ended(&r));
}

static void bad_stays_bad(void **state)
{
    (void)state;
    const uint8_t bytes[3] = {1, 2, 3};
    struct tb_reader r;
    uint8_t out[2] = {9, 9};
    tb_reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(tb_read_u32(&r), 0);
    assert_true(r.bad);
    assert_int_equal(tb_read_u8(&r), 0); /* there would be bytes, but nobody may believe them any more */
    assert_null(tb_read_span(&r, 1));
    assert_null(tb_read_span(&r, 0));
    tb_read_bytes(&r, out, 2);
    assert_int_equal(out[0] | out[1], 0);
    assert_false(tb_reader_ended(&r));
}

static void huge_spans_do_not_wrap(void **state)
{
    (void)state;
    const uint8_t bytes[4] = {0};
    struct tb_reader r;
    tb_reader_init(&r, bytes, sizeof bytes);
    assert_null(tb_read_span(&r, SIZE_MAX));
    assert_true(r.bad);
}

static void empty_is_not_bad(void **state)
{
    (void)state;
    struct tb_reader r;
    tb_reader_init(&r, NULL, 0);
    assert_true(tb_reader_ended(&r));
    assert_non_null(tb_read_span(&r, 0));
    tb_reader_init(&r, NULL, 4);
    assert_true(r.bad);
}

static void trailing_bytes_are_seen(void **state)
{
    (void)state;
    struct tb_reader r;
    tb_reader_init(&r, "ab", 2);
    tb_read_u8(&r);
    assert_false(tb_reader_ended(&r));
}

static void strings_need_room_for_their_nul(void **state)
{
    (void)state;
    const uint8_t abc[] = {3, 0, 'a', 'b', 'c'};
    char out[4];
    struct tb_reader r;
    tb_reader_init(&r, abc, sizeof abc);
    tb_read_str(&r, out, 4);
    assert_true(tb_reader_ended(&r));
    assert_string_equal(out, "abc");

    tb_reader_init(&r, abc, sizeof abc);
    tb_read_str(&r, out, 3);
    assert_true(r.bad);
    assert_string_equal(out, "");

    for (size_t cut = 0; cut < sizeof abc; cut++) {
        tb_reader_init(&r, abc, cut);
        tb_read_str(&r, out, sizeof out);
        assert_true(r.bad);
    }
    const uint8_t nul[] = {3, 0, 'a', 0, 'c'};
    tb_reader_init(&r, nul, sizeof nul);
    tb_read_str(&r, out, sizeof out);
    assert_true(r.bad);
}

static void writer_is_full_for_good(void **state)
{
    (void)state;
    uint8_t memory[5];
    struct tb_writer w;
    tb_writer_init(&w, memory, sizeof memory);
    tb_write_u32(&w, 1);
    tb_write_u16(&w, 2);
    assert_true(w.full);
    assert_int_equal(w.used, 4);
    tb_write_u8(&w, 3); /* would fit, but what follows a gap is garbage */
    assert_int_equal(w.used, 4);
    tb_write_u32_at(&w, 100, 7); /* ignored: what was meant may not be there */
}

static void strings_are_written_whole_or_not_at_all(void **state)
{
    (void)state;
    uint8_t memory[6];
    struct tb_writer w;
    tb_writer_init(&w, memory, sizeof memory);
    tb_write_str(&w, "abcd");
    assert_int_equal(w.used, 6);
    tb_writer_init(&w, memory, 5);
    tb_write_str(&w, "abcd");
    assert_true(w.full);
    assert_int_equal(w.used, 0);

    static char big[65537];
    static uint8_t room[70000];
    memset(big, 'x', 65536);
    tb_writer_init(&w, room, sizeof room);
    tb_write_str(&w, big);
    assert_true(w.full);
    big[65535] = '\0';
    tb_writer_init(&w, room, sizeof room);
    tb_write_str(&w, big);
    assert_false(w.full);
    assert_int_equal(w.used, 65537);
}

static void lengths_can_be_filled_in_later(void **state)
{
    (void)state;
    uint8_t memory[8];
    struct tb_writer w;
    tb_writer_init(&w, memory, sizeof memory);
    tb_write_u32(&w, 0);
    tb_write_u32(&w, 9);
    tb_write_u32_at(&w, 0, 0xa1b2c3d4);
    assert_int_equal(memory[0], 0xd4);
    assert_int_equal(memory[3], 0xa1);
    assert_int_equal(memory[4], 9);
}

static void utf8_takes_the_shortest_form_only(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        size_t step;
        uint32_t code;
    } rows[] = {
        {"a", 1, 1, 'a'},
        {"\xc3\xa9", 2, 2, 0xe9},
        {"\xe2\x82\xac", 3, 3, 0x20ac},
        {"\xf0\x9f\x8f\x9d", 4, 4, 0x1f3dd},
        {"\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff},
        {"\xc0\x80", 2, 0, 0},         /* overlong NUL */
        {"\xc1\xbf", 2, 0, 0},         /* overlong */
        {"\xe0\x80\xaf", 3, 0, 0},     /* overlong slash */
        {"\xf0\x80\x80\xaf", 4, 0, 0}, /* overlong slash */
        {"\xed\xa0\x80", 3, 0, 0},     /* surrogate */
        {"\xf4\x90\x80\x80", 4, 0, 0}, /* past the end */
        {"\xf5\x80\x80\x80", 4, 0, 0},
        {"\x80", 1, 0, 0},
        {"\xe2\x82", 2, 0, 0}, /* cut off */
        {"\xe2\x28\xa1", 3, 0, 0},
        {"", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t code = 0;
        assert_int_equal(tb_utf8_decode(rows[i].bytes, rows[i].count, &code), rows[i].step);
        assert_int_equal(code, rows[i].code);
    }
}

static void clean_text_has_no_controls(void **state)
{
    (void)state;
    assert_true(tb_utf8_is_clean("", 0));
    assert_true(tb_utf8_is_clean("lm_head.w\xc3\xa9ight", 14));
    assert_false(tb_utf8_is_clean("a\nb", 3));
    assert_false(tb_utf8_is_clean("a\0b", 3));
    assert_false(tb_utf8_is_clean("\x7f", 1));
    assert_false(tb_utf8_is_clean("\xc2\x9b", 2)); /* CSI in C1 */
    assert_true(tb_utf8_is_clean("\xc2\xa0", 2));
    assert_false(tb_utf8_is_clean("a\xff", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(bad_stays_bad),
        cmocka_unit_test(huge_spans_do_not_wrap),
        cmocka_unit_test(empty_is_not_bad),
        cmocka_unit_test(trailing_bytes_are_seen),
        cmocka_unit_test(strings_need_room_for_their_nul),
        cmocka_unit_test(writer_is_full_for_good),
        cmocka_unit_test(strings_are_written_whole_or_not_at_all),
        cmocka_unit_test(lengths_can_be_filled_in_later),
        cmocka_unit_test(utf8_takes_the_shortest_form_only),
        cmocka_unit_test(clean_text_has_no_controls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Messages: every kind of field there and back; every truncation, limit plus one and tail refused
 * (P7).
 * Covers: base/message.c */
#include "base/message.h"

#include <string.h>

#include "tests/unit/check.h"

/* clang-format off */
#define SAMPLE_FIELDS(F)                                                                                 \
    F(bool, yes) F(u8, a) F(u16, b) F(u32, c) F(u64, d) F(id, uid) F(digest, root) F(fingerprint, print) \
    F(name, site) F(opt_name, rack) F(text, why) F(span, head) F(key, version)
/* clang-format on */
TB_MESSAGE(sample, SAMPLE_FIELDS)

static struct sample sample_make(void)
{
    struct sample m;
    memset(&m, 0, sizeof m);
    m.yes = true;
    m.a = 1;
    m.b = 2;
    m.c = 3;
    m.d = 4;
    memset(m.uid.bytes, 5, sizeof m.uid.bytes);
    memset(m.root.bytes, 6, sizeof m.root.bytes);
    memset(m.print.bytes, 7, sizeof m.print.bytes);
    CHECK_OK(tb_name_set(&m.site, "east"));
    strcpy(m.why.text, "chunk 7 did not match: caf\xc3\xa9");
    m.head = (struct tb_span){(const uint8_t *)"xyz", 3};
    memset(m.version.uid.bytes, 8, sizeof m.version.uid.bytes);
    CHECK_OK(tb_name_set(&m.version.model, "policy"));
    m.version.shard_count = 1;
    return m;
}

static enum tb_status decode(const uint8_t *bytes, size_t count, struct sample *m)
{
    struct tb_reader r;
    tb_reader_init(&r, bytes, count);
    return sample_decode(&r, m);
}

static void every_kind_comes_back(void **state)
{
    (void)state;
    const struct sample m = sample_make();
    struct sample back;
    uint8_t bytes[1024];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    sample_encode(&m, &w);
    assert_false(w.full);
    CHECK_OK(decode(bytes, w.used, &back));
    assert_memory_equal(back.head.bytes, "xyz", 3);
    assert_true(back.head.bytes > bytes && back.head.bytes < bytes + w.used); /* borrowed from the frame */
    back.head.bytes = m.head.bytes;
    assert_memory_equal(&m, &back, sizeof m);
}

static void every_truncation_and_tail_is_refused(void **state)
{
    (void)state;
    const struct sample m = sample_make();
    struct sample back;
    uint8_t bytes[1024];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    sample_encode(&m, &w);
    memset(&back, 0x5a, sizeof back);
    for (size_t cut = 0; cut < w.used; cut++)
        CHECK_STATUS(decode(bytes, cut, &back), TB_PEER_GARBLED);
    assert_int_equal(back.a, 0x5a); /* untouched by failures */
    CHECK_STATUS(decode(bytes, w.used + 1, &back), TB_PEER_GARBLED);
}

#define ONE(kind)                                                                                            \
    struct tb_reader r;                                                                                      \
    tb_field_##kind v;                                                                                       \
    tb_reader_init(&r, bytes, count);                                                                        \
    tb_field_read_##kind(&r, &v);                                                                            \
    return tb_reader_ended(&r)

static bool bool_ok(const void *bytes, size_t count)
{
    ONE(bool);
}

static bool name_ok(const void *bytes, size_t count)
{
    ONE(name);
}

static bool opt_name_ok(const void *bytes, size_t count)
{
    ONE(opt_name);
}

static bool text_ok(const void *bytes, size_t count)
{
    ONE(text);
}

static bool span_ok(const void *bytes, size_t count)
{
    ONE(span);
}

static void limits_plus_one_are_refused(void **state)
{
    (void)state;
    assert_true(bool_ok("\0", 1) && bool_ok("\1", 1));
    assert_false(bool_ok("\2", 1));
    assert_false(bool_ok("\xff", 1));

    assert_false(name_ok("\0\0", 2)); /* a name is not empty, an optional one may be */
    assert_true(opt_name_ok("\0\0", 2));
    assert_true(opt_name_ok("\2\0ab", 4));
    assert_false(opt_name_ok("\2\0a/", 4));
    assert_false(opt_name_ok("\0", 1));
    assert_false(opt_name_ok("\2\0a", 3));

    uint8_t text[2 + TB_TEXT_BYTES_MAX + 1];
    memset(text, 'x', sizeof text);
    text[0] = TB_TEXT_BYTES_MAX;
    text[1] = 0;
    assert_true(text_ok(text, 2 + TB_TEXT_BYTES_MAX));
    text[0] = 0;
    text[1] = 1; /* 256 */
    assert_false(text_ok(text, 2 + TB_TEXT_BYTES_MAX + 1));
    assert_true(text_ok("\0\0", 2));
    assert_false(text_ok("\3\0a\0b", 5));
    assert_false(text_ok("\1\0\xff", 3));

    assert_true(span_ok("\0\0\0\0", 4));
    assert_true(span_ok("\1\0\0\0z", 5));
    assert_false(span_ok("\xff\xff\xff\xffz", 5));
}

/* An error text cut in the middle of a character must not make the other end drop us. */
static void text_goes_out_clean(void **state)
{
    (void)state;
    struct tb_text text;
    struct tb_text back;
    uint8_t bytes[300];
    struct tb_writer w;
    struct tb_reader r;
    memset(&text, 0, sizeof text);
    strcpy(text.text, "cut caf\xc3");
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_field_write_text(&w, &text);
    tb_reader_init(&r, bytes, w.used);
    tb_field_read_text(&r, &back);
    assert_true(tb_reader_ended(&r));
    assert_string_equal(back.text, "cut caf?");
}

static void a_full_frame_says_so(void **state)
{
    (void)state;
    const struct sample m = sample_make();
    uint8_t bytes[64];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    sample_encode(&m, &w);
    assert_true(w.full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back),       cmocka_unit_test(every_truncation_and_tail_is_refused),
        cmocka_unit_test(limits_plus_one_are_refused), cmocka_unit_test(text_goes_out_clean),
        cmocka_unit_test(a_full_frame_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

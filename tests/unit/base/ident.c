/* P8: an identity is exactly one spelling, and names can never be paths.
 * Covers: base/ident.c */
#include "base/ident.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/check.h"

static void ids_go_to_hex_and_back(void **state)
{
    (void)state;
    struct tb_id id;
    struct tb_id back;
    char hex[TB_HEX_CHARS];
    for (uint8_t i = 0; i < 16; i++)
        id.bytes[i] = (uint8_t)(i * 17);
    tb_id_format(&id, hex);
    assert_string_equal(hex, "00112233445566778899aabbccddeeff");
    assert_true(tb_id_parse(hex, &back));
    assert_true(tb_id_equal(&id, &back));
    assert_true(tb_id_parse("00112233445566778899AABBCCDDEEFF", &back));
    assert_true(tb_id_equal(&id, &back));
    assert_false(tb_id_is_zero(&id));
    memset(&id, 0, sizeof id);
    assert_true(tb_id_is_zero(&id));
}

static void ids_of_another_length_are_refused(void **state)
{
    (void)state;
    struct tb_id id;
    char text[40] = "";
    for (size_t chars = 0; chars < 39; chars++) {
        assert_int_equal(tb_id_parse(text, &id), chars == 32);
        text[chars] = 'a';
        text[chars + 1] = '\0';
    }
    assert_false(tb_id_parse("0011223344556677 899aabbccddeeff", &id));
    assert_false(tb_id_parse("0x112233445566778899aabbccddeeff", &id));
}

static void names_are_never_paths(void **state)
{
    (void)state;
    char longest[TB_NAME_BYTES_MAX + 2];
    memset(longest, 'n', sizeof longest);
    longest[TB_NAME_BYTES_MAX] = '\0';
    assert_true(tb_name_valid(longest));
    longest[TB_NAME_BYTES_MAX] = 'n';
    longest[TB_NAME_BYTES_MAX + 1] = '\0';
    assert_false(tb_name_valid(longest));
    static const char *const good[] = {"a", "policy", "Qwen3-8B_v2.1", "...", ".a", "-", "..a"};
    static const char *const bad[] = {"", ".", "..", "a/b", "a b", "a\n", "\xc3\xa9", "a\\b", "a:b", "*"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(tb_name_valid(good[i]));
    struct tb_name name;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(tb_name_valid(bad[i]));
        CHECK_STATUS(tb_name_set(&name, bad[i]), TB_BAD_ARGUMENT);
    }
}

static void names_on_the_wire(void **state)
{
    (void)state;
    uint8_t bytes[80];
    struct tb_name name;
    struct tb_name back;
    struct tb_writer w;
    struct tb_reader r;
    CHECK_OK(tb_name_set(&name, "policy"));
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_name(&w, &name);
    tb_reader_init(&r, bytes, w.used);
    tb_read_name(&r, &back);
    assert_true(tb_reader_ended(&r));
    assert_true(tb_name_equal(&name, &back));
    for (size_t cut = 0; cut < w.used; cut++) {
        tb_reader_init(&r, bytes, cut);
        tb_read_name(&r, &back);
        assert_true(r.bad);
        assert_string_equal(back.text, "");
    }
    for (uint16_t count = 0; count < 78; count++) { /* every length, the limit plus one included */
        memset(bytes, 'x', sizeof bytes);
        tb_writer_init(&w, bytes, 2);
        tb_write_u16(&w, count);
        tb_reader_init(&r, bytes, 2u + count);
        tb_read_name(&r, &back);
        assert_int_equal(r.bad, count == 0 || count > TB_NAME_BYTES_MAX);
    }
}

static void identities_have_one_spelling(void **state)
{
    (void)state;
    static const char *const good[] = {
        "tombolo://east/gw-0", "tombolo://east/worker/rollout.7", "unix:0", "unix:4294967295",
        "tombolo://worker/gw", "tombolo://east/publisher/trainer"};
    struct tb_identity identity;
    char text[TB_URI_BYTES_MAX];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_OK(tb_identity_parse(good[i], &identity));
        tb_identity_format(&identity, text);
        assert_string_equal(text, good[i]);
    }
}

static void other_spellings_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "tombolo://",
        "tombolo://east",
        "tombolo://east/",
        "tombolo:///gw",
        "tombolo://east/worker", /* no gateway may be called so */
        "tombolo://east/publisher",
        "tombolo://east/publishers/a",
        "tombolo://east/worker/",
        "tombolo://east/worker/a/b",
        "tombolo://east/Worker/a",
        "tombolo://east/gw/a",
        "tombolo://east/gw?x=1",
        "tombolo://east/gw#x",
        "tombolo://east/gw ",
        "Tombolo://east/gw",
        "tombolo:/east/gw",
        "https://east/gw",
        "tombolo://../gw",
        "unix:",
        "unix:-1",
        "unix:+1",
        "unix:01",
        "unix:4294967296",
        "unix:99999999999999999999999999",
        "unix:1 ",
        "unix:0x1",
    };
    struct tb_identity identity = {.kind = TB_IDENTITY_NONE, .uid = 42};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (tb_identity_parse(bad[i], &identity) != TB_BAD_ARGUMENT) fail_msg("taken: '%s'", bad[i]);
        assert_int_equal(identity.uid, 42); /* untouched */
    }
}

static void the_longest_identity_fits(void **state)
{
    (void)state;
    struct tb_identity identity;
    char text[TB_URI_BYTES_MAX + 10];
    char back[TB_URI_BYTES_MAX];
    char n[TB_NAME_BYTES_MAX + 1];
    memset(n, 'n', TB_NAME_BYTES_MAX);
    n[TB_NAME_BYTES_MAX] = '\0';
    snprintf(text, sizeof text, "tombolo://%s/publisher/%s", n, n);
    CHECK_OK(tb_identity_parse(text, &identity));
    tb_identity_format(&identity, back);
    assert_string_equal(back, text);
    snprintf(text, sizeof text, "tombolo://%s/publisher/%sn", n, n);
    CHECK_STATUS(tb_identity_parse(text, &identity), TB_BAD_ARGUMENT);
}

static void equality_looks_at_all_that_counts(void **state)
{
    (void)state;
    static const char *const all[] = {"tombolo://a/x",          "tombolo://a/y", "tombolo://b/x",
                                      "tombolo://a/worker/x",   "unix:1",        "unix:2",
                                      "tombolo://a/publisher/x"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) {
            struct tb_identity a;
            struct tb_identity b;
            CHECK_OK(tb_identity_parse(all[i], &a));
            CHECK_OK(tb_identity_parse(all[j], &b));
            assert_int_equal(tb_identity_equal(&a, &b), i == j);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_go_to_hex_and_back),       cmocka_unit_test(ids_of_another_length_are_refused),
        cmocka_unit_test(names_are_never_paths),        cmocka_unit_test(names_on_the_wire),
        cmocka_unit_test(identities_have_one_spelling), cmocka_unit_test(other_spellings_are_refused),
        cmocka_unit_test(the_longest_identity_fits),    cmocka_unit_test(equality_looks_at_all_that_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

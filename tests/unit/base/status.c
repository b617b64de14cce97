/* Every status has a name, a text and the scope that its number says.
 * Covers: base/status.c */
#include "tombolo/status.h"

#include <ctype.h>
#include <string.h>

#include "tests/unit/check.h"

static void lowered(const char *macro, char *out)
{
    size_t i = 0;
    for (const char *c = macro + 3; *c != '\0'; c++) /* behind TB_ */
        out[i++] = (char)tolower((unsigned char)*c);
    out[i] = '\0';
}

static void names_are_the_macros_in_lower_case(void **state)
{
    (void)state;
    char want[64];
#define CHECK_NAME(name, number, text)                                                                       \
    lowered(#name, want);                                                                                    \
    assert_string_equal(tb_status_name(name), want);
    TB_STATUS_LIST(CHECK_NAME)
#undef CHECK_NAME
    assert_string_equal(tb_status_name(-9999), "unknown");
    assert_string_equal(tb_status_name(77), "unknown");
}

static void texts_are_those_of_the_list(void **state)
{
    (void)state;
#define CHECK_TEXT(name, number, text) assert_string_equal(tb_status_text(number), text);
    TB_STATUS_LIST(CHECK_TEXT)
#undef CHECK_TEXT
    assert_true(strlen(tb_status_text(-9999)) > 0);
}

static void scope_is_the_hundreds_digit(void **state)
{
    (void)state;
    assert_int_equal(tb_status_scope(TB_OK), TB_SCOPE_NONE);
    assert_int_equal(tb_status_scope(TB_END), TB_SCOPE_NONE);
    assert_int_equal(tb_status_scope(TB_CHUNK_DIGEST), TB_SCOPE_CHUNK);
    assert_int_equal(tb_status_scope(TB_STREAM_IO), TB_SCOPE_STREAM);
    assert_int_equal(tb_status_scope(TB_GATEWAY_AWAY), TB_SCOPE_PEER);
    assert_int_equal(tb_status_scope(TB_SITE_NOMEM), TB_SCOPE_SITE);
    assert_int_equal(tb_status_scope(TB_FENCED), TB_SCOPE_REQUEST);
    assert_int_equal(tb_status_scope(TB_VERSION_LOST), TB_SCOPE_VERSION);
}

/* A number of a later release still says how far the damage reaches; nonsense stops the site. */
static void unknown_numbers_have_a_scope(void **state)
{
    (void)state;
    assert_int_equal(tb_status_scope(-199), TB_SCOPE_CHUNK);
    assert_int_equal(tb_status_scope(-699), TB_SCOPE_VERSION);
    assert_int_equal(tb_status_scope(-700), TB_SCOPE_SITE);
    assert_int_equal(tb_status_scope(-99), TB_SCOPE_SITE);
    assert_int_equal(tb_status_scope(-1000000), TB_SCOPE_SITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_the_macros_in_lower_case),
        cmocka_unit_test(texts_are_those_of_the_list),
        cmocka_unit_test(scope_is_the_hundreds_digit),
        cmocka_unit_test(unknown_numbers_have_a_scope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

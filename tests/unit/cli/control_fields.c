/* control_fields.c - fields of a gateway's answer on a terminal. The answer is a stranger's: a
 * field that is missing or of another type is "-", 0 or "no estimate", and none forges a line
 * (P10).
 * Covers: gateway/cli/operator/control_fields.c */
#include "gateway/cli/operator/control_fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static json_t *answer(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    return object;
}

static void fields_are_shown_as_they_are(void **state)
{
    (void)state;
    json_t *object = answer("{\"name\":\"policy\",\"bytes\":1500000,\"rate\":2.5}");
    assert_string_equal(tb_text_of(object, "name").text, "policy");
    assert_int_equal(tb_count_of(object, "bytes"), 1500000);
    assert_true(tb_number_of(object, "rate") == 2.5);
    assert_true(tb_number_of(object, "bytes") == 1500000);
    assert_string_equal(tb_bytes_of(object, "bytes").text, "1.50 MB");
    json_decref(object);
}

static void other_types_are_shown_as_nothing(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "{}", "{\"name\":null,\"bytes\":null}", "{\"name\":7,\"bytes\":\"many\",\"rate\":\"fast\"}",
        "{\"name\":\"\",\"bytes\":-1,\"rate\":{}}", "{\"name\":[\"a\"],\"bytes\":[],\"rate\":[]}"};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        json_t *object = answer(answers[i]);
        assert_string_equal(tb_text_of(object, "name").text, "-");
        assert_int_equal(tb_count_of(object, "bytes"), 0);
        assert_true(tb_number_of(object, "rate") == 0);
        assert_string_equal(tb_bytes_of(object, "bytes").text, "0 B");
        json_decref(object);
    }
    assert_string_equal(tb_text_of(NULL, "name").text, "-");
    assert_int_equal(tb_count_of(NULL, "bytes"), 0);
}

static void a_text_forges_no_line_and_fits(void **state)
{
    (void)state;
    char text[600];
    json_t *object = answer("{\"name\":\"a\\nb\\u001b[31m\"}");
    assert_string_equal(tb_text_of(object, "name").text, "a?b?[31m");
    json_decref(object);
    (void)snprintf(text, sizeof text, "{\"name\":\"%0500d\"}", 7);
    object = answer(text);
    assert_int_equal(strlen(tb_text_of(object, "name").text), sizeof(struct tb_field) - 1);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_shown_as_they_are),
        cmocka_unit_test(other_types_are_shown_as_nothing),
        cmocka_unit_test(a_text_forges_no_line_and_fits),
    };
    return cmocka_run_group_tests_name("unit.cli.control_fields", tests, NULL, NULL);
}

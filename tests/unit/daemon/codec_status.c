/* codec_status.c - what status says of codecs: each kind of element that crossed, as every kind has
 * a choice of its own.
 *
 * Covers: gateway/daemon/control/codec_status.c */
#include "gateway/daemon/control/codec_status.h"
#include "gateway/daemon/daemon.h"
#include "tests/unit/check.h"

#include <string.h>

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void each_kind_that_crossed_is_said(void **state)
{
    (void)state;
    static struct tb_choice c;
    const struct tb_choice_ask bf16 = {TB_KIND_BF16, true}, f32 = {TB_KIND_F32, true},
                               bytes = {TB_KIND_BYTES, false};
    tb_choice_init(&c, TB_CHOICE_SPARSE, 2);
    json_t *none = tb_status_choice(&c);
    assert_true(json_is_null(json_object_get(none, "delta")));
    assert_int_equal(json_array_size(json_object_get(none, "delta_kinds")), 0);
    json_decref(none);
    (void)tb_choice_pick(&c, &f32);
    (void)tb_choice_pick(&c, &bf16);
    (void)tb_choice_pick(&c, &bf16);
    (void)tb_choice_pick(&c, &bytes);
    json_t *o = tb_status_choice(&c);
    const json_t *deltas = json_object_get(o, "delta_kinds"), *full = json_object_get(o, "full_kinds");
    assert_string_equal(text(json_object_get(o, "delta"), "kind"), "bf16"); /* most */
    assert_int_equal(json_array_size(deltas), 2);
    assert_string_equal(text(json_array_get(deltas, 0), "kind"), "bf16");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(deltas, 0), "chunks")), 2);
    assert_string_equal(text(json_array_get(deltas, 1), "kind"), "f32");
    assert_string_equal(text(json_array_get(deltas, 1), "way"), "classes");
    assert_int_equal(json_array_size(full), 1);
    assert_string_equal(text(json_array_get(full, 0), "kind"), "bytes");
    assert_string_equal(text(json_array_get(full, 0), "way"), "raw");
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_that_crossed_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

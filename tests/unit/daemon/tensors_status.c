/* tensors_status.c - P10: a reader that compares its tensors with a version's gets the whole shape
 * of each name, however the version's ranks cut it.
 *
 * Covers: gateway/daemon/control/tensors_status.c */
#include "gateway/daemon/control/tensors_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout/layout.h"
#include "tests/unit/check.h"

static struct tb_tensor tensor(const char *name, const char *dtype, uint64_t rows, uint64_t columns)
{
    struct tb_tensor t = {.name = name, .rank = 2, .full = {rows, columns}, .box_count = {1, columns}};
    assert_true(tb_tensor_set_dtype(&t, dtype));
    return t;
}

static void says(const struct tb_layout *const *shards, uint32_t count, const char *expected)
{
    json_t *o = tb_status_tensors(shards, count);
    char *text = o == NULL ? NULL : json_dumps(o, JSON_COMPACT);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
    json_decref(o);
}

static void each_name_has_its_whole_shape(void **state)
{
    (void)state;
    const struct tb_tensor first[] = {tensor("a", "BF16", 4, 3), tensor("b", "F4", 2, 8),
                                      tensor("b", "F4", 2, 8)};
    const struct tb_tensor second[] = {tensor("a", "BF16", 4, 3), tensor("new", "MINE:12", 5, 2)};
    const struct tb_layout one = {.tensor_count = 3, .tensors = first};
    const struct tb_layout two = {.tensor_count = 2, .tensors = second}, none = {0};
    const struct tb_layout *const shards[] = {&one, &two, &none};
    says(shards, 1, "{\"schema\":1,\"tensors\":[[\"a\",\"BF16\",[4,3]],[\"b\",\"F4\",[2,8]]]}");
    says(shards, 3,
         "{\"schema\":1,\"tensors\":[[\"a\",\"BF16\",[4,3]],[\"b\",\"F4\",[2,8]],[\"new\",\"MINE\",[5,2]]]}");
    says(&shards[2], 1, "{\"schema\":1,\"tensors\":[]}");
}

static void a_scalar_has_no_axes(void **state)
{
    (void)state;
    struct tb_tensor t = {.name = "step"};
    assert_true(tb_tensor_set_dtype(&t, "I64"));
    const struct tb_layout layout = {.tensor_count = 1, .tensors = &t};
    const struct tb_layout *const shards[] = {&layout};
    says(shards, 1, "{\"schema\":1,\"tensors\":[[\"step\",\"I64\",[]]]}");
}

/* P6: the main loop writes so many and no more. */
static void too_many_are_not_said(void **state)
{
    (void)state;
    static struct tb_tensor many[TB_STATUS_TENSORS_MAX + 1];
    static char names[TB_STATUS_TENSORS_MAX + 1][8];
    for (uint32_t i = 0; i <= TB_STATUS_TENSORS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "%u", i);
        many[i] = tensor(names[i], "U8", 1, 1);
    }
    struct tb_layout layout = {.tensor_count = TB_STATUS_TENSORS_MAX + 1, .tensors = many};
    const struct tb_layout *const shards[] = {&layout};
    says(shards, 1, "{\"schema\":1,\"tensors\":null}");
    layout.tensor_count--;
    json_t *o = tb_status_tensors(shards, 1);
    assert_int_equal(json_array_size(json_object_get(o, "tensors")), TB_STATUS_TENSORS_MAX);
    json_decref(o);
}

/* P6: ranks that share each tensor have the same names, and those are looked at up to a bound. */
static void shared_tensors_are_looked_at_up_to_a_bound(void **state)
{
    (void)state;
    enum { EACH = 1 << 13, SHARDS = TB_STATUS_TENSORS_LOOKED / EACH };
    static struct tb_tensor many[EACH];
    static char names[EACH][8];
    const struct tb_layout *shards[SHARDS + 1];
    for (uint32_t i = 0; i < EACH; i++) {
        snprintf(names[i], sizeof names[i], "%u", i);
        many[i] = tensor(names[i], "U8", 1, 1);
    }
    const struct tb_layout layout = {.tensor_count = EACH, .tensors = many};
    for (uint32_t s = 0; s <= SHARDS; s++)
        shards[s] = &layout;
    json_t *o = tb_status_tensors(shards, SHARDS);
    assert_int_equal(json_array_size(json_object_get(o, "tensors")), EACH);
    json_decref(o);
    says(shards, SHARDS + 1, "{\"schema\":1,\"tensors\":null}");
}

static void the_last_answers_are_kept(void **state)
{
    (void)state;
    struct tb_tensors_kept kept = {.next = 0};
    const struct tb_digest root = {{1}}, another = {{2}};
    struct tb_id uid = {{0}};
    for (uint8_t i = 0; i <= TB_TENSORS_KEPT; i++) {
        char text[] = "0";
        uid.bytes[0] = i;
        text[0] = (char)('0' + i);
        assert_null(tb_tensors_kept(&kept, &uid, &root));
        tb_tensors_keep(&kept, &uid, &root, strdup(text));
        assert_string_equal(tb_tensors_kept(&kept, &uid, &root), text);
        assert_null(tb_tensors_kept(&kept, &uid, &another));
    }
    uid.bytes[0] = 0;
    assert_null(tb_tensors_kept(&kept, &uid, &root)); /* it gave way */
    char *large = malloc(TB_TENSORS_KEPT_BYTES + 2);
    assert_non_null(large);
    memset(large, 'a', TB_TENSORS_KEPT_BYTES + 1);
    large[TB_TENSORS_KEPT_BYTES + 1] = '\0';
    tb_tensors_keep(&kept, &uid, &root, large);
    assert_null(tb_tensors_kept(&kept, &uid, &root));
    tb_tensors_kept_free(&kept);
    uid.bytes[0] = 1;
    assert_null(tb_tensors_kept(&kept, &uid, &root));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_has_its_whole_shape), cmocka_unit_test(a_scalar_has_no_axes),
        cmocka_unit_test(too_many_are_not_said), cmocka_unit_test(shared_tensors_are_looked_at_up_to_a_bound),
        cmocka_unit_test(the_last_answers_are_kept)};
    return cmocka_run_group_tests_name("daemon.tensors_status", tests, NULL, NULL);
}

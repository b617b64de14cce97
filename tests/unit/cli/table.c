/* table.c - a table has one unit for each quantity, tells "none" from "not known", fits its width,
 * and no text of a stranger drives a terminal (P10).
 *
 * Covers: gateway/cli/operator/table.c */
#include "gateway/cli/operator/table.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"

static const struct tb_column columns[] = {
    {"name", "name", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"note", "note", TB_COLUMN_TEXT, TB_SHOW},
    {"bytes", "size MB", TB_COLUMN_MB, TB_SHOW_ALWAYS},
    {"bytes_per_s", "rate Mbit/s", TB_COLUMN_MBIT_OF_BYTES, TB_SHOW},
    {"eta_s", "eta s", TB_COLUMN_S_RANGE, TB_SHOW_FILLED},
    {"rtt_ms", "rtt ms", TB_COLUMN_MS, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

static json_t *rows_of(const char *text)
{
    json_t *rows = json_loads(text, 0, NULL);
    assert_non_null(rows);
    return rows;
}

static void expect_table(const char *json, struct tb_table_style style, const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *rows = rows_of(json);
    FILE *to = open_memstream(&text, &bytes);
    tb_columns_print(to, columns, rows, &style);
    assert_int_equal(fclose(to), 0);
    assert_string_equal(text, expected);
    free(text);
    json_decref(rows);
}

static const struct tb_table_style fits = {TB_TABLE_FIT, true, 0};

static void each_quantity_has_one_unit(void **state)
{
    (void)state;
    expect_table("[{\"name\":\"a\",\"note\":\"x\",\"bytes\":1500000,\"bytes_per_s\":125000},"
                 " {\"name\":\"bb\",\"note\":\"y\",\"bytes\":1234567890,\"bytes_per_s\":0}]",
                 fits,
                 "name  note  size MB  rate Mbit/s\n"
                 "a     x        1.50         1.00\n"
                 "bb    y        1235            0\n");
}

static void none_and_not_known_are_two_things(void **state)
{
    (void)state;
    expect_table("[{\"name\":\"a\",\"bytes\":null,\"note\":\"\"},{\"name\":\"b\",\"bytes\":0,\"note\":null}]",
                 fits,
                 "name  note  size MB  rate Mbit/s\n"
                 "a     -           ?            -\n"
                 "b     ?           0            -\n");
}

static void a_column_without_a_value_is_left_out(void **state)
{
    (void)state;
    expect_table("[{\"name\":\"a\",\"bytes\":1,\"eta_s\":[1,61.04]},{\"name\":\"b\",\"eta_s\":[2,2]}]",
                 (struct tb_table_style){TB_TABLE_FIT, false, 0},
                 "a     -      <0.001            -  1.00-61.0\n"
                 "b     -           -            -       2.00\n");
}

static void values_for_programs_keep_their_unit(void **state)
{
    (void)state;
    expect_table("[{\"name\":\"a\\tb\",\"bytes\":1500000,\"rtt_ms\":12.5,\"eta_s\":[1,2]}]",
                 (struct tb_table_style){TB_TABLE_TSV, true, 20},
                 "name\tnote\tbytes\tbytes_per_s\teta_s\trtt_ms\n"
                 "a?b\t-\t1500000\t-\t1.000-2.000\t12.500\n");
}

static void no_text_drives_a_terminal(void **state)
{
    (void)state;
    expect_table("[{\"name\":\"a\\u001b[2J\\nb\\u009b1m\",\"note\":\"\\u00fc\",\"bytes\":{\"x\":1},"
                 "\"notes\":[\"one\\ntwo\"]},3]",
                 fits,
                 "name        note  size MB  rate Mbit/s\n"
                 "a?[2J?b?1m  \xc3\xbc           ?            -\n"
                 "  one?two\n");
}

#define LONG "\"0123456789012345678901234567890123456789\""

static void a_table_fits_its_width(void **state)
{
    (void)state;
    const char *one = "[{\"name\":\"a\",\"note\":" LONG ",\"bytes\":1000000,\"bytes_per_s\":125000}]";
    expect_table(one, (struct tb_table_style){TB_TABLE_FIT, true, 50},
                 "name  note                    size MB  rate Mbit/s\n"
                 "a     012345678901234567890~     1.00         1.00\n");
    expect_table(one, (struct tb_table_style){TB_TABLE_FIT, true, 30},
                 "name  note          size MB\n"
                 "a     01234567890~     1.00\n");
    expect_table(one, (struct tb_table_style){TB_TABLE_FIT, true, 20},
                 "name  size MB\n"
                 "a        1.00\n");
    expect_table(one, (struct tb_table_style){TB_TABLE_FIT, true, 1}, /* what is always shown is */
                 "name  size MB\n"
                 "a        1.00\n");
    expect_table("[{\"name\":" LONG ",\"bytes\":1000000}]", (struct tb_table_style){TB_TABLE_FIT, true, 30},
                 "name                   size MB\n"
                 "01234567890123456789~     1.00\n");
    expect_table(one, (struct tb_table_style){TB_TABLE_WIDE, false, 20},
                 "a     0123456789012345678901234567890123456789     1.00         1.00      -       -\n");
}

static void notes_are_broken_at_the_width(void **state)
{
    (void)state;
    expect_table("[{\"name\":\"a\",\"bytes\":1,\"notes\":[\"one two three four five\"]}]",
                 (struct tb_table_style){TB_TABLE_FIT, false, 14},
                 "a      <0.001\n"
                 "  one two\n"
                 "  three four\n"
                 "  five\n");
}

static void expect_order(const char *json, const char *by, const char *names)
{
    char found[64] = "";
    json_t *rows = rows_of(json);
    assert_true(tb_columns_sort(rows, columns, by));
    for (size_t i = 0; i < json_array_size(rows); i++)
        (void)strcat(found, json_string_value(json_object_get(json_array_get(rows, i), "name")));
    assert_string_equal(found, names);
    json_decref(rows);
}

static void rows_are_ordered_by_a_column(void **state)
{
    (void)state;
    const char *rows =
        "[{\"name\":\"a\",\"bytes\":20,\"note\":\"1:12\"},{\"name\":\"b\",\"bytes\":null},"
        "{\"name\":\"c\",\"bytes\":3,\"note\":\"1:9\"},{\"name\":\"d\",\"bytes\":20,\"note\":\"1:90\"}]";
    expect_order(rows, "bytes", "cadb");
    expect_order(rows, "-bytes", "adcb");
    expect_order(rows, "SIZE", "cadb");
    expect_order(rows, "note", "cadb");
    expect_order(rows, "-note", "dacb");
    expect_order(rows, "eta_s", "abcd");
    expect_order("[{\"name\":\"a\",\"bytes\":\"x\"},{\"name\":\"b\",\"bytes\":5}]", "bytes", "ba");
    json_t *none = json_array();
    assert_true(tb_columns_sort(none, columns, "name"));
    assert_false(tb_columns_sort(none, columns, "nothing"));
    assert_false(tb_columns_sort(none, columns, ""));
    assert_false(tb_columns_sort(none, columns, "-"));
    json_decref(none);
}

static void one_row_is_a_list_of_fields(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    json_t *row = rows_of("{\"name\":\"a\",\"bytes\":null,\"rtt_ms\":0.25,\"note\":\"\"}");
    FILE *to = open_memstream(&text, &bytes);
    tb_columns_describe(to, columns, row);
    assert_int_equal(fclose(to), 0);
    assert_string_equal(text, "  name               a\n"
                              "  size MB            ?\n"
                              "  rtt ms             0.250\n");
    free(text);
    json_decref(row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_quantity_has_one_unit),
        cmocka_unit_test(none_and_not_known_are_two_things),
        cmocka_unit_test(a_column_without_a_value_is_left_out),
        cmocka_unit_test(values_for_programs_keep_their_unit),
        cmocka_unit_test(no_text_drives_a_terminal),
        cmocka_unit_test(a_table_fits_its_width),
        cmocka_unit_test(notes_are_broken_at_the_width),
        cmocka_unit_test(rows_are_ordered_by_a_column),
        cmocka_unit_test(one_row_is_a_list_of_fields),
    };
    return cmocka_run_group_tests_name("unit.cli.table", tests, NULL, NULL);
}

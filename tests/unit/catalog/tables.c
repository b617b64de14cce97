/* tables.c - tests of gateway/catalog/rows/tables.c: rows are reused, and what they have to
 * say keeps its order.
 *
 * Covers: gateway/catalog/rows/tables.c gateway/catalog/catalog_memory.c */
#include "gateway/catalog/rows/table_check.h"

#include <string.h>

#include "check.h"

struct number {
    struct row row;
    uint64_t value;
};

static struct table small(struct number *rows, uint32_t cap)
{
    return (struct table){.rows = (uint8_t *)rows,
                          .row_bytes = sizeof *rows,
                          .cap = cap,
                          .free_first = NONE,
                          .dirty_first = NONE,
                          .dirty_last = NONE,
                          .name = "numbers"};
}

static void rows_are_reused_and_marks_keep_their_order(void **state)
{
    (void)state;
    struct number rows[3];
    memset(rows, 0xa5, sizeof rows);
    struct table t = small(rows, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(tb_table_new(&t), i);
    assert_int_equal(tb_table_new(&t), NONE);
    tb_table_mark(&t, 2, TB_CATALOG_GO);
    tb_table_mark(&t, 0, TB_CATALOG_GO);
    tb_table_mark(&t, 1, TB_CATALOG_PLAN);
    tb_table_mark(&t, 2, TB_CATALOG_GO);
    tb_table_check(&t);
    assert_int_equal(tb_table_todo(&t, TB_CATALOG_GO), 2);
    assert_int_equal(tb_table_todo(&t, TB_CATALOG_PLAN), 1);
    assert_int_equal(tb_table_todo(&t, TB_CATALOG_TELL), NONE);
    tb_table_unmark(&t, 2, TB_CATALOG_GO);
    assert_int_equal(tb_table_todo(&t, TB_CATALOG_GO), 0);
    tb_table_free(&t, 0); /* with its mark */
    tb_table_check(&t);
    assert_int_equal(tb_table_todo(&t, TB_CATALOG_GO), NONE);
    assert_int_equal(tb_table_todo(&t, TB_CATALOG_PLAN), 1);
    assert_int_equal(tb_table_next(&t, 0), 1);
    assert_int_equal(tb_table_new(&t), 0);
    assert_int_equal(rows[0].value, 0);
    rows[0].row.dead = true; /* live only until it is told: skipped */
    assert_int_equal(tb_table_next(&t, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_reused_and_marks_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

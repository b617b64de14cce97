/* statement_table.c - statements are found by kind and id, and of a model the newest stay (P7).
 *
 * Covers: gateway/daemon/links/statement_table.c */
#include "gateway/daemon/links/statement_table.h"

#include <stdio.h>
#include <string.h>

#include "gateway/store/store.h"
#include "tests/unit/check.h"

static struct tb_statement statement(enum tb_statement_kind kind, uint32_t number)
{
    struct tb_statement s = {.kind = kind, .run_order = 1 + number / 100, .number = number % 100};
    struct tb_id *id = kind == TB_STATEMENT_RUN ? &s.run : &s.uid;
    memcpy(id->bytes, &number, sizeof number);
    id->bytes[15] = 1;
    CHECK_OK(tb_name_set(&s.model, "policy"));
    return s;
}

static const struct tb_said *put(struct tb_statement_table *t, const struct tb_statement *s)
{
    static const struct tb_identity by = {.kind = TB_IDENTITY_GATEWAY};
    return tb_said_put(t, s, &by, (const uint8_t *)"said", 4);
}

static void each_kind_has_its_own(void **state)
{
    (void)state;
    struct tb_statement_table t = {.count = 0};
    const struct tb_statement version = statement(TB_STATEMENT_VERSION, 7),
                              withdrawn = statement(TB_STATEMENT_WITHDRAWN, 7);
    assert_non_null(put(&t, &version));
    assert_null(tb_said_find(&t, TB_STATEMENT_WITHDRAWN, &withdrawn.uid));
    assert_non_null(put(&t, &withdrawn));
    assert_ptr_equal(tb_said_find(&t, TB_STATEMENT_VERSION, &version.uid),
                     tb_said_newest(&t, TB_STATEMENT_VERSION, &version.model));
    assert_memory_equal(tb_said_find(&t, TB_STATEMENT_WITHDRAWN, &version.uid)->bytes, "said", 4);
    tb_said_free(&t);
}

static void a_newer_one_takes_the_place_of_the_same(void **state)
{
    (void)state;
    struct tb_statement_table t = {.count = 0};
    struct tb_statement s = statement(TB_STATEMENT_RUN, 3);
    assert_non_null(put(&t, &s));
    s.wall_ms = 9;
    assert_non_null(put(&t, &s));
    assert_int_equal(t.count, 1);
    assert_int_equal(tb_said_find(&t, TB_STATEMENT_RUN, &s.run)->what.wall_ms, 9);
    tb_said_free(&t);
}

static void the_oldest_of_a_model_gives_way(void **state)
{
    (void)state;
    struct tb_statement_table t = {.count = 0};
    for (uint32_t i = 1; i <= TB_STORE_SIGNED_MAX + 2; i++) {
        const struct tb_statement s = statement(TB_STATEMENT_VERSION, i);
        assert_non_null(put(&t, &s));
    }
    const struct tb_statement first = statement(TB_STATEMENT_VERSION, 1),
                              third = statement(TB_STATEMENT_VERSION, 3);
    assert_int_equal(t.count, TB_STORE_SIGNED_MAX);
    assert_int_equal(t.refused, 2);
    assert_null(tb_said_find(&t, TB_STATEMENT_VERSION, &first.uid));
    assert_non_null(tb_said_find(&t, TB_STATEMENT_VERSION, &third.uid));
    assert_null(put(&t, &first)); /* older than all that are there */
    tb_said_free(&t);
}

static enum tb_said_need is_odd(void *user, const struct tb_said *said)
{
    (void)user;
    return said->what.number % 2 == 1 ? TB_SAID_NEEDED : TB_SAID_OVER;
}

/* P7: one that nobody needed for so many ticks goes, and no other. */
static void one_that_is_not_needed_goes_after_a_while(void **state)
{
    (void)state;
    struct tb_statement_table t = {.count = 0};
    const struct tb_statement odd = statement(TB_STATEMENT_VERSION, 1),
                              even = statement(TB_STATEMENT_VERSION, 2);
    assert_true(put(&t, &odd) != NULL && put(&t, &even) != NULL);
    for (uint32_t i = 0; i < TB_SAID_IDLE; i++)
        tb_said_age(&t, is_odd, NULL);
    assert_int_equal(t.count, 2);
    tb_said_age(&t, is_odd, NULL);
    assert_int_equal(t.count, 1);
    assert_non_null(tb_said_find(&t, TB_STATEMENT_VERSION, &odd.uid));
    assert_null(tb_said_find(&t, TB_STATEMENT_VERSION, &even.uid));
    tb_said_free(&t);
}

static enum tb_said_need lora_rests(void *user, const struct tb_said *said)
{
    (void)user;
    return said->what.model.text[0] == 'l' ? TB_SAID_RESTS : TB_SAID_NEEDED;
}

/* P7: names of a pattern have no end, and the table has one. A statement gives way of a model
 * that nobody uses: no withdrawal, and the one that was signed first. */
static void the_oldest_of_models_that_rest_gives_way(void **state)
{
    (void)state;
    struct tb_statement_table t = {.count = 0};
    struct tb_statement used = statement(TB_STATEMENT_RUN, 1),
                        withdrawn = statement(TB_STATEMENT_WITHDRAWN, 2);
    (void)snprintf(withdrawn.model.text, sizeof withdrawn.model.text, "lora-w");
    assert_true(put(&t, &used) != NULL && put(&t, &withdrawn) != NULL);
    for (uint32_t i = 3; i <= TB_SAID_MAX; i++) {
        struct tb_statement s = statement(TB_STATEMENT_RUN, i);
        s.wall_ms = TB_SAID_MAX - i; /* the newest name was signed first */
        (void)snprintf(s.model.text, sizeof s.model.text, "lora-%u", i);
        assert_non_null(put(&t, &s));
    }
    tb_said_age(&t, lora_rests, NULL);
    assert_int_equal(t.count, TB_SAID_MAX);
    struct tb_statement more = statement(TB_STATEMENT_RUN, TB_SAID_MAX + 1),
                        first = statement(TB_STATEMENT_RUN, TB_SAID_MAX);
    assert_non_null(put(&t, &more));
    assert_int_equal(t.count, TB_SAID_MAX);
    assert_int_equal(t.crowded, 1);
    assert_null(tb_said_find(&t, TB_STATEMENT_RUN, &first.run));
    (void)snprintf(first.model.text, sizeof first.model.text, "lora-%u", TB_SAID_MAX);
    assert_null(tb_said_newest(&t, TB_STATEMENT_RUN, &first.model));
    assert_non_null(tb_said_find(&t, TB_STATEMENT_RUN, &used.run));
    assert_non_null(tb_said_find(&t, TB_STATEMENT_WITHDRAWN, &withdrawn.uid));
    tb_said_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_has_its_own),
        cmocka_unit_test(a_newer_one_takes_the_place_of_the_same),
        cmocka_unit_test(the_oldest_of_a_model_gives_way),
        cmocka_unit_test(the_oldest_of_models_that_rest_gives_way),
        cmocka_unit_test(one_that_is_not_needed_goes_after_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

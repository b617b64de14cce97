/* store_signed.c - signed statements outlive a restart, once each, and the newest of a model stay
 * (P7). A store of an earlier layout gets their table at its first start (P9).
 *
 * Covers: gateway/store/store.c gateway/store/store_load.c gateway/store/store_file.c */
#include <sqlite3.h>
#include <string.h>

#include "gateway/store/store_load.h"
#include "gateway/store/store_statements.h"
#include "tests/unit/daemon/store_world.h"

static struct tb_store_signed said(uint64_t number, const char *bytes)
{
    struct tb_store_signed s = {.bytes = (uint8_t *)(uintptr_t)bytes, .count = (uint32_t)strlen(bytes)};
    s.what = (struct tb_statement){.kind = TB_STATEMENT_VERSION, .run_order = 1, .number = number};
    memcpy(s.what.uid.bytes, &number, sizeof number);
    s.what.uid.bytes[15] = 1;
    assert_int_equal(tb_name_set(&s.what.model, "policy"), TB_OK);
    return s;
}

struct loaded {
    uint32_t count;
    char last[16];
};

static void load(void *user, const uint8_t *bytes, uint32_t count)
{
    struct loaded *l = user;
    l->count++;
    assert_true(count < sizeof l->last);
    memcpy(l->last, bytes, count);
    l->last[count] = '\0';
}

static struct loaded load_all(struct tb_store *store)
{
    struct loaded l = {.count = 0};
    assert_int_equal(tb_store_load_signed(store, load, &l), TB_OK);
    return l;
}

static void a_statement_is_there_once_after_a_restart(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    const struct tb_store_signed first = said(1, "first"), again = said(1, "again"), older = said(0, "older");
    assert_int_equal(tb_store_signed(store, &first), TB_OK);
    assert_int_equal(tb_store_signed(store, &again), TB_OK);
    assert_int_equal(tb_store_signed(store, &older), TB_OK);
    tb_store_close(store);
    store = store_open_good();
    const struct loaded l = load_all(store);
    assert_int_equal(l.count, 2);
    assert_string_equal(l.last, "older"); /* where they are too many, those of newer runs are taken */
    tb_store_close(store);
}

/* P8: rows that are too many for the cache are sorted in memory: a file for it could not be opened
 * behind the sandbox, and a gateway with some hundred statements did not start. */
static void nothing_is_sorted_in_a_file(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(store->db, "PRAGMA temp_store", -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(st, 0), 2); /* MEMORY */
    assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
    tb_store_close(store);
}

static void the_newest_of_a_model_stay(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    for (uint64_t number = 1; number <= TB_STORE_SIGNED_MAX + 5; number++) {
        const struct tb_store_signed s = said(number, "said");
        assert_int_equal(tb_store_signed(store, &s), TB_OK);
    }
    for (uint32_t i = 0; i < TB_STORE_TRIM_EVERY; i++) {
        const struct tb_store_version v = store_make_version(1);
        assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    }
    assert_int_equal(load_all(store).count, TB_STORE_SIGNED_MAX);
    assert_int_equal(store_ask("SELECT MIN(number) FROM signed"), 6);
    tb_store_close(store);
}

static void a_store_of_an_earlier_layout_gets_the_table(void **state)
{
    (void)state;
    tb_store_close(store_open_good());
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(store_path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "DROP TABLE signed", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    struct tb_store *store = store_open_good();
    assert_int_equal(load_all(store).count, 0);
    const struct tb_store_signed s = said(1, "said");
    assert_int_equal(tb_store_signed(store, &s), TB_OK);
    assert_int_equal(load_all(store).count, 1);
    tb_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(a_statement_is_there_once_after_a_restart),
        STORE_TEST(nothing_is_sorted_in_a_file),
        STORE_TEST(the_newest_of_a_model_stay),
        STORE_TEST(a_store_of_an_earlier_layout_gets_the_table),
    };
    return cmocka_run_group_tests_name("daemon.store_signed", tests, NULL, NULL);
}

/* A store of the release before gets the tables of this one, and stays beside it as it was. P3, P9.
 * Covers: gateway/store/store_file.c gateway/store/store_backup.c */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "gateway/store/store_load.h"
#include "store_world.h"

static const struct tb_disk_keys in_clear = {.key = NULL};
static char error[256], kept[160];

/* The tables that a gateway of that time could not start without, with a row each. */
static const char of_before[] =
    "PRAGMA journal_mode=WAL;"
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('schema','1'),('incarnation','7');"
    "CREATE TABLE run(model TEXT NOT NULL, run_order INTEGER NOT NULL, id BLOB NOT NULL UNIQUE, key TEXT NOT "
    "NULL, has_last INTEGER NOT NULL, last_number INTEGER NOT NULL, resumed_run_order INTEGER NOT NULL, "
    "resumed_number INTEGER NOT NULL, fenced INTEGER NOT NULL, PRIMARY KEY(model, run_order)) WITHOUT ROWID;"
    "INSERT INTO run VALUES('policy', 3, zeroblob(16), 'run-c', 1, 12, 0, 0, 0);"
    "CREATE TABLE audit(id INTEGER PRIMARY KEY AUTOINCREMENT, wall_ms INTEGER NOT NULL, what TEXT NOT NULL);"
    "INSERT INTO audit(wall_ms, what) VALUES(1, 'publish');";

static void sql(const char *path, const char *text)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(db));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static int64_t ask(const char *path, const char *text)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, text, -1, &st, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(db));
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    const int64_t number = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    (void)sqlite3_close(db);
    return number;
}

static int64_t tables(const char *path, const char *name)
{
    char text[128];
    (void)snprintf(text, sizeof text, "SELECT COUNT(*) FROM sqlite_master WHERE type='table' AND name='%s'",
                   name);
    return ask(path, text);
}

static enum tb_status run_seen(void *user, const struct tb_catalog_run *run)
{
    if (run->order == 3 && run->last_number == 12) ++*(int *)user;
    return TB_OK;
}

static enum tb_status no_version(void *user, const struct tb_store_version *v)
{
    (void)user, (void)v;
    return TB_BAD_ARGUMENT;
}

static void opened(void)
{
    struct tb_store *store = NULL;
    int runs = 0;
    if (tb_store_open(store_path, &in_clear, &store, error) != TB_OK) fail_msg("%s", error);
    assert_int_equal(tb_store_load(store, run_seen, no_version, &runs), TB_OK);
    assert_int_equal(runs, 1);
    tb_store_close(store);
}

static void a_store_of_the_release_before(void)
{
    (void)snprintf(kept, sizeof kept, "%s.before-2", store_path);
    sql(store_path, of_before);
    assert_int_equal(chmod(store_path, 0600), 0);
}

static void a_store_of_an_older_release_is_kept_beside(void **state)
{
    (void)state;
    struct stat st;
    a_store_of_the_release_before();
    opened();
    assert_int_equal(tables(store_path, "audit"), 0);
    assert_int_equal(tables(store_path, "record"), 1);
    assert_int_equal(ask(store_path, "PRAGMA user_version"), 2);
    assert_int_equal(stat(kept, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(tables(kept, "record"), 0);
    assert_int_equal(ask(kept, "SELECT COUNT(*) FROM audit WHERE what='publish'"), 1);
    assert_int_equal(ask(kept, "SELECT value FROM meta WHERE name='incarnation'"), 7);
}

static void a_store_of_this_release_is_not_copied(void **state)
{
    (void)state;
    a_store_of_the_release_before();
    opened();
    assert_int_equal(unlink(kept), 0);
    opened();
    assert_int_equal(access(kept, F_OK), -1);
    assert_int_equal(unlink(store_path), 0);
    struct tb_store *store = store_open_good(); /* a new one */
    tb_store_close(store);
    assert_int_equal(access(kept, F_OK), -1);
}

/* The release before ran again: what it wrote then is kept, too. */
static void a_store_that_went_back_is_copied_again(void **state)
{
    (void)state;
    a_store_of_the_release_before();
    opened();
    sql(store_path,
        "CREATE TABLE audit(id INTEGER PRIMARY KEY, what TEXT); INSERT INTO audit(what) VALUES('x'),('y')");
    opened();
    char second[192];
    (void)snprintf(second, sizeof second, "%s.2", kept);
    assert_int_equal(ask(second, "SELECT COUNT(*) FROM audit"), 2);
    assert_int_equal(ask(kept, "SELECT COUNT(*) FROM audit"), 1); /* the first copy stays */
    assert_int_equal(tables(store_path, "audit"), 0);
}

/* P3: where each name is taken, nothing is replaced, and the tables stay. */
static void a_copy_replaces_none(void **state)
{
    (void)state;
    struct tb_store *store = NULL;
    a_store_of_the_release_before();
    for (uint32_t i = 1; i <= 9; i++) {
        char name[192];
        (void)snprintf(name, sizeof name, "%s.%u", kept, i);
        if (i == 1) (void)snprintf(name, sizeof name, "%s", kept);
        FILE *f = fopen(name, "wb");
        assert_non_null(f);
        assert_int_equal(fclose(f), 0);
    }
    assert_int_equal(tb_store_open(store_path, &in_clear, &store, error), TB_SITE_STORE);
    assert_non_null(strstr(error, "remove copies"));
    assert_int_equal(tables(store_path, "audit"), 1);
    assert_int_equal(unlink(kept), 0);
    opened();
    assert_int_equal(tables(kept, "record"), 0);
}

/* P3: no copy, no change. */
static void without_a_copy_nothing_changes(void **state)
{
    (void)state;
    struct tb_store *store = NULL;
    char folder[192];
    a_store_of_the_release_before();
    (void)snprintf(folder, sizeof folder, "%s.backup", kept);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(tb_store_open(store_path, &in_clear, &store, error), TB_SITE_STORE);
    assert_non_null(strstr(error, "release before"));
    assert_int_equal(tables(store_path, "audit"), 1);
    assert_int_equal(tables(store_path, "record"), 0);
    assert_int_equal(rmdir(folder), 0);
    opened();
}

static int tear_down(void **state)
{
    (void)state;
    return scratch_remove(store_folder) ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_store_of_an_older_release_is_kept_beside),
        TEST(a_store_of_this_release_is_not_copied),
        TEST(a_store_that_went_back_is_copied_again),
        TEST(a_copy_replaces_none),
        TEST(without_a_copy_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "store_world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

static const struct tb_disk_keys in_clear = {.key = NULL};

char store_folder[SCRATCH_BYTES];
char store_path[128];
const struct tb_store_audit store_audit = {.what = "test", .who = "unix:0", .why = "", .wall_ms = 1234};

int store_set_up(void **state)
{
    (void)state;
    assert_true(scratch_folder(store_folder, sizeof store_folder, "store"));
    snprintf(store_path, sizeof store_path, "%s/s.sqlite", store_folder);
    return 0;
}

int store_tear_down(void **state)
{
    (void)state;
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char file[128];
        snprintf(file, sizeof file, "%s%s", store_path, ends[i]);
        unlink(file);
    }
    return rmdir(store_folder);
}

struct tb_store *store_open_good(void)
{
    struct tb_store *store = NULL;
    char error[256];
    if (tb_store_open(store_path, &in_clear, &store, error) != TB_OK) fail_msg("%s", error);
    return store;
}

struct tb_catalog_run store_make_run(uint64_t order)
{
    struct tb_catalog_run run = {.order = order,
                                 .has_last = true,
                                 .last_number = 40 + order,
                                 .resumed_run_order = order - 1,
                                 .resumed_number = UINT64_MAX, /* 64 bits go through SQLite's signed ones */
                                 .fenced = order == 1};
    run.id.bytes[0] = (uint8_t)order;
    assert_int_equal(tb_name_set(&run.model, "policy"), TB_OK);
    snprintf(run.key, sizeof run.key, "key-%d", (int)order);
    snprintf(run.opened_by, sizeof run.opened_by, "unix:%d", (int)order);
    if (run.fenced) snprintf(run.fenced_by, sizeof run.fenced_by, "unix:%d", (int)order + 1);
    return run;
}

struct tb_store_version store_make_version(uint64_t number)
{
    struct tb_store_version v = {.state = TB_VERSION_READY, .bytes = 1000 + number};
    v.key = (struct tb_version_key){.run_order = 1, .number = number, .shard_count = 2};
    memcpy(v.key.uid.bytes, &number, sizeof number);
    v.key.uid.bytes[15] = 1;
    v.key.run.bytes[0] = 1;
    v.key.root.bytes[3] = (uint8_t)number;
    assert_int_equal(tb_name_set(&v.key.model, "policy"), TB_OK);
    return v;
}

int64_t store_ask(const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_open(store_path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    const int rc = sqlite3_step(st);
    assert_true(rc == SQLITE_ROW || rc == SQLITE_DONE);
    const int64_t answer = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    sqlite3_finalize(st);
    sqlite3_close(db);
    return answer;
}

/* store_writer.c - the owner never waits; results come back in order; a write that does
 * not end is left behind.
 * Covers: gateway/store/store_writer.c */
#include "gateway/store/store_writer.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sqlite3.h>

#include "gateway/store/store_load.h"
#include "store_world.h"

static const struct tb_disk_keys in_clear = {.key = NULL};

/* The disk: while `held`, a thread that begins to write stops here. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, entered;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void disk_set(bool held)
{
    pthread_mutex_lock(&disk.lock);
    disk.held = held;
    disk.entered = false;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

static void disk_entered(void)
{
    pthread_mutex_lock(&disk.lock);
    while (!disk.entered)
        pthread_cond_wait(&disk.changed, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
}

static int on_commit(void *user)
{
    (void)user;
    pthread_mutex_lock(&disk.lock);
    disk.entered = true;
    pthread_cond_broadcast(&disk.changed);
    while (disk.held)
        pthread_cond_wait(&disk.changed, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
    return 0;
}

static int note_connection(sqlite3 *db, const char **message, const struct sqlite3_api_routines *api)
{
    (void)message;
    (void)api;
    sqlite3_commit_hook(db, on_commit, NULL);
    return SQLITE_OK;
}

/* SQLite's: of the disk, too, where a test says so. */
static _Atomic bool sync_disk;
int fdatasync(int fd);
__attribute__((visibility("default"))) int fdatasync(int fd)
{
    if (sync_disk) (void)on_commit(NULL);
    return (int)syscall(SYS_fdatasync, fd);
}

static void count_wake(void *user)
{
    ++*(_Atomic int *)user;
}

/* A writer that was left behind has closed its store: nobody has its lock any more. */
static void store_ended(void)
{
    struct tb_store *store = NULL;
    char error[256];
    while (tb_store_open(store_path, &in_clear, &store, error) != TB_OK)
        (void)sched_yield();
    tb_store_close(store);
}

static struct tb_store_row row_of(uint64_t number)
{
    struct tb_store_row r = {.kind = TB_STORE_VERSION, .what = "test", .who = "unix:0"};
    r.version = (struct tb_store_version){.state = TB_VERSION_READY};
    r.version.key = (struct tb_version_key){.run_order = 1, .number = number, .shard_count = 1};
    memcpy(r.version.key.uid.bytes, &number, sizeof number);
    assert_int_equal(tb_name_set(&r.version.key.model, "policy"), TB_OK);
    return r;
}

static void submit(struct tb_store_writer *w, uint64_t number, uint32_t count)
{
    static struct tb_store_row rows[TB_STORE_BATCH_MAX];
    const struct tb_store_row *list[TB_STORE_BATCH_MAX];
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = row_of(number + i);
        list[i] = &rows[i];
    }
    tb_store_writer_submit(w, list, count);
    memset(rows, 0, sizeof rows); /* it has its own copy */
}

static uint32_t versions_seen;
static enum tb_status take_run(void *user, const struct tb_catalog_run *run)
{
    (void)user, (void)run;
    return TB_OK;
}
static enum tb_status take_version(void *user, const struct tb_store_version *version)
{
    (void)user, (void)version;
    versions_seen++;
    return TB_OK;
}

static struct tb_store *open_store(void)
{
    struct tb_store *store = NULL;
    char error[256];
    if (tb_store_open(store_path, &in_clear, &store, error) != TB_OK) fail_msg("%s", error);
    return store;
}

/* P6: while the disk is held the owner goes on, and hears of the result when there is one. */
static void nobody_waits_for_the_disk(void **state)
{
    (void)state;
    _Atomic int wakes = 0;
    struct tb_store_written written;
    struct tb_store *store = open_store();
    struct tb_store_writer *w = NULL;
    assert_int_equal(tb_store_writer_open(store, count_wake, &wakes, &w), TB_OK);
    assert_false(tb_store_writer_take(w, &written)); /* idle */
    assert_true(tb_store_writer_wait(w, 0));
    disk_set(true);
    submit(w, 1, TB_STORE_BATCH_MAX);
    disk_entered();
    assert_false(tb_store_writer_take(w, &written));
    assert_false(tb_store_writer_wait(w, 1));
    assert_int_equal(wakes, 0);
    disk_set(false);
    assert_true(tb_store_writer_wait(w, 60000));
    assert_true(tb_store_writer_take(w, &written));
    assert_int_equal(written.status, TB_OK);
    assert_int_equal(written.count, TB_STORE_BATCH_MAX);
    assert_false(tb_store_writer_take(w, &written)); /* once */
    submit(w, 1000, 1);
    assert_true(tb_store_writer_wait(w, 60000));
    assert_true(tb_store_writer_take(w, &written));
    assert_int_equal(written.count, 1);
    assert_true(tb_store_writer_close(w, 60000));
    assert_int_equal(wakes, 2);
    versions_seen = 0;
    store = open_store(); /* the writer closed it */
    assert_int_equal(tb_store_load(store, take_run, take_version, NULL), TB_OK);
    assert_int_equal(versions_seen, TB_STORE_BATCH_MAX + 1);
    tb_store_close(store);
}

/* P10: the store's words about a failure come with the result. */
static void a_failure_comes_with_its_reason(void **state)
{
    (void)state;
    _Atomic int wakes = 0;
    struct tb_store_written written;
    struct tb_store *store = open_store();
    struct tb_store_writer *w = NULL;
    sqlite3 *other = NULL;
    assert_int_equal(tb_store_writer_open(store, count_wake, &wakes, &w), TB_OK);
    assert_int_equal(sqlite3_open(store_path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    submit(w, 1, 2);
    assert_true(tb_store_writer_wait(w, 60000));
    assert_true(tb_store_writer_take(w, &written));
    assert_int_equal(written.status, TB_SITE_STORE);
    assert_non_null(strstr(written.error, "another process"));
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    submit(w, 1, 2);
    assert_true(tb_store_writer_wait(w, 60000));
    assert_true(tb_store_writer_take(w, &written));
    assert_int_equal(written.status, TB_OK);
    assert_true(tb_store_writer_close(w, 60000));
}

/* P9: an end does not wait for a write that does not end; nobody is woken after it. */
static void a_write_that_does_not_end_is_left_behind(void **state)
{
    (void)state;
    static _Atomic int wakes; /* outlives the thread */
    static struct tb_store_writer *w;
    assert_int_equal(tb_store_writer_open(open_store(), count_wake, &wakes, &w), TB_OK);
    disk_set(true);
    submit(w, 1, 1);
    disk_entered();
    assert_false(tb_store_writer_close(w, 0));
    disk_set(false);
    store_ended();
    assert_int_equal(wakes, 0);
}

/* P9: nor for a store that cannot be closed: what its log holds is folded into its
 * file then, and synced. */
static void a_close_that_does_not_end_is_left_behind(void **state)
{
    (void)state;
    static _Atomic int wakes;
    static struct tb_store_writer *w;
    struct tb_store_written written;
    assert_int_equal(tb_store_writer_open(open_store(), count_wake, &wakes, &w), TB_OK);
    submit(w, 1, 1);
    assert_true(tb_store_writer_wait(w, 60000));
    assert_true(tb_store_writer_take(w, &written));
    sync_disk = true;
    disk_set(true);
    assert_false(tb_store_writer_close(w, 20));
    disk_entered();
    disk_set(false);
    sync_disk = false;
    store_ended();
    assert_int_equal(wakes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(nobody_waits_for_the_disk),
        STORE_TEST(a_failure_comes_with_its_reason),
        STORE_TEST(a_write_that_does_not_end_is_left_behind),
        STORE_TEST(a_close_that_does_not_end_is_left_behind),
    };
    sqlite3_auto_extension((void (*)(void))note_connection);
    return cmocka_run_group_tests_name("store_writer", tests, NULL, NULL);
}

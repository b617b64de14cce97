/* A copy of a store is consistent although rows are written between its pieces, is under the
 * store's key, leaves no file, and says of itself that it is a copy. P2, P3, P8.
 * Covers: gateway/store/store_backup.c gateway/store/store_file.c gateway/store/store.c */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/store/store_audit.h"
#include "gateway/store/store_backup.h"
#include "gateway/store/store_load.h"
#include "store_world.h"

static const struct tb_disk_key key_a = {{1, 2, 3}};
static const struct tb_disk_keys in_clear = {.key = NULL}, under_a = {.key = &key_a};
static char error[256];

static struct tb_store *open_at(const char *path, const struct tb_disk_keys *keys)
{
    struct tb_store *store = NULL;
    if (tb_store_open(path, keys, &store, error) != TB_OK) fail_msg("%s", error);
    return store;
}

static struct tb_store *began(const struct tb_disk_keys *keys)
{
    struct tb_store *store = open_at(store_path, keys);
    uint64_t incarnation = 0;
    const struct tb_catalog_run run = store_make_run(1);
    assert_int_equal(tb_store_incarnation(store, 1, &incarnation), TB_OK);
    assert_int_equal(tb_store_run(store, &run, &store_audit), TB_OK);
    assert_int_equal(tb_store_own(store, NULL, 0, true), TB_OK);
    return store;
}

/* As the writer's thread does: rows and a step of the copy, in one batch. */
static void batch(struct tb_store *store, uint64_t number, struct tb_store_backup *backup)
{
    struct tb_store_row rows[2] = {{.kind = TB_STORE_VERSION, .what = "test"},
                                   {.kind = TB_STORE_BACKUP, .backup = backup}};
    rows[0].version = store_make_version(number);
    rows[0].version.pinned = false;
    assert_int_equal(tb_store_rows(store, rows, 2), TB_OK);
}

/* Some MiB of the audit record, in batches as the writer has them. */
static void fill(struct tb_store *store)
{
    static struct tb_store_row rows[64];
    for (uint32_t i = 0; i < 8000; i++) {
        struct tb_store_row *row = &rows[i % 64];
        *row = (struct tb_store_row){.kind = TB_STORE_RECORD};
        struct tb_audit_record *r = &row->record;
        *r = (struct tb_audit_record){.wall_ms = 1000 + i, .share = TB_AUDIT_VERSIONS, .count = 1};
        (void)snprintf(r->action, sizeof r->action, "fill");
        (void)snprintf(r->identity, sizeof r->identity, "row %u", i);
        memset(r->object, 'o', sizeof r->object - 1);
        memset(r->result, 'r', sizeof r->result - 1);
        if (i % 64 == 63) assert_int_equal(tb_store_rows(store, rows, 64), TB_OK);
    }
}

/* Into a file of its own name; how many pieces it took. */
static uint32_t copied(struct tb_store *store, const char *to)
{
    static uint8_t bytes[1 << 16];
    struct tb_store_backup *backup = NULL;
    uint32_t steps = 0;
    int fd = -1;
    assert_int_equal(tb_store_backup_new(store_path, &backup), TB_OK);
    while (!tb_store_backup_is_over(backup))
        batch(store, 10 + steps++, backup);
    if (tb_store_backup_take(backup, &fd, error) != TB_OK) fail_msg("%s", error);
    tb_store_backup_free(backup);
    const int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
        assert_int_equal(write(out, bytes, (size_t)got), got);
    assert_int_equal(close(out), 0);
    assert_int_equal(close(fd), 0);
    return steps;
}

static bool beside(const char *end)
{
    char path[192];
    (void)snprintf(path, sizeof path, "%s.backup%s", store_path, end);
    return access(path, F_OK) == 0;
}

static enum tb_status any_run(void *user, const struct tb_catalog_run *run)
{
    (void)user, (void)run;
    return TB_OK;
}

static enum tb_status newest(void *user, const struct tb_store_version *v)
{
    uint64_t *number = user;
    if (v->key.number > *number) *number = v->key.number;
    return TB_OK;
}

static void a_copy_has_what_was_written_between_its_pieces(const struct tb_disk_keys *keys)
{
    char to[192];
    uint64_t number = 0;
    (void)snprintf(to, sizeof to, "%s/copy.sqlite", store_folder);
    struct tb_store *store = began(keys);
    fill(store);
    const uint32_t steps = copied(store, to);
    assert_true(steps >= 4); /* or nothing was written between two of them */
    assert_false(beside("") || beside("-wal") || beside("-journal") || beside("-shm"));
    tb_store_close(store);
    store = open_at(to, keys);
    assert_int_equal(tb_store_load(store, any_run, newest, &number), TB_OK);
    assert_in_range(number, 10 + steps - 2, 10 + steps - 1);
    assert_int_equal(tb_store_origin(store), TB_STORE_RESTORED);
    tb_store_close(store);
}

static void a_copy_in_clear(void **state)
{
    (void)state;
    a_copy_has_what_was_written_between_its_pieces(&in_clear);
}

static void a_copy_under_the_stores_key(void **state)
{
    (void)state;
    char to[192], head[16] = "";
    struct tb_store *store = NULL;
    a_copy_has_what_was_written_between_its_pieces(&under_a);
    (void)snprintf(to, sizeof to, "%s/copy.sqlite", store_folder);
    FILE *f = fopen(to, "rb");
    assert_int_equal(fread(head, 1, 8, f), 8);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(head, "TBSEAL01");
    assert_int_equal(tb_store_open(to, &in_clear, &store, error), TB_SITE_STORE);
}

/* A filesystem that tells no file from another cannot hide it: the copy stands in the place of the
 * very file that it was made of. */
static void a_copy_says_so_itself(void **state)
{
    (void)state;
    char to[192];
    static uint8_t bytes[1 << 20];
    (void)snprintf(to, sizeof to, "%s/copy.sqlite", store_folder);
    struct tb_store *store = began(&in_clear);
    (void)copied(store, to);
    tb_store_close(store);
    FILE *from = fopen(to, "rb"), *into = fopen(store_path, "r+b"); /* the same inode */
    const size_t count = fread(bytes, 1, sizeof bytes, from);
    assert_int_equal(fwrite(bytes, 1, count, into), count);
    assert_int_equal(fclose(from) | fclose(into), 0);
    assert_int_equal(truncate(store_path, (off_t)count), 0);
    store = open_at(store_path, &in_clear);
    assert_int_equal(tb_store_origin(store), TB_STORE_RESTORED);
    assert_int_equal(tb_store_own(store, NULL, 0, false), TB_OK);
    tb_store_close(store);
    store = open_at(store_path, &in_clear);
    assert_int_equal(tb_store_origin(store), TB_STORE_SAME); /* it is asked once */
    tb_store_close(store);
}

/* A file that a killed process left is cleared away, and a copy that is given up leaves nothing. */
static void no_file_is_left(void **state)
{
    (void)state;
    char to[192], left[192];
    struct tb_store_backup *backup = NULL;
    (void)snprintf(to, sizeof to, "%s/copy.sqlite", store_folder);
    (void)snprintf(left, sizeof left, "%s.backup", store_path);
    struct tb_store *store = began(&in_clear);
    fill(store);
    const int fd = open(left, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "half", 4), 4);
    assert_int_equal(close(fd), 0);
    assert_true(copied(store, to) >= 4);
    assert_int_equal(tb_store_backup_new(store_path, &backup), TB_OK);
    batch(store, 90, backup);
    batch(store, 91, backup);
    assert_true(beside(""));
    assert_false(tb_store_backup_is_over(backup));
    tb_store_backup_free(backup);
    assert_false(beside("") || beside("-wal") || beside("-journal"));
    tb_store_close(store);
}

/* P3: a folder stands where the copy would. The store goes on, and the copy says why there is
 * none. */
static void a_copy_that_fails_harms_nothing(void **state)
{
    (void)state;
    char folder[192];
    struct tb_store_backup *backup = NULL;
    uint64_t number = 0;
    int fd = -1;
    (void)snprintf(folder, sizeof folder, "%s.backup", store_path);
    struct tb_store *store = began(&in_clear);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(tb_store_backup_new(store_path, &backup), TB_OK);
    batch(store, 90, backup);
    assert_true(tb_store_backup_is_over(backup));
    assert_int_equal(tb_store_backup_take(backup, &fd, error), TB_SITE_STORE);
    assert_non_null(strstr(error, "could not be copied"));
    batch(store, 91, backup); /* a step more does nothing */
    tb_store_backup_free(backup);
    assert_int_equal(tb_store_load(store, any_run, newest, &number), TB_OK);
    assert_int_equal(number, 91);
    tb_store_close(store);
}

/* P3: the disk of the store is the copy's, too. It stops before the margin, at its begin or between
 * two pieces, and the store goes on. */
static void a_copy_leaves_room_on_the_disk(void **state)
{
    (void)state;
    struct tb_store_backup *backup = NULL;
    int fd = -1;
    struct tb_store *store = began(&in_clear);
    fill(store);
    for (uint32_t begun = 0; begun < 2; begun++) {
        assert_int_equal(tb_store_backup_new(store_path, &backup), TB_OK);
        if (begun == 1) {
            tb_store_backup_margin(backup, 0);
            batch(store, 90, backup);
            batch(store, 91, backup);
            assert_true(beside(""));
            assert_false(tb_store_backup_is_over(backup));
        }
        tb_store_backup_margin(backup, UINT64_MAX);
        batch(store, 92 + begun, backup);
        assert_true(tb_store_backup_is_over(backup));
        assert_int_equal(tb_store_backup_take(backup, &fd, error), TB_SITE_STORE);
        assert_non_null(strstr(error, "make room"));
        assert_false(beside("") || beside("-wal") || beside("-journal"));
        tb_store_backup_free(backup);
    }
    tb_store_close(store);
}

/* The queue of rows says once that it has let go of a step. */
static void a_step_is_due_once(void **state)
{
    (void)state;
    struct tb_store_backup *backup = NULL;
    assert_int_equal(tb_store_backup_new(store_path, &backup), TB_OK);
    assert_false(tb_store_backup_is_due(backup));
    tb_store_backup_let_go(backup);
    assert_true(tb_store_backup_is_due(backup));
    assert_false(tb_store_backup_is_due(backup));
    tb_store_backup_free(backup);
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
        TEST(a_copy_in_clear),
        TEST(a_copy_under_the_stores_key),
        TEST(a_copy_says_so_itself),
        TEST(no_file_is_left),
        TEST(a_copy_that_fails_harms_nothing),
        TEST(a_step_is_due_once),
        TEST(a_copy_leaves_room_on_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

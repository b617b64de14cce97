/* An encrypted store keeps what was acknowledged, tells nothing, and no page of it can be changed
 * or moved unseen; another key changes nothing. P1, P3, P8, P10.
 * Covers: gateway/store/store_vfs.c gateway/store/store_rekey.c gateway/store/store_file.c */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "gateway/disk/disk_seal.h"
#include "gateway/store/store_audit.h"
#include "gateway/store/store_load.h"
#include "store_world.h"

#define PAGE_UNIT (4096 + (int)TB_SEAL_MORE)

static const struct tb_disk_key key_a = {{1, 2, 3}}, key_b = {{3, 2, 1}};
static const struct tb_disk_keys under_a = {.key = &key_a}, under_b = {.key = &key_b}, clear = {.key = NULL},
                                 b_was_a = {&key_b, &key_a, true}, a_was_b = {&key_a, &key_b, true},
                                 a_was_clear = {&key_a, NULL, true}, clear_was_b = {NULL, &key_b, true};
static char error[256];

static struct tb_store *open_under(const struct tb_disk_keys *keys)
{
    struct tb_store *store = NULL;
    if (tb_store_open(store_path, keys, &store, error) != TB_OK) fail_msg("%s", error);
    return store;
}

static void refused(const struct tb_disk_keys *keys, const char *why)
{
    struct tb_store *store = NULL;
    assert_int_equal(tb_store_open(store_path, keys, &store, error), TB_SITE_STORE);
    assert_null(store);
    if (strstr(error, why) == NULL) fail_msg("%s", error);
    assert_non_null(strstr(error, store_path));
}

static enum tb_status any_run(void *user, const struct tb_catalog_run *run)
{
    (void)user, (void)run;
    return TB_OK;
}

static enum tb_status count_version(void *user, const struct tb_store_version *version)
{
    assert_string_equal(version->key.model.text, "policy");
    ++*(uint64_t *)user;
    return TB_OK;
}

static uint64_t versions(struct tb_store *store)
{
    uint64_t count = 0;
    assert_int_equal(tb_store_load(store, any_run, count_version, &count), TB_OK);
    return count;
}

/* Versions stay whatever their number: as if an operator had pinned them. */
static void put(struct tb_store *store, uint64_t number)
{
    const struct tb_store_version v = store_make_version(number);
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
}

static void filled(const struct tb_disk_keys *keys, uint64_t count)
{
    struct tb_store *store = open_under(keys);
    uint64_t incarnation = 0;
    const struct tb_catalog_run run = store_make_run(1);
    assert_int_equal(tb_store_incarnation(store, 1, &incarnation), TB_OK);
    assert_int_equal(tb_store_run(store, &run, &store_audit), TB_OK);
    for (uint64_t n = 1; n <= count; n++)
        put(store, n);
    assert_int_equal(tb_store_own(store, NULL, 0, true), TB_OK);
    tb_store_close(store);
}

struct bytes {
    uint8_t *at;
    size_t count;
};

static struct bytes file_read(const char *path)
{
    struct stat st;
    struct bytes b = {NULL, 0};
    if (stat(path, &st) != 0) return b;
    b = (struct bytes){malloc((size_t)st.st_size + 1), (size_t)st.st_size};
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(b.at, 1, b.count, f), b.count);
    assert_int_equal(fclose(f), 0);
    return b;
}

static void file_write(const char *path, const struct bytes *b)
{
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(b->at, 1, b->count, f), b->count);
    assert_int_equal(fclose(f), 0);
}

static const char *beside(const char *end)
{
    static char path[160];
    (void)snprintf(path, sizeof path, "%s%s", store_path, end);
    return path;
}

static bool tells(const char *path, const char *text)
{
    const struct bytes b = file_read(path);
    const bool found = b.at != NULL && memmem(b.at, b.count, text, strlen(text)) != NULL;
    free(b.at);
    return found;
}

/* Also in its log, which is there while the store is open. */
static void rows_come_back_and_the_files_tell_nothing(void **state)
{
    (void)state;
    static const char *const words[] = {"policy", "key-1", "unix:", "SQLite", "CREATE"};
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    filled(&under_a, 20);
    struct tb_store *store = open_under(&under_a);
    assert_int_equal(versions(store), 20);
    put(store, 21);
    struct stat st;
    assert_int_equal(stat(beside("-wal"), &st), 0);
    assert_true(st.st_size > PAGE_UNIT);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_not_equal(access(beside("-shm"), F_OK), 0);
    for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++)
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
            assert_false(tells(beside(ends[e]), words[w]));
    tb_store_close(store);
    assert_int_equal(tb_store_check(store_path, &under_a, any_run, count_version, &(uint64_t){0}, error),
                     TB_OK);
    filled(&under_a, 0);
    unlink(store_path);
    filled(&clear, 1); /* the same words are found in one that is in clear */
    assert_true(tells(store_path, "policy") && tells(store_path, "SQLite"));
}

/* P3 P10: the keys that do not fit change no byte. */
static void another_key_changes_nothing(void **state)
{
    (void)state;
    filled(&under_a, 3);
    struct bytes had = file_read(store_path);
    refused(&under_b, "another key");
    refused(&clear, "there is no disk.key");
    refused(&clear_was_b, "another key");
    assert_int_equal(tb_store_check(store_path, &under_b, any_run, count_version, NULL, error),
                     TB_SITE_STORE);
    struct bytes has = file_read(store_path);
    assert_int_equal(had.count, has.count);
    assert_memory_equal(had.at, has.at, had.count);
    free(had.at);
    free(has.at);
    unlink(store_path);
    filled(&clear, 3);
    refused(&under_a, "in clear");
    refused(&b_was_a, "in clear");
    struct tb_store *store = open_under(&clear);
    assert_int_equal(versions(store), 3);
    tb_store_close(store);
}

/* From clear to a key, to another, and back; it stays this process's own file. */
static void a_key_is_changed_with_all_rows(void **state)
{
    (void)state;
    static const struct {
        const struct tb_disk_keys *keys, *next;
    } steps[] = {{&a_was_clear, &under_a}, {&b_was_a, &under_b}, {&clear_was_b, &clear}};
    filled(&clear, 5);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        uint64_t seen = 0;
        assert_int_equal(tb_store_check(store_path, steps[i].keys, any_run, count_version, &seen, error),
                         TB_OK);
        assert_int_equal(seen, 5 + i);
        struct tb_store *store = open_under(steps[i].keys);
        assert_int_equal(tb_store_origin(store), TB_STORE_SAME);
        assert_int_equal(versions(store), 5 + i);
        put(store, 6 + i);
        tb_store_close(store);
        assert_int_equal(tells(store_path, "policy"), steps[i].next == &clear);
        store = open_under(steps[i].next); /* disk.key_old is taken out */
        assert_int_equal(versions(store), 6 + i);
        tb_store_close(store);
        assert_int_not_equal(access(beside(".rekey"), F_OK), 0);
    }
}

/* Each page, one bit: the start or the reading says so, and nothing is made up. */
static void a_flipped_bit_is_an_error(void **state)
{
    (void)state;
    filled(&under_a, 20);
    struct bytes b = file_read(store_path);
    uint32_t told = 0;
    for (size_t at = TB_SEAL_HEADER_BYTES + 30; at < b.count; at += (size_t)PAGE_UNIT) {
        struct tb_store *store = NULL;
        uint64_t count = 0;
        b.at[at] ^= 16;
        file_write(store_path, &b);
        enum tb_status status = tb_store_open(store_path, &under_a, &store, error);
        if (status == TB_OK) {
            status = tb_store_load(store, any_run, count_version, &count);
            if (status != TB_OK) (void)snprintf(error, sizeof error, "%s", tb_store_error(store));
            assert_true(status != TB_OK || count == 20);
            tb_store_close(store);
        }
        told += status != TB_OK;
        if (status != TB_OK && strstr(error, "a page of it is damaged") == NULL)
            fail_msg("%zu: %s", at, error);
        b.at[at] ^= 16;
    }
    assert_true(told >= 3); /* the first page, runs, versions; others are of tables that are not read */
    b.at[20] ^= 1;
    file_write(store_path, &b);
    refused(&under_a, "another key, or its header is damaged");
    free(b.at);
}

static void swapped_and_cut_pages_are_errors(void **state)
{
    (void)state;
    static uint8_t one[PAGE_UNIT];
    filled(&under_a, 20);
    struct bytes b = file_read(store_path);
    uint8_t *first = b.at + TB_SEAL_HEADER_BYTES, *second = first + PAGE_UNIT;
    memcpy(one, first, sizeof one);
    memcpy(first, second, sizeof one);
    memcpy(second, one, sizeof one);
    file_write(store_path, &b);
    refused(&under_a, "a page of it is damaged");
    memcpy(second, first, sizeof one); /* back */
    memcpy(first, one, sizeof one);
    for (size_t cut = 1; cut < 3; cut++) { /* of the last page, of all but the first */
        const struct bytes part = {b.at, cut == 1 ? b.count - 1 : TB_SEAL_HEADER_BYTES + (size_t)PAGE_UNIT};
        file_write(store_path, &part);
        refused(&under_a, "malformed");
    }
    free(b.at);
}

/* P8: SQLite would play a journal back that it finds beside its file. */
static void a_journal_of_a_stranger_is_not_played(void **state)
{
    (void)state;
    static const uint8_t magic[] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7, 0, 0, 0, 1};
    uint8_t *journal = calloc(1, 512 + 4104);
    filled(&under_a, 3);
    memcpy(journal, magic, sizeof magic);
    journal[19] = 1;             /* pages before it */
    journal[22] = 2;             /* sectors of 512 */
    journal[26] = 16;            /* pages of 4096 */
    journal[515] = 1;            /* page 1 is zeros */
    journal[512 + 4104 - 1] = 0; /* its checksum, of a nonce of 0 */
    const struct bytes b = {journal, 512 + 4104};
    file_write(beside("-journal"), &b);
    struct tb_store *store = open_under(&under_a);
    assert_int_equal(versions(store), 3);
    tb_store_close(store);
    assert_int_equal(unlink(beside("-journal")), 0);
    free(journal);
}

/* ---- kills ---- */

struct child {
    pid_t pid;
    int acknowledged; /* a byte for each version that is there for good, or each change of keys */
};

static void child_begin(struct child *c, void (*life)(int said))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    c->pid = scratch_fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        (void)close(ends[0]);
        life(ends[1]);
        _exit(1);
    }
    (void)close(ends[1]);
    c->acknowledged = ends[0];
}

/* After so many; all that it said until its end. */
static uint64_t child_kill(struct child *c, uint64_t after)
{
    char byte;
    uint64_t count = 0;
    while (count < after && read(c->acknowledged, &byte, 1) == 1)
        count++;
    assert_int_equal(count, after);
    assert_int_equal(kill(c->pid, SIGKILL), 0);
    while (read(c->acknowledged, &byte, 1) == 1)
        count++;
    assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
    (void)close(c->acknowledged);
    return count;
}

static uint64_t first_number;

static void writes_for_ever(int said)
{
    struct tb_store *store = NULL;
    if (tb_store_open(store_path, &under_a, &store, error) != TB_OK) return;
    for (uint64_t n = first_number;; n++) {
        const struct tb_store_version v = store_make_version(n);
        if (tb_store_version(store, &v, &store_audit) != TB_OK || write(said, ".", 1) != 1) return;
    }
}

/* P3: an acknowledged row is there, and the log that the kill left is taken in. */
static void a_kill_loses_nothing_that_was_acknowledged(void **state)
{
    (void)state;
    uint64_t sure = 0;
    filled(&under_a, 0);
    for (uint64_t round = 0; round < 6; round++) {
        struct child c;
        uint64_t seen = 0;
        first_number = sure + 1;
        child_begin(&c, writes_for_ever);
        sure += child_kill(&c, 3 + 7 * round);
        assert_int_equal(tb_store_check(store_path, &under_a, any_run, count_version, &seen, error), TB_OK);
        struct tb_store *store = open_under(&under_a);
        const uint64_t count = versions(store);
        assert_true(count >= sure && count <= sure + 1 && count == seen);
        sure = count;
        tb_store_close(store);
    }
}

/* As a power cut tears a log: its whole frames count, as those of a log in clear. */
static void a_torn_log_counts_as_far_as_it_is_whole(void **state)
{
    (void)state;
    struct child c;
    filled(&under_a, 2);
    first_number = 3;
    child_begin(&c, writes_for_ever);
    const uint64_t sure = 2 + child_kill(&c, 9);
    struct bytes store = file_read(store_path), log = file_read(beside("-wal"));
    uint64_t before = UINT64_MAX;
    for (size_t cut = 0; cut < 6; cut++) {
        const struct bytes part = {log.at, log.count - cut * (log.count / 8) - cut};
        const size_t bit = part.count - (size_t)PAGE_UNIT - 500; /* of what is left */
        log.at[bit] ^= cut > 0;
        file_write(store_path, &store);
        file_write(beside("-wal"), &part);
        log.at[bit] ^= cut > 0;
        struct tb_store *s = open_under(&under_a);
        const uint64_t count = versions(s);
        tb_store_close(s);
        assert_true(count >= 2 && count <= before && (cut > 0 || count >= sure));
        before = count;
    }
    assert_true(before < sure);
    free(store.at);
    free(log.at);
}

/* P3: a power cut tore the first page as the log was put back; the log has the page still. */
static void a_torn_first_page_is_taken_from_the_log(void **state)
{
    (void)state;
    struct child c;
    filled(&under_a, 2);
    first_number = 3;
    child_begin(&c, writes_for_ever);
    const uint64_t sure = 2 + child_kill(&c, 80);
    struct bytes store = file_read(store_path);
    store.at[TB_SEAL_HEADER_BYTES + 30] ^= 16;
    file_write(store_path, &store);
    struct tb_store *s = open_under(&under_a);
    assert_true(versions(s) >= sure);
    tb_store_close(s);
    free(store.at);
}

static void changes_keys_for_ever(int said)
{
    for (uint64_t n = 0;; n++) {
        struct tb_store *store = NULL;
        if (tb_store_open(store_path, n % 2 == 0 ? &b_was_a : &a_was_b, &store, error) != TB_OK) return;
        tb_store_close(store);
        if (write(said, ".", 1) != 1) return;
    }
}

static void a_kill_amid_a_change_of_keys_loses_nothing(void **state)
{
    (void)state;
    filled(&under_a, 12);
    for (uint64_t round = 0; round < 4; round++) {
        struct child c;
        child_begin(&c, changes_keys_for_ever);
        (void)child_kill(&c, 1 + round);
        struct tb_store *store = open_under(&a_was_b); /* one of the two */
        assert_int_equal(versions(store), 12);
        assert_int_not_equal(tb_store_origin(store), TB_STORE_NEW);
        tb_store_close(store);
        assert_int_not_equal(access(beside(".rekey"), F_OK), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(rows_come_back_and_the_files_tell_nothing),
        STORE_TEST(another_key_changes_nothing),
        STORE_TEST(a_key_is_changed_with_all_rows),
        STORE_TEST(a_flipped_bit_is_an_error),
        STORE_TEST(swapped_and_cut_pages_are_errors),
        STORE_TEST(a_journal_of_a_stranger_is_not_played),
        STORE_TEST(a_kill_loses_nothing_that_was_acknowledged),
        STORE_TEST(a_torn_log_counts_as_far_as_it_is_whole),
        STORE_TEST(a_torn_first_page_is_taken_from_the_log),
        STORE_TEST(a_kill_amid_a_change_of_keys_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

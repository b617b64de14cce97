/* A backup is a stranger's file until it was read whole: no entry of it is believed, no path of it
 * leads elsewhere, and a byte that was changed or cut off is noticed. P1, P7, P8.
 * Covers: gateway/cli/backup/backup_entry.c gateway/cli/backup/backup_stream.c
 * Covers: gateway/cli/backup/restore_place.c gateway/cli/backup/backup_source.c
 * Covers: base/system_names.c */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/cli/backup/backup_source.h"
#include "gateway/cli/backup/backup_stream.h"
#include "gateway/cli/backup/restore_place.h"
#include "tests/unit/scratch.h"

static const struct tb_disk_key key_a = {{1, 2, 3}}, key_b = {{3, 2, 1}};
static char folder[SCRATCH_BYTES], why[TB_RESTORE_WHY_BYTES];

/* ---- entries ---- */

static void a_path_has_one_meaning(void **state)
{
    (void)state;
    static const char *const good[] = {"/a", "/etc/tombolo/east.yaml", "/a b/..c/.d", "/\xc3\xa9"};
    static const char *const wrong[] = {"",      "a",     "a/b",    "/",       "//a",  "/a/",
                                        "/a//b", "/.",    "/../a",  "/a/../b", "/a/.", "/a/./b",
                                        "/a/..", "/a\nb", "/a\x1b", "/a\x7f"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!tb_backup_path_good(good[i])) fail_msg("%s", good[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (tb_backup_path_good(wrong[i])) fail_msg("%s", wrong[i]);
    char longest[TB_BACKUP_PATH_BYTES + 1];
    memset(longest, 'a', sizeof longest);
    longest[0] = '/';
    longest[TB_BACKUP_PATH_BYTES - 1] = '\0';
    assert_true(tb_backup_path_good(longest));
    longest[TB_BACKUP_PATH_BYTES - 1] = 'a';
    longest[TB_BACKUP_PATH_BYTES] = '\0';
    assert_false(tb_backup_path_good(longest));
}

static bool decodes(const uint8_t bytes[TB_BACKUP_ENTRY_BYTES], struct tb_backup_entry *e)
{
    const enum tb_status status = tb_backup_entry_decode(bytes, e);
    if (status != TB_OK) assert_int_equal(status, TB_BAD_FILE);
    return status == TB_OK;
}

static bool possible(enum tb_backup_role role, uint64_t bytes, const char *path)
{
    uint8_t out[TB_BACKUP_ENTRY_BYTES];
    struct tb_backup_entry e = {.role = role, .bytes = bytes}, back;
    (void)snprintf(e.path, sizeof e.path, "%s", path);
    tb_backup_entry_encode(&e, out);
    if (!decodes(out, &back)) return false;
    assert_int_equal(back.role, role);
    assert_int_equal(back.bytes, bytes);
    assert_string_equal(back.path, path);
    return true;
}

/* Each bound of an entry, and one beyond it. */
static void an_entry_is_possible_or_refused(void **state)
{
    (void)state;
    uint8_t out[TB_BACKUP_ENTRY_BYTES];
    struct tb_backup_entry e = {.role = TB_BACKUP_FILE, .bytes = 1, .path = "/a"};
    assert_true(possible(TB_BACKUP_CONFIG, 0, "/a"));
    assert_true(possible(TB_BACKUP_KEY, TB_BACKUP_FILE_MAX, "/a"));
    assert_false(possible(TB_BACKUP_KEY, TB_BACKUP_FILE_MAX + 1, "/a"));
    assert_true(possible(TB_BACKUP_AUTHORITY, TB_BACKUP_FILE_MAX, "/a"));
    assert_false(possible(TB_BACKUP_AUTHORITY, TB_BACKUP_FILE_MAX + 1, "/a"));
    assert_true(possible(TB_BACKUP_STORE, INT64_MAX, "/a"));
    assert_false(possible(TB_BACKUP_STORE, (uint64_t)INT64_MAX + 1, "/a"));
    assert_false(possible(TB_BACKUP_ROLE_END, 1, "/a"));
    assert_false(possible(TB_BACKUP_FILE, 1, "/a/../b"));
    assert_true(possible(TB_BACKUP_END, 16, ""));
    assert_false(possible(TB_BACKUP_END, 16, "/a"));
    assert_false(possible(TB_BACKUP_END, 17, ""));
    tb_backup_entry_encode(&e, out);
    out[14] = 'x'; /* the third letter of its path */
    assert_true(decodes(out, &e));
    out[TB_BACKUP_ENTRY_BYTES - 1] = 'x';
    assert_false(decodes(out, &e));
    memset(out + 12, 'a', TB_BACKUP_ENTRY_BYTES - 12); /* no NUL at all */
    out[12] = '/';
    assert_false(decodes(out, &e));
}

static void a_head_is_known_or_refused(void **state)
{
    (void)state;
    uint8_t out[TB_BACKUP_HEAD_BYTES];
    const struct tb_backup_head head = {.lock = TB_BACKUP_PASSPHRASE, .salt = {9, 8}};
    struct tb_backup_head back;
    tb_backup_head_encode(&head, out);
    assert_int_equal(tb_backup_head_decode(out, &back), TB_OK);
    assert_int_equal(back.lock, TB_BACKUP_PASSPHRASE);
    assert_memory_equal(back.salt, head.salt, sizeof head.salt);
    for (size_t at = 0; at < sizeof out; at++) {
        if (at >= 12 && at < 32) continue; /* lock and salt */
        out[at] ^= 0x10;
        assert_int_equal(tb_backup_head_decode(out, &back), TB_BAD_FILE);
        out[at] ^= 0x10;
    }
    out[12] = TB_BACKUP_PASSPHRASE + 1;
    assert_int_equal(tb_backup_head_decode(out, &back), TB_BAD_FILE);
}

/* ---- a whole file ---- */

#define STORE_BYTES 150000u /* some blocks of 64 KiB, and a part of one */

static int file_new(const char *name)
{
    char path[SCRATCH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static void made(int fd, const struct tb_disk_key *key)
{
    static uint8_t bytes[STORE_BYTES];
    uint8_t entry[TB_BACKUP_ENTRY_BYTES];
    struct tb_backup_stream *s = NULL;
    const struct tb_backup_head head = {.lock = key != NULL ? TB_BACKUP_KEY_FILE : TB_BACKUP_CLEAR};
    const struct tb_backup_entry e = {.role = TB_BACKUP_STORE, .bytes = STORE_BYTES, .path = "/var/lib/s"};
    for (uint32_t i = 0; i < STORE_BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(tb_backup_create(fd, &head, key, &s), TB_OK);
    tb_backup_entry_encode(&e, entry);
    assert_int_equal(tb_backup_put(s, entry, sizeof entry), TB_OK);
    assert_int_equal(tb_backup_put(s, bytes, sizeof bytes), TB_OK);
    assert_int_equal(tb_backup_finish(s), TB_OK);
    tb_backup_free(s);
}

/* TB_OK: all of it is what was put. */
static enum tb_status read_back(int fd, const struct tb_disk_key *key)
{
    static uint8_t bytes[STORE_BYTES];
    struct tb_backup_stream *s = NULL;
    struct tb_backup_entry e;
    enum tb_status status = tb_backup_open(fd, key, &s);
    if (status != TB_OK) return status;
    status = tb_backup_next(s, &e);
    if (status == TB_OK && (e.role != TB_BACKUP_STORE || e.bytes != STORE_BYTES)) status = TB_BAD_FILE;
    if (status == TB_OK) status = tb_backup_get(s, bytes, STORE_BYTES);
    if (status == TB_OK) status = tb_backup_next(s, &e);
    if (status == TB_OK && e.role != TB_BACKUP_END) status = TB_BAD_FILE;
    if (status == TB_OK) status = tb_backup_end(s);
    tb_backup_free(s);
    for (uint32_t i = 0; status == TB_OK && i < STORE_BYTES; i++)
        assert_int_equal(bytes[i], (uint8_t)(i * 7 + i / 251));
    return status;
}

static void each_change_is_noticed(const struct tb_disk_key *key)
{
    const int fd = file_new("backup");
    struct stat st;
    uint8_t byte = 0;
    made(fd, key);
    assert_int_equal(read_back(fd, key), TB_OK);
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t at = TB_BACKUP_HEAD_BYTES; at < st.st_size; at += at < 2000 ? 7 : 997) {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        if (read_back(fd, key) == TB_OK) fail_msg("the byte at %lld was changed", (long long)at);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size), 1); /* a byte more */
    assert_int_equal(read_back(fd, key), TB_BAD_FILE);
    for (off_t cut = st.st_size - 1; cut >= TB_BACKUP_HEAD_BYTES; cut -= cut > 3000 ? 8191 : 13) {
        assert_int_equal(ftruncate(fd, cut), 0);
        if (read_back(fd, key) == TB_OK) fail_msg("cut at %lld", (long long)cut);
    }
    assert_int_equal(close(fd), 0);
}

static void a_changed_backup_in_clear_is_noticed(void **state)
{
    (void)state;
    each_change_is_noticed(NULL);
}

static void a_changed_backup_under_a_key_is_noticed(void **state)
{
    (void)state;
    each_change_is_noticed(&key_a);
}

/* Blocks of 64 KiB that change their places, or are of another backup under the same key. */
static void a_block_counts_at_its_own_place_alone(void **state)
{
    (void)state;
    enum { UNIT = (64 << 10) + 40, FIRST = 64 + 64 };
    static uint8_t one[UNIT], two[UNIT];
    const int fd = file_new("backup"), other = file_new("other");
    made(fd, &key_a);
    made(other, &key_a);
    assert_int_equal(pread(fd, one, UNIT, FIRST), UNIT);
    assert_int_equal(pread(fd, two, UNIT, FIRST + UNIT), UNIT);
    assert_int_equal(pwrite(fd, two, UNIT, FIRST), UNIT);
    assert_int_equal(pwrite(fd, one, UNIT, FIRST + UNIT), UNIT);
    assert_int_equal(read_back(fd, &key_a), TB_BAD_FILE);
    assert_int_equal(pwrite(fd, one, UNIT, FIRST), UNIT);
    assert_int_equal(pwrite(fd, two, UNIT, FIRST + UNIT), UNIT);
    assert_int_equal(read_back(fd, &key_a), TB_OK);
    assert_int_equal(pread(other, two, UNIT, FIRST + UNIT), UNIT);
    assert_int_equal(pwrite(fd, two, UNIT, FIRST + UNIT), UNIT);
    assert_int_equal(read_back(fd, &key_a), TB_BAD_FILE);
    assert_int_equal(read_back(other, &key_b), TB_NOT_FOUND);
    assert_int_equal(close(fd) | close(other), 0);
}

/* P7: an entry that says more bytes than the file has is refused before any is read. */
static void an_entry_is_no_larger_than_its_file(void **state)
{
    (void)state;
    uint8_t entry[TB_BACKUP_ENTRY_BYTES];
    struct tb_backup_stream *s = NULL;
    const struct tb_backup_head head = {.lock = TB_BACKUP_CLEAR};
    struct tb_backup_entry e = {.role = TB_BACKUP_STORE, .bytes = INT64_MAX, .path = "/s"};
    const int fd = file_new("backup");
    assert_int_equal(tb_backup_create(fd, &head, NULL, &s), TB_OK);
    tb_backup_entry_encode(&e, entry);
    assert_int_equal(tb_backup_put(s, entry, sizeof entry), TB_OK);
    assert_int_equal(tb_backup_finish(s), TB_OK);
    tb_backup_free(s);
    assert_int_equal(tb_backup_open(fd, NULL, &s), TB_OK);
    assert_int_equal(tb_backup_next(s, &e), TB_BAD_FILE);
    tb_backup_free(s);
    assert_int_equal(close(fd), 0);
}

/* ---- places ---- */

static struct tb_restore_places places;

static struct tb_backup_entry entry_of(enum tb_backup_role role, const char *rest)
{
    struct tb_backup_entry e = {.role = role, .bytes = 4};
    (void)snprintf(e.path, sizeof e.path, "%s%s", folder, rest);
    return e;
}

static enum tb_status looked(enum tb_backup_role role, const char *rest)
{
    bool replaces = false;
    const struct tb_backup_entry e = entry_of(role, rest);
    return tb_restore_look(&places, &e, &replaces, why);
}

static enum tb_status placed(enum tb_backup_role role, const char *rest)
{
    struct tb_restore_file f;
    const struct tb_backup_entry e = entry_of(role, rest);
    enum tb_status status = tb_restore_begin(&places, &e, &f, why);
    if (status == TB_OK && write(f.fd, "data", 4) != 4) status = TB_SITE_IO;
    if (status == TB_OK) status = tb_restore_written(&places, &f, why);
    if (status == TB_OK) status = tb_restore_rename(&f, why);
    tb_restore_close(&f);
    return status;
}

static const char *at(const char *rest)
{
    static char path[SCRATCH_BYTES + 64];
    (void)snprintf(path, sizeof path, "%s%s", folder, rest);
    return path;
}

static unsigned mode_of(const char *rest)
{
    struct stat st;
    assert_int_equal(stat(at(rest), &st), 0);
    return st.st_mode & 07777u;
}

static void files_come_with_their_modes(void **state)
{
    (void)state;
    assert_int_equal(looked(TB_BACKUP_CONFIG, "/etc/a.yaml"), TB_OK);
    assert_int_equal(access(at("/etc"), F_OK), -1); /* a look makes nothing */
    assert_int_equal(placed(TB_BACKUP_CONFIG, "/etc/a.yaml"), TB_OK);
    assert_int_equal(placed(TB_BACKUP_FILE, "/etc/a/ca.crt"), TB_OK);
    assert_int_equal(placed(TB_BACKUP_KEY, "/etc/a/gw.key"), TB_OK);
    assert_int_equal(placed(TB_BACKUP_STORE, "/lib/store"), TB_OK);
    assert_int_equal(mode_of("/etc"), 0750);
    assert_int_equal(mode_of("/etc/a.yaml"), 0640);
    assert_int_equal(mode_of("/etc/a/ca.crt"), 0644);
    assert_int_equal(mode_of("/etc/a/gw.key"), 0600);
    assert_int_equal(mode_of("/lib/store"), 0600);
    assert_int_equal(access(at("/etc/.a.yaml.restore"), F_OK), -1);
}

/* A link, a folder of all, a folder that is no folder, and what is not below. */
static void no_path_leads_elsewhere(void **state)
{
    (void)state;
    char outside[SCRATCH_BYTES];
    assert_true(scratch_folder(outside, sizeof outside, "outside"));
    assert_int_equal(symlink(outside, at("/link")), 0);
    assert_int_equal(looked(TB_BACKUP_FILE, "/link/a"), TB_BAD_FILE);
    assert_int_equal(placed(TB_BACKUP_FILE, "/link/a"), TB_BAD_FILE);
    struct tb_backup_entry e = {.role = TB_BACKUP_FILE, .bytes = 4};
    bool replaces = false;
    (void)snprintf(e.path, sizeof e.path, "%s/a", outside);
    assert_int_equal(tb_restore_look(&places, &e, &replaces, why), TB_BAD_FILE);
    assert_non_null(strstr(why, "--under"));
    (void)snprintf(e.path, sizeof e.path, "%sx/a", folder); /* its name only begins so */
    assert_int_equal(tb_restore_look(&places, &e, &replaces, why), TB_BAD_FILE);
    assert_int_equal(mkdir(at("/open"), 0700) | chmod(at("/open"), 0777), 0);
    assert_int_equal(looked(TB_BACKUP_FILE, "/open/a"), TB_PEER_DENIED);
    assert_int_equal(placed(TB_BACKUP_FILE, "/open/a"), TB_PEER_DENIED);
    assert_int_equal(placed(TB_BACKUP_FILE, "/plain"), TB_OK);
    assert_int_equal(looked(TB_BACKUP_FILE, "/plain/a"), TB_BAD_FILE);
    assert_int_equal(symlink("plain", at("/other")), 0); /* a link in the file's own place */
    assert_int_equal(looked(TB_BACKUP_FILE, "/other"), TB_CONFLICT);
    places.overwrites = true;
    assert_int_equal(placed(TB_BACKUP_FILE, "/other"), TB_OK);
    struct stat st;
    assert_int_equal(lstat(at("/other"), &st), 0);
    assert_true(S_ISREG(st.st_mode));
}

/* A file that is there stays; with --overwrite it stands beside, and a store with its log. */
static void nothing_is_overwritten_unasked(void **state)
{
    (void)state;
    assert_true(scratch_put(folder, "store", "old") && scratch_put(folder, "store-wal", "log"));
    assert_int_equal(looked(TB_BACKUP_STORE, "/store"), TB_CONFLICT);
    assert_int_equal(placed(TB_BACKUP_STORE, "/store"), TB_CONFLICT);
    assert_true(scratch_put(folder, "alone-wal", "log"));
    assert_int_equal(looked(TB_BACKUP_STORE, "/alone"), TB_CONFLICT); /* SQLite would read it in */
    assert_int_equal(looked(TB_BACKUP_FILE, "/alone"), TB_OK);
    places.overwrites = true;
    const int held = open(at("/store"), O_RDONLY);
    assert_int_equal(flock(held, LOCK_EX), 0); /* as a gateway does */
    assert_int_equal(looked(TB_BACKUP_STORE, "/store"), TB_SITE_LOCKED);
    assert_int_equal(placed(TB_BACKUP_STORE, "/store"), TB_SITE_LOCKED);
    assert_int_equal(close(held), 0);
    assert_int_equal(placed(TB_BACKUP_STORE, "/store"), TB_OK);
    assert_int_equal(access(at("/store-wal"), F_OK), -1);
    assert_int_equal(access(at("/store.before-restore"), F_OK), 0);
    assert_int_equal(access(at("/store.before-restore-wal"), F_OK), 0);
}

static bool has(const char *rest, const char *text)
{
    char read[32] = "";
    FILE *f = fopen(at(rest), "rb");
    if (f == NULL) return false;
    const size_t count = fread(read, 1, sizeof read - 1, f);
    assert_int_equal(fclose(f), 0);
    return count == strlen(text) && memcmp(read, text, count) == 0;
}

/* P3: the copy of the first --overwrite is there after the third. A log is kept with its store. */
static void a_kept_file_is_never_replaced(void **state)
{
    (void)state;
    places.overwrites = true;
    assert_true(scratch_put(folder, "store", "one") && scratch_put(folder, "store-wal", "log one"));
    assert_int_equal(placed(TB_BACKUP_STORE, "/store"), TB_OK);
    assert_true(scratch_put(folder, "store", "two"));
    assert_int_equal(placed(TB_BACKUP_STORE, "/store"), TB_OK);
    assert_true(scratch_put(folder, "store", "three") && scratch_put(folder, "store-wal", "log three"));
    assert_int_equal(placed(TB_BACKUP_STORE, "/store"), TB_OK);
    assert_true(has("/store.before-restore", "one") && has("/store.before-restore-wal", "log one"));
    assert_true(has("/store.before-restore.2", "two"));
    assert_int_equal(access(at("/store.before-restore.2-wal"), F_OK), -1);
    assert_true(has("/store.before-restore.3", "three") && has("/store.before-restore.3-wal", "log three"));
    assert_true(has("/store", "data"));
    for (uint32_t i = 4; i <= TB_RESTORE_KEPT_MAX; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "store.before-restore.%u", i);
        assert_true(scratch_put(folder, name, "more"));
    }
    assert_int_equal(placed(TB_BACKUP_STORE, "/store"), TB_CONFLICT);
    assert_true(has("/store", "data"));
}

/* A file that comes between the look and the renaming is not the backup's to take away. */
static void a_file_that_comes_meanwhile_stays(void **state)
{
    (void)state;
    struct tb_restore_file f;
    const struct tb_backup_entry e = entry_of(TB_BACKUP_FILE, "/late");
    assert_int_equal(tb_restore_begin(&places, &e, &f, why), TB_OK);
    assert_int_equal(tb_restore_written(&places, &f, why), TB_OK);
    assert_true(scratch_put(folder, "late", "came"));
    assert_int_equal(tb_restore_rename(&f, why), TB_CONFLICT);
    tb_restore_close(&f);
    assert_true(has("/late", "came"));
    assert_int_equal(access(at("/.late.restore"), F_OK), -1);
}

static void owned(const char *rest, uid_t user, gid_t group, unsigned mode)
{
    struct stat st;
    assert_int_equal(stat(at(rest), &st), 0);
    if (st.st_uid != user || st.st_gid != group || (st.st_mode & 07777u) != mode)
        fail_msg("%s: %u:%u %o", rest, (unsigned)st.st_uid, (unsigned)st.st_gid, (unsigned)st.st_mode);
}

/* Under each umask, also where a list is the first file of the folder of a store. */
static void folders_have_the_owner_of_their_use(void **state)
{
    (void)state;
    enum { GATEWAY = 4321, GROUP = 4322 };
    static const mode_t masks[] = {0, 077};
    const bool root = geteuid() == 0;
    char store[SCRATCH_BYTES + 64];
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        const mode_t before = umask(masks[i]);
        char rest[64];
        (void)snprintf(store, sizeof store, "%s/%zu/lib/east/store", folder, i);
        places.gives = root;
        places.gateway = GATEWAY, places.group = GROUP, places.store = store;
        (void)snprintf(rest, sizeof rest, "/%zu/lib/east/list", i);
        assert_int_equal(placed(TB_BACKUP_FILE, rest), TB_OK);
        (void)snprintf(rest, sizeof rest, "/%zu/etc/ca.key", i);
        assert_int_equal(placed(TB_BACKUP_AUTHORITY, rest), TB_OK);
        if (root) owned(rest, 0, 0, 0600);
        assert_int_equal(mode_of(rest), 0600);
        (void)snprintf(rest, sizeof rest, "/%zu/etc/gw.key", i);
        assert_int_equal(placed(TB_BACKUP_KEY, rest), TB_OK);
        if (root) owned(rest, GATEWAY, GROUP, 0600);
        (void)snprintf(rest, sizeof rest, "/%zu/etc", i);
        if (root) owned(rest, 0, GROUP, 0750);
        assert_int_equal(mode_of(rest), 0750);
        (void)snprintf(rest, sizeof rest, "/%zu/lib/east", i);
        if (root) owned(rest, GATEWAY, GROUP, 0750);
        assert_int_equal(mode_of(rest), 0750);
        (void)umask(before);
    }
}

/* ---- files that go in ---- */

static enum tb_status source(const char *text, size_t bytes, enum tb_backup_role role)
{
    struct stat seen;
    const char *text_why = "";
    const int fd = file_new("source");
    assert_int_equal(write(fd, text, bytes), bytes);
    const enum tb_status status = tb_backup_source_look(fd, role, &seen, &text_why);
    assert_int_equal(close(fd), 0);
    return status;
}

/* P8: also where the line lies across two of the pieces that are searched. */
static void a_private_key_goes_in_as_a_key_alone(void **state)
{
    (void)state;
    static const char line[] = "-----BEGIN EC PRIVATE KEY-----\n",
                      certificate[] = "-----BEGIN CERTIFICATE-----\n";
    static char text[140000];
    assert_int_equal(source(certificate, sizeof certificate - 1, TB_BACKUP_FILE), TB_OK);
    assert_int_equal(source(line, sizeof line - 1, TB_BACKUP_KEY), TB_OK);
    memset(text, 'a', sizeof text);
    assert_int_equal(source(text, sizeof text, TB_BACKUP_FILE), TB_OK);
    for (size_t at_byte = (64u << 10) - 40; at_byte < (64u << 10) + 4; at_byte++) {
        memset(text, 'a', sizeof text);
        memcpy(text + at_byte, line, sizeof line - 1);
        assert_int_equal(source(text, sizeof text, TB_BACKUP_FILE), TB_BAD_ARGUMENT);
    }
}

/* P1: as large as before, and with the time of its content set back. */
static void a_file_that_changes_while_it_is_read_is_noticed(void **state)
{
    (void)state;
    struct stat seen;
    const char *text_why = "";
    const int fd = file_new("source");
    assert_int_equal(write(fd, "one", 3), 3);
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(futimens(fd, old), 0);
    assert_int_equal(tb_backup_source_look(fd, TB_BACKUP_FILE, &seen, &text_why), TB_OK);
    assert_true(tb_backup_source_same(fd, &seen));
    assert_int_equal(pwrite(fd, "two", 3, 0), 3);
    assert_false(tb_backup_source_same(fd, &seen));
    assert_int_equal(close(fd), 0);
}

static int set_up(void **state)
{
    (void)state;
    places = (struct tb_restore_places){.under = {folder}, .under_count = 1};
    return scratch_folder(folder, sizeof folder, "backup") ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return scratch_remove(folder) ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_path_has_one_meaning),
        TEST(an_entry_is_possible_or_refused),
        TEST(a_head_is_known_or_refused),
        TEST(a_changed_backup_in_clear_is_noticed),
        TEST(a_changed_backup_under_a_key_is_noticed),
        TEST(a_block_counts_at_its_own_place_alone),
        TEST(an_entry_is_no_larger_than_its_file),
        TEST(files_come_with_their_modes),
        TEST(no_path_leads_elsewhere),
        TEST(nothing_is_overwritten_unasked),
        TEST(a_kept_file_is_never_replaced),
        TEST(a_file_that_comes_meanwhile_stays),
        TEST(folders_have_the_owner_of_their_use),
        TEST(a_private_key_goes_in_as_a_key_alone),
        TEST(a_file_that_changes_while_it_is_read_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

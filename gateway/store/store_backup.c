/* store_backup.c - see store_backup.h. SQLite's own backup keeps the copy true while the same
 * connection writes: a page that was copied is copied again when it changes. */
#include "gateway/store/store_backup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/system_calls.h"
#include "base/system_names.h"
#include "gateway/store/store_rekey.h"
#include "gateway/store/store_statements.h"

#define PATH_BYTES 4096
#define BESIDE     ".backup"
#define STEP_PAGES 256  /* P6: rows that wait for the thread wait for 1 MiB, not for the store */
#define BUSY_MAX   1000 /* steps that another process, such as the sqlite3 shell, may hold up */

struct tb_store_backup {
    char beside[PATH_BYTES];
    struct tb_store_side to;
    sqlite3_backup *copy; /* NULL: not begun, or finished */
    uint64_t margin;
    uint32_t busy;
    int fd, room; /* the copy; its disk is asked for room while it is written */
    bool due, over;
    enum tb_status status;
    char error[256];
};

enum tb_status tb_store_backup_new(const char *path, struct tb_store_backup **backup_out)
{
    struct tb_store_backup *b = tb_calloc(1, sizeof *b);
    if (b == NULL) return TB_SITE_NOMEM;
    b->fd = b->room = -1;
    b->margin = TB_STORE_BACKUP_MARGIN;
    if (snprintf(b->beside, sizeof b->beside, "%s" BESIDE, path) >= (int)sizeof b->beside) {
        tb_free(b);
        return TB_BAD_ARGUMENT;
    }
    *backup_out = b;
    return TB_OK;
}

void tb_store_backup_margin(struct tb_store_backup *b, uint64_t bytes)
{
    b->margin = bytes;
}

/* No name of it is left. */
static void clear_away(const struct tb_store_backup *b)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char path[PATH_BYTES + 16];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", b->beside, ends[i]);
        (void)unlink(path);
    }
}

static void end(struct tb_store_backup *b, enum tb_status status, const char *why)
{
    TB_ASSERT(!b->over);
    if (b->copy != NULL) (void)sqlite3_backup_finish(b->copy);
    b->copy = NULL;
    tb_store_side_close(&b->to);
    clear_away(b);
    if (b->room >= 0) (void)close(b->room);
    b->room = -1;
    b->over = true;
    b->status = status;
    if (why != NULL) (void)snprintf(b->error, sizeof b->error, "the store could not be copied: %.200s", why);
}

static const char *why_of(struct tb_store *s, const struct tb_store_backup *b)
{
    if (b->to.db != NULL && sqlite3_errcode(b->to.db) != SQLITE_OK) return sqlite3_errmsg(b->to.db);
    return sqlite3_errcode(s->db) != SQLITE_OK ? sqlite3_errmsg(s->db) : "no memory";
}

static uint64_t pragma_number(struct tb_store *s, const char *sql)
{
    sqlite3_stmt *st = NULL;
    uint64_t number = 0;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        number = (uint64_t)sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return number;
}

/* P3: the store's own rows need the disk, too. So `bytes` more may be written, and the margin stays
 * free. A disk that does not say how full it is holds nothing up. */
static bool has_room(struct tb_store_backup *b, uint64_t bytes)
{
    char why[128];
    struct statvfs disk;
    if (fstatvfs(b->room, &disk) != 0) return true;
    const uint64_t there = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (there >= bytes && there - bytes >= b->margin) return true;
    const uint64_t needed_mib = (bytes >> 20) + (b->margin >> 20) + 1;
    (void)snprintf(why, sizeof why, "its disk has %llu MiB, and needs %llu MiB: make room beside it",
                   (unsigned long long)(there >> 20), (unsigned long long)needed_mib);
    end(b, TB_SITE_STORE, why);
    return false;
}

/* Nobody waits for its disk: it is read as soon as it is whole, and a crash takes it away. */
static void begin(struct tb_store *s, struct tb_store_backup *b)
{
    static const char pragmas[] = "PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY";
    clear_away(b);
    const int fd = tb_sys_open(b->beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        end(b, TB_SITE_STORE, strerror(errno));
        return;
    }
    b->room = fd;
    if (!has_room(b, pragma_number(s, "PRAGMA page_count") * pragma_number(s, "PRAGMA page_size"))) return;
    if (!tb_store_side_open(&b->to, b->beside, s->key) ||
        sqlite3_exec(b->to.db, pragmas, NULL, NULL, NULL) != SQLITE_OK) {
        end(b, TB_SITE_STORE, why_of(s, b));
        return;
    }
    b->copy = sqlite3_backup_init(b->to.db, "main", s->db, "main");
    if (b->copy == NULL) end(b, TB_SITE_STORE, why_of(s, b));
}

/* P2: a gateway that starts with the copy asks its peers which runs they remember. */
static bool mark(const struct tb_store_side *to)
{
    static const char sql[] = "INSERT OR REPLACE INTO meta VALUES('file','" TB_STORE_IS_BACKUP "')";
    return sqlite3_exec(to->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* Its log is in it, or its last pages would be lost. */
static void finish(struct tb_store *s, struct tb_store_backup *b)
{
    const int rc = sqlite3_backup_finish(b->copy);
    b->copy = NULL;
    if (rc != SQLITE_OK || !mark(&b->to)) {
        end(b, TB_SITE_STORE, why_of(s, b));
        return;
    }
    tb_store_side_close(&b->to);
    if (!tb_store_has_no_log(b->beside)) {
        end(b, TB_SITE_STORE, "its log was not taken in");
        return;
    }
    b->fd = tb_sys_open(b->beside, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    end(b, b->fd >= 0 ? TB_OK : TB_SITE_STORE, b->fd >= 0 ? NULL : strerror(errno));
}

void tb_store_backup_step(struct tb_store *s, struct tb_store_backup *b)
{
    TB_ASSERT(sqlite3_get_autocommit(s->db)); /* SQLite copies nothing that is being changed */
    if (b->over) return;
    if (b->copy == NULL) {
        begin(s, b);
        return;
    }
    if (!has_room(b, 0)) return;
    const int rc = sqlite3_backup_step(b->copy, STEP_PAGES);
    if (rc == SQLITE_DONE)
        finish(s, b);
    else if ((rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED)
        b->busy++;
    else if (rc != SQLITE_OK)
        end(b, TB_SITE_STORE, sqlite3_errstr(rc));
    if (!b->over && b->busy > BUSY_MAX) end(b, TB_SITE_STORE, "another process holds it");
}

void tb_store_backup_let_go(struct tb_store_backup *b)
{
    b->due = true;
}

bool tb_store_backup_is_due(struct tb_store_backup *b)
{
    const bool due = b->due;
    b->due = false;
    return due;
}

bool tb_store_backup_is_over(const struct tb_store_backup *b)
{
    return b->over;
}

enum tb_status tb_store_backup_take(struct tb_store_backup *b, int *fd_out, char error_out[256])
{
    TB_ASSERT(b->over && (b->status != TB_OK || b->fd >= 0));
    if (b->status == TB_OK) {
        *fd_out = b->fd;
        b->fd = -1;
    } else {
        (void)snprintf(error_out, 256, "%s", b->error);
    }
    return b->status;
}

void tb_store_backup_free(struct tb_store_backup *b)
{
    if (b == NULL) return;
    if (b->copy != NULL || b->to.db != NULL) end(b, TB_SITE_STORE, "it was given up");
    if (b->fd >= 0) (void)close(b->fd);
    tb_free(b);
}

/* ---- before the tables change ---- */

static bool copy_whole(struct tb_store *s, const char *name)
{
    struct tb_store_side to = {NULL, NULL};
    bool good = tb_store_side_open(&to, name, s->key) &&
                sqlite3_exec(to.db, "PRAGMA journal_mode=MEMORY", NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_backup *copy = good ? sqlite3_backup_init(to.db, "main", s->db, "main") : NULL;
    good = copy != NULL && sqlite3_backup_step(copy, -1) == SQLITE_DONE;
    good = sqlite3_backup_finish(copy) == SQLITE_OK && good;
    tb_store_side_close(&to);
    return good && tb_store_has_no_log(name);
}

/* The first name of its row that is free. An earlier copy is of another release: it stays. */
static bool name_new(const char *part, const char *name)
{
    char path[PATH_BYTES];
    for (uint32_t number = 1; number <= TB_STORE_KEPT_MAX; number++) {
        const int chars = number == 1 ? snprintf(path, sizeof path, "%s", name)
                                      : snprintf(path, sizeof path, "%s.%u", name, number);
        if (chars >= (int)sizeof path) return false;
        if (tb_sys_rename_new(AT_FDCWD, part, path)) return tb_sys_sync_folder(path);
        if (errno != EEXIST) return false;
    }
    return false;
}

/* P3: it has its name once it is on the disk, and the name is on the disk before the tables
 * change. */
enum tb_status tb_store_keep_as(struct tb_store *s, const char *name, char error_out[256])
{
    struct tb_store_backup part = {.fd = -1, .room = -1};
    bool good = snprintf(part.beside, sizeof part.beside, "%s" BESIDE, name) < (int)sizeof part.beside;
    if (good) clear_away(&part);
    const int fd =
        good ? tb_sys_open(part.beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    good = fd >= 0 && copy_whole(s, part.beside) && tb_sys_fsync(fd) == 0 && name_new(part.beside, name);
    const int error = errno;
    if (fd >= 0) (void)close(fd);
    if (good) return TB_OK;
    clear_away(&part);
    (void)snprintf(error_out, 256, "a copy of the store as the release before left it: %.100s; %s",
                   strerror(error),
                   error == EEXIST ? "remove copies that are no longer needed" : "make room beside it");
    return TB_SITE_STORE;
}

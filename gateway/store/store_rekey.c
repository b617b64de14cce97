/* store_rekey.c - see store_rekey.h. P3: a kill at any point leaves a store that one of the keys
 * opens. */
#include "gateway/store/store_rekey.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/system_calls.h"
#include "gateway/store/store_vfs.h"

#define PATH_BYTES 4096
#define BESIDE     ".rekey"

/* An inode's number is used again, its time of birth is not. A filesystem without one says 0, and
 * then says so always. */
void tb_store_file_name(int fd, char out[TB_STORE_FILE_NAME_BYTES])
{
    struct statx x;
    out[0] = '\0';
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &x) != 0) return;
    const bool born = (x.stx_mask & STATX_BTIME) != 0;
    (void)snprintf(out, TB_STORE_FILE_NAME_BYTES, "%llx:%llx.%x", (unsigned long long)x.stx_ino,
                   born ? (unsigned long long)x.stx_btime.tv_sec : 0, born ? x.stx_btime.tv_nsec : 0);
}

void tb_store_side_close(struct tb_store_side *s)
{
    (void)sqlite3_close(s->db);
    tb_store_vfs_close(s->vfs);
    *s = (struct tb_store_side){NULL, NULL};
}

bool tb_store_side_open(struct tb_store_side *s, const char *path, const struct tb_disk_key *key)
{
    static const char pragmas[] = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA temp_store=MEMORY; "
                                  "PRAGMA synchronous=FULL;";
    if (key != NULL && tb_store_vfs_open(key, NULL, &s->vfs) != TB_OK) return false;
    const char *vfs = s->vfs != NULL ? tb_store_vfs_name(s->vfs) : NULL;
    return sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, vfs) == SQLITE_OK &&
           sqlite3_exec(s->db, pragmas, NULL, NULL, NULL) == SQLITE_OK;
}

/* A start that ended before its first page was written leaves nothing to copy. */
static bool count_pages(const struct tb_store_side *from, int *count_out)
{
    sqlite3_stmt *st = NULL;
    const bool good = sqlite3_prepare_v2(from->db, "PRAGMA page_count", -1, &st, NULL) == SQLITE_OK &&
                      sqlite3_step(st) == SQLITE_ROW;
    if (good) *count_out = sqlite3_column_int(st, 0);
    (void)sqlite3_finalize(st);
    return good;
}

static bool copy(const struct tb_store_side *from, const struct tb_store_side *to)
{
    if (sqlite3_exec(to->db, "PRAGMA journal_mode=MEMORY", NULL, NULL, NULL) != SQLITE_OK) return false;
    sqlite3_backup *backup = sqlite3_backup_init(to->db, "main", from->db, "main");
    if (backup == NULL) return false;
    const int rc = sqlite3_backup_step(backup, -1);
    return sqlite3_backup_finish(backup) == SQLITE_OK && rc == SQLITE_DONE;
}

/* P3: a store that was put back from a copy stays one; any other is the process's own still. */
static bool rename_inside(const struct tb_store_side *to, const char *was, const char *is)
{
    sqlite3_stmt *st = NULL;
    const bool bound = sqlite3_prepare_v2(to->db, "UPDATE meta SET value=?1 WHERE name='file' AND value=?2",
                                          -1, &st, NULL) == SQLITE_OK &&
                       sqlite3_bind_text(st, 1, is, -1, SQLITE_TRANSIENT) == SQLITE_OK &&
                       sqlite3_bind_text(st, 2, was, -1, SQLITE_TRANSIENT) == SQLITE_OK;
    const bool done = bound && sqlite3_step(st) == SQLITE_DONE;
    (void)sqlite3_finalize(st);
    return done;
}

static const char *words(const struct tb_store_side *from, const struct tb_store_side *to)
{
    if (to->db != NULL && sqlite3_errcode(to->db) != SQLITE_OK) return sqlite3_errmsg(to->db);
    if (from->db != NULL && sqlite3_errcode(from->db) != SQLITE_OK) return sqlite3_errmsg(from->db);
    return "no memory";
}

static bool sync_at(const char *path, int flags)
{
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | flags, 0);
    const bool good = fd >= 0 && tb_sys_fsync(fd) == 0;
    const int error = errno;
    if (fd >= 0) (void)close(fd);
    errno = error;
    return good;
}

/* Its log is in it now, or its pages would be lost with the log. */
bool tb_store_has_no_log(const char *path)
{
    char log[PATH_BYTES];
    struct stat st;
    errno = EBUSY;
    if (snprintf(log, sizeof log, "%s-wal", path) >= (int)sizeof log) return false;
    return stat(log, &st) != 0 || st.st_size == 0;
}

static bool put_in_place(const char *path, const char *beside)
{
    char folder[PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s", path);
    return tb_store_has_no_log(path) && tb_store_has_no_log(beside) && sync_at(beside, 0) &&
           tb_sys_rename(beside, path) == 0 && sync_at(dirname(folder), O_DIRECTORY);
}

static bool write_beside(const struct tb_store_rekey *r, const char *beside, int fd, char error_out[256])
{
    struct tb_store_side from = {NULL, NULL}, to = {NULL, NULL};
    char was[TB_STORE_FILE_NAME_BYTES], is[TB_STORE_FILE_NAME_BYTES];
    tb_store_file_name(r->fd, was);
    tb_store_file_name(fd, is);
    int pages = 0;
    const bool good = tb_store_side_open(&from, r->path, r->from) && tb_store_side_open(&to, beside, r->to) &&
                      count_pages(&from, &pages) &&
                      (pages == 0 || (copy(&from, &to) && rename_inside(&to, was, is)));
    if (!good) (void)snprintf(error_out, 256, "writing it anew under disk.key: %.150s", words(&from, &to));
    tb_store_side_close(&to);
    tb_store_side_close(&from);
    return good;
}

enum tb_status tb_store_rekey(const struct tb_store_rekey *r, char error_out[256])
{
    char beside[PATH_BYTES];
    tb_store_rekey_clear(r->path);
    TB_ASSERT(r->fd >= 0);
    int fd = -1;
    if (snprintf(beside, sizeof beside, "%s" BESIDE, r->path) < (int)sizeof beside)
        fd = tb_sys_open(beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool good = fd >= 0;
    if (!good) (void)snprintf(error_out, 256, "writing it anew under disk.key: %.150s", strerror(errno));
    good = good && write_beside(r, beside, fd, error_out);
    if (good && !put_in_place(r->path, beside)) {
        (void)snprintf(error_out, 256, "writing it anew under disk.key: %.150s", strerror(errno));
        good = false;
    }
    if (fd >= 0) (void)close(fd);
    if (!good) tb_store_rekey_clear(r->path);
    return good ? TB_OK : TB_SITE_STORE;
}

void tb_store_rekey_clear(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-journal"};
    char beside[PATH_BYTES];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (snprintf(beside, sizeof beside, "%s" BESIDE "%s", path, ends[i]) < (int)sizeof beside)
            (void)unlink(beside);
}

/* restore_place.c - see restore_place.h. P8: each folder is opened in the one before, and no link
 * is followed. */
#include "gateway/cli/backup/restore_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/system_calls.h"
#include "base/system_names.h"

#define BEFORE     ".before-restore"
#define NAME_CHARS (256 - sizeof BEFORE ".99-wal") /* what stands there is kept under a longer one */

struct walk {
    const struct tb_restore_places *places;
    const struct tb_backup_entry *entry;
    bool makes; /* folders that are not there */
    int folder; /* -1: it is not there, and is not made */
    char name[256];
    char *why;
};

static enum tb_status refuse(char *why, enum tb_status status, const char *path, const char *text)
{
    (void)snprintf(why, TB_RESTORE_WHY_BYTES, "%.300s: %.180s", path, text);
    return status;
}

static enum tb_status failed(char *why, const char *path)
{
    return refuse(why, TB_SITE_IO, path, strerror(errno));
}

/* ---- folders ---- */

/* The rest of the path behind the folder that holds it; NULL: none does. */
static const char *behind(const struct tb_restore_places *p, const char *path, const char **under_out)
{
    for (uint32_t i = 0; i < p->under_count; i++) {
        const size_t chars = strlen(p->under[i]);
        if (strncmp(path, p->under[i], chars) != 0 || path[chars] != '/') continue;
        *under_out = p->under[i];
        return path + chars + 1;
    }
    return NULL;
}

/* Root, this process's user and the gateway are believed, and nobody else writes in it. */
static enum tb_status folder_look(const struct walk *w, const char *name)
{
    struct stat st;
    if (fstat(w->folder, &st) != 0) return failed(w->why, w->entry->path);
    const bool ours =
        st.st_uid == 0 || st.st_uid == geteuid() || (w->places->gives && st.st_uid == w->places->gateway);
    if (ours && (st.st_mode & 022) == 0) return TB_OK;
    char text[128];
    (void)snprintf(text, sizeof text, "others may write in the folder %.60s: chmod go-w, chown", name);
    return refuse(w->why, TB_PEER_DENIED, w->entry->path, text);
}

/* Whether the store of the backup lies below the folder that is the path's first `chars`. */
static bool above_store(const struct walk *w, size_t chars)
{
    const char *store = w->places->store;
    return store != NULL && strncmp(store, w->entry->path, chars) == 0 && store[chars] == '/';
}

/* The gateway makes files beside its store; all other folders are root's. The umask changes
 * nothing. */
static enum tb_status folder_give(const struct walk *w, int fd, size_t chars)
{
    const struct tb_restore_places *p = w->places;
    const uid_t owner = above_store(w, chars) ? p->gateway : 0;
    const bool good = (!p->gives || fchown(fd, owner, p->group) == 0) && fchmod(fd, 0750) == 0 &&
                      tb_sys_fsync(w->folder) == 0;
    return good ? TB_OK : failed(w->why, w->entry->path);
}

/* `chars` of the path lead to it. */
static enum tb_status folder_enter(struct walk *w, const char *name, size_t chars)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(w->folder, name, flags);
    bool makes = false;
    if (fd < 0 && errno == ENOENT && w->makes) {
        makes = true;
        if (mkdirat(w->folder, name, 0700) != 0) return failed(w->why, w->entry->path);
        fd = openat(w->folder, name, flags);
    }
    if (fd < 0 && errno != ENOENT)
        return refuse(w->why, TB_BAD_FILE, w->entry->path,
                      errno == ELOOP || errno == ENOTDIR ? "a part of its path is a link, or no folder"
                                                         : strerror(errno));
    const enum tb_status status = makes && fd >= 0 ? folder_give(w, fd, chars) : TB_OK;
    (void)close(w->folder);
    w->folder = fd;
    if (status != TB_OK) return status;
    return fd >= 0 ? folder_look(w, name) : TB_OK;
}

/* To the folder of the file. The folder of the operator is followed as it is. */
static enum tb_status walk_to(struct walk *w)
{
    const char *under = NULL, *rest = behind(w->places, w->entry->path, &under);
    TB_ASSERT(tb_backup_path_good(w->entry->path));
    if (rest == NULL)
        return refuse(w->why, TB_BAD_FILE, w->entry->path,
                      "is not below a folder into which this restores: look at it, and then say --under DIR");
    w->folder = tb_sys_open(under, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (w->folder < 0) return failed(w->why, under);
    enum tb_status status = folder_look(w, under);
    for (const char *end; status == TB_OK && w->folder >= 0 && (end = strchr(rest, '/')) != NULL;
         rest = end + 1) {
        char part[256];
        if (end - rest >= (ptrdiff_t)sizeof part)
            return refuse(w->why, TB_BAD_FILE, w->entry->path, strerror(ENAMETOOLONG));
        (void)snprintf(part, sizeof part, "%.*s", (int)(end - rest), rest);
        status = folder_enter(w, part, (size_t)(end - w->entry->path));
    }
    if (status != TB_OK || w->folder < 0) return status;
    if (snprintf(w->name, NAME_CHARS, "%s", rest) >= (int)NAME_CHARS)
        return refuse(w->why, TB_BAD_FILE, w->entry->path, strerror(ENAMETOOLONG));
    return TB_OK;
}

/* ---- what stands there ---- */

static bool is_there(int folder, const char *name, const char *end)
{
    char path[320];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s%s", name, end);
    return fstatat(folder, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A log without its store would be read into the one that comes: it counts as the store. */
static bool stands_there(const struct walk *w)
{
    if (w->folder < 0) return false;
    return is_there(w->folder, w->name, "") ||
           (w->entry->role == TB_BACKUP_STORE && is_there(w->folder, w->name, "-wal"));
}

/* No gateway runs with the store that is replaced, from here until the lock is closed. */
static enum tb_status store_lock(const struct walk *w, int *lock_out)
{
    if (w->entry->role != TB_BACKUP_STORE || !is_there(w->folder, w->name, "")) return TB_OK;
    const int fd = openat(w->folder, w->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return failed(w->why, w->entry->path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        return refuse(w->why, TB_SITE_LOCKED, w->entry->path, "a gateway runs with it: stop that first");
    }
    *lock_out = fd;
    return TB_OK;
}

static enum tb_status look(struct walk *w, bool *replaces_out, int *lock_out)
{
    const enum tb_status status = walk_to(w);
    if (status != TB_OK) return status;
    *replaces_out = stands_there(w);
    if (!*replaces_out || w->places->looks) return TB_OK;
    if (!w->places->overwrites)
        return refuse(w->why, TB_CONFLICT, w->entry->path,
                      "is there already; --overwrite keeps it as NAME" BEFORE);
    return store_lock(w, lock_out);
}

enum tb_status tb_restore_look(const struct tb_restore_places *places, const struct tb_backup_entry *entry,
                               bool *replaces_out, char why_out[TB_RESTORE_WHY_BYTES])
{
    struct walk w = {.places = places, .entry = entry, .folder = -1, .why = why_out};
    int lock = -1;
    const enum tb_status status = look(&w, replaces_out, &lock);
    if (lock >= 0) (void)close(lock);
    if (w.folder >= 0) (void)close(w.folder);
    return status;
}

/* ---- writing ---- */

enum tb_status tb_restore_begin(const struct tb_restore_places *places, const struct tb_backup_entry *entry,
                                struct tb_restore_file *f, char why_out[TB_RESTORE_WHY_BYTES])
{
    struct walk w = {.places = places, .entry = entry, .makes = true, .folder = -1, .why = why_out};
    *f = (struct tb_restore_file){.folder = -1, .fd = -1, .lock = -1, .role = entry->role};
    const enum tb_status status = look(&w, &f->replaces, &f->lock);
    f->folder = w.folder;
    if (status != TB_OK) return status;
    (void)snprintf(f->name, sizeof f->name, "%s", w.name);
    (void)snprintf(f->temporary, sizeof f->temporary, ".%s.restore", w.name);
    (void)unlinkat(f->folder, f->temporary, 0); /* of a restore that was killed */
    f->fd = openat(f->folder, f->temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return f->fd >= 0 ? TB_OK : failed(why_out, entry->path);
}

/* Nobody but the gateway reads a key or the store, and nobody but root writes the rest. */
enum tb_status tb_restore_written(const struct tb_restore_places *p, struct tb_restore_file *f,
                                  char why_out[TB_RESTORE_WHY_BYTES])
{
    static const mode_t modes[] = {
        [TB_BACKUP_CONFIG] = 0640, [TB_BACKUP_FILE] = 0644,      [TB_BACKUP_KEY] = 0600,
        [TB_BACKUP_STORE] = 0600,  [TB_BACKUP_AUTHORITY] = 0600,
    };
    const bool secret = f->role == TB_BACKUP_KEY || f->role == TB_BACKUP_STORE;
    const gid_t group = f->role == TB_BACKUP_AUTHORITY ? 0 : p->group;
    TB_ASSERT(f->fd >= 0 && f->role != TB_BACKUP_END);
    if (p->gives && fchown(f->fd, secret ? p->gateway : 0, group) != 0) return failed(why_out, f->name);
    if (fchmod(f->fd, modes[f->role]) != 0 || tb_sys_fsync(f->fd) != 0) return failed(why_out, f->name);
    return TB_OK;
}

/* "store.before-restore.2", and with the end of a log "store.before-restore.2-wal". */
static void before_name(const struct tb_restore_file *f, uint32_t number, const char *end, char out[300])
{
    char text[16] = "";
    if (number > 1) (void)snprintf(text, sizeof text, ".%u", number);
    (void)snprintf(out, 300, "%s" BEFORE "%s%s", f->name, text, end);
}

/* Not one of both names is there: the store and its log are kept under one number. */
static uint32_t before_free(const struct tb_restore_file *f)
{
    char name[300];
    for (uint32_t number = 1; number <= TB_RESTORE_KEPT_MAX; number++) {
        before_name(f, number, "", name);
        if (!is_there(f->folder, name, "") && !is_there(f->folder, name, "-wal")) return number;
    }
    errno = EEXIST;
    return 0;
}

static bool keep_before(const struct tb_restore_file *f, uint32_t number, const char *end)
{
    char from[300], to[300];
    if (!is_there(f->folder, f->name, end)) return true;
    (void)snprintf(from, sizeof from, "%s%s", f->name, end);
    before_name(f, number, end, to);
    return tb_sys_rename_new(f->folder, from, to);
}

/* A store goes with its log: together they are what stood there. Without --overwrite a file that
 * came meanwhile stays. */
enum tb_status tb_restore_rename(struct tb_restore_file *f, char why_out[TB_RESTORE_WHY_BYTES])
{
    char other[300];
    TB_ASSERT(f->fd >= 0 && !f->placed);
    const uint32_t number = f->replaces ? before_free(f) : 0;
    bool good = !f->replaces || (number > 0 && keep_before(f, number, ""));
    if (good && f->replaces && f->role == TB_BACKUP_STORE) {
        good = keep_before(f, number, "-wal");
        (void)snprintf(other, sizeof other, "%s-shm", f->name);
        (void)unlinkat(f->folder, other, 0);
    }
    f->placed = good && tb_sys_rename_new(f->folder, f->temporary, f->name);
    if (f->placed && tb_sys_fsync(f->folder) == 0) return TB_OK;
    if (errno != EEXIST) return failed(why_out, f->name);
    return refuse(why_out, TB_CONFLICT, f->name,
                  f->replaces ? "remove some of its NAME" BEFORE " beside it"
                              : "it came meanwhile, and stays");
}

void tb_restore_close(struct tb_restore_file *f)
{
    if (f->fd >= 0 && !f->placed) (void)unlinkat(f->folder, f->temporary, 0);
    if (f->fd >= 0) (void)close(f->fd);
    if (f->lock >= 0) (void)close(f->lock);
    if (f->folder >= 0) (void)close(f->folder);
    f->fd = f->lock = f->folder = -1;
}

/* version_folder.c - see version_folder.h. */
#include "gateway/cli/versions/version_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/blob_name.h"
#include "base/system_calls.h"
#include "gateway/cli/path_status.h"
#include "gateway/cli/versions/unbundle.h"

#define LOCK_NAME        ".tombolo-lock"
#define NEW_PREFIX       ".tombolo-new-"
#define OLD_PREFIX       ".tombolo-old-"
#define LINK_NAME        ".tombolo-latest"
#define NAME_MAX_BYTES   255
#define MARKER_BYTES_MAX (64u << 20)                /* a line for each of the version's files */
#define DEPTH_MAX        (TB_BLOB_NAME_MAX / 2 + 2) /* "a/a/a": no file of a version stands deeper */

static enum tb_status failed(struct tb_folders *f, const char *name, const char *what)
{
    const int why = errno;
    (void)tb_bundle_refuse(&f->error, TB_SITE_IO, "%.300s/%.150s: %s: %s", f->path, name, what,
                           strerror(why));
    f->error.os_error = why;
    return TB_SITE_IO;
}

bool tb_folders_full(const struct tb_folders *f)
{
    return f->error.os_error == ENOSPC || f->error.os_error == EDQUOT;
}

/* ---- names ---- */

void tb_folder_name(uint64_t run, uint64_t number, char name_out[TB_FOLDER_NAME_BYTES])
{
    const int used = snprintf(name_out, TB_FOLDER_NAME_BYTES, "%06" PRIu64 "-%019" PRIu64, run, number);
    TB_ASSERT(used > 0 && used < TB_FOLDER_NAME_BYTES);
}

/* Exactly what tb_folder_name makes of some version. */
static bool is_folder_name(const char *name)
{
    char again[TB_FOLDER_NAME_BYTES];
    char *end = NULL;
    if (name[0] < '0' || name[0] > '9') return false;
    const uint64_t run = strtoull(name, &end, 10);
    if (end[0] != '-' || end[1] < '0' || end[1] > '9') return false;
    const uint64_t number = strtoull(end + 1, &end, 10);
    tb_folder_name(run, number, again);
    return *end == '\0' && strcmp(again, name) == 0;
}

static bool path_of(const struct tb_folders *f, const char *prefix, const char *name,
                    char out[TB_FOLDER_PATH_BYTES])
{
    return snprintf(out, TB_FOLDER_PATH_BYTES, "%s/%s%s", f->path, prefix, name) < TB_FOLDER_PATH_BYTES;
}

/* ---- removing ---- */

/* The mount that DIR stands on: a removal touches no other. */
struct removal {
    dev_t device;
    int depth;
};

static bool remove_entry(int parent, const char *name, const struct removal *r);

static bool remove_entries(DIR *folder, const struct removal *r)
{
    bool gone = true;
    const struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        gone = remove_entry(dirfd(folder), entry->d_name, r) && gone;
    }
    return gone;
}

/* No link is followed, and no other mount is entered. */
static bool remove_entry(int parent, const char *name, const struct removal *r)
{
    const struct removal below = {r->device, r->depth + 1};
    TB_ASSERT(r->depth >= 0 && strchr(name, '/') == NULL && strcmp(name, "..") != 0);
    struct stat st;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
    if (!S_ISDIR(st.st_mode)) return unlinkat(parent, name, 0) == 0;
    if (st.st_dev != r->device || r->depth > DEPTH_MAX) return false;
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL) {
        if (fd >= 0) (void)close(fd);
        return false;
    }
    const bool emptied = remove_entries(folder, &below);
    (void)closedir(folder); /* and fd */
    return emptied && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/* Whether a folder of that name was never in sight, or is not any more. */
static bool is_temporary(const char *name)
{
    return strncmp(name, NEW_PREFIX, strlen(NEW_PREFIX)) == 0 ||
           strncmp(name, OLD_PREFIX, strlen(OLD_PREFIX)) == 0;
}

static bool remove_folder(const struct tb_folders *f, const char *name)
{
    TB_ASSERT(is_temporary(name)); /* no version's folder, whatever a caller means */
    struct stat root;
    if (fstat(f->fd, &root) != 0) return false;
    const struct removal r = {.device = root.st_dev};
    return remove_entry(f->fd, name, &r);
}

/* Ours: a temporary name around the name of a version, on a folder that this user made. */
static bool is_leftover(const struct tb_folders *f, const char *name)
{
    struct stat st;
    const bool new_one = strncmp(name, NEW_PREFIX, strlen(NEW_PREFIX)) == 0;
    const bool old_one = strncmp(name, OLD_PREFIX, strlen(OLD_PREFIX)) == 0;
    if (!new_one && !old_one) return false;
    if (!is_folder_name(name + (new_one ? strlen(NEW_PREFIX) : strlen(OLD_PREFIX)))) return false;
    return fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid();
}

static DIR *read_root(const struct tb_folders *f)
{
    const int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *root = fd < 0 ? NULL : fdopendir(fd);
    if (root == NULL && fd >= 0) (void)close(fd);
    return root;
}

/* ---- markers ---- */

static bool take_text(const json_t *marker, const char *key, char *out, size_t cap)
{
    const char *text = json_string_value(json_object_get(marker, key));
    return text != NULL && snprintf(out, cap, "%s", text) < (int)cap;
}

static bool take_number(const json_t *marker, const char *key, uint64_t *out)
{
    const json_t *number = json_object_get(marker, key);
    *out = (uint64_t)json_integer_value(number);
    return json_is_integer(number) && json_integer_value(number) >= 0;
}

/* NULL: there is none, or none that can be read. *there_out: something has that name. */
static json_t *load_marker(const struct tb_folders *f, const char *name, const char *file, bool *there_out)
{
    char path[TB_FOLDER_PATH_BYTES + NAME_MAX_BYTES + sizeof TB_BUNDLE_WITHDRAWN + 2];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s/%s", f->path, name, file);
    *there_out = lstat(path, &st) == 0;
    if (!*there_out || !S_ISREG(st.st_mode) || st.st_size > (off_t)MARKER_BYTES_MAX) return NULL;
    return json_load_file(path, 0, NULL);
}

/* Of a version whose folder has that name. */
static bool read_marker(const json_t *marker, const char *name, struct tb_folder_marker *out)
{
    char own[TB_FOLDER_NAME_BYTES];
    memset(out, 0, sizeof *out);
    if (!take_text(marker, "model", out->model, sizeof out->model) ||
        !take_text(marker, "uid", out->uid, sizeof out->uid) || strlen(out->uid) != TB_HEX_CHARS - 1 ||
        !take_number(marker, "run", &out->run) || !take_number(marker, "number", &out->number))
        return false;
    tb_folder_name(out->run, out->number, own);
    return strcmp(own, name) == 0;
}

enum tb_folder_state tb_folder_look(const struct tb_folders *f, const char *name,
                                    struct tb_folder_marker *marker_out)
{
    struct stat st;
    bool stable = false;
    bool withdrawn = false;
    if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) return TB_FOLDER_ABSENT;
    if (!S_ISDIR(st.st_mode)) return TB_FOLDER_FOREIGN;
    json_t *marker = load_marker(f, name, TB_BUNDLE_WITHDRAWN, &withdrawn);
    if (!withdrawn) marker = load_marker(f, name, TB_BUNDLE_MARKER, &stable);
    const bool good = marker != NULL && read_marker(marker, name, marker_out);
    json_decref(marker);
    if (!good) return TB_FOLDER_FOREIGN;
    return withdrawn ? TB_FOLDER_WITHDRAWN : TB_FOLDER_STABLE;
}

/* ---- what killed runs left ---- */

/* A kill between the two renames of a withdrawal. */
static void end_withdrawal(const struct tb_folders *f, const char *name)
{
    TB_ASSERT(is_folder_name(name));
    bool there = false;
    json_t *marker = load_marker(f, name, TB_BUNDLE_MARKER, &there);
    const bool withdrawn = json_object_get(marker, "withdrawn") != NULL;
    json_decref(marker);
    if (!withdrawn) return;
    const int folder = openat(f->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return;
    if (renameat(folder, TB_BUNDLE_MARKER, folder, TB_BUNDLE_WITHDRAWN) == 0) (void)tb_sys_fsync(folder);
    (void)close(folder);
}

/* Best effort: what cannot be removed takes room, and harms nobody. */
static void remove_leftovers(const struct tb_folders *f)
{
    DIR *root = read_root(f);
    const struct dirent *entry = NULL;
    if (root == NULL) return;
    while ((entry = readdir(root)) != NULL) {
        if (is_leftover(f, entry->d_name)) (void)remove_folder(f, entry->d_name);
        if (is_folder_name(entry->d_name)) end_withdrawal(f, entry->d_name);
    }
    (void)closedir(root);
    (void)unlinkat(f->fd, LINK_NAME, 0);
}

/* ---- DIR ---- */

static enum tb_status unopened(struct tb_folders *f, const char *path, int error)
{
    (void)tb_bundle_refuse(&f->error, tb_path_status(error), "%.400s: %s", path, strerror(error));
    f->error.os_error = error;
    return tb_path_status(error);
}

static enum tb_status take_lock(struct tb_folders *f, const char *path)
{
    char lock[TB_FOLDER_PATH_BYTES];
    if (snprintf(lock, sizeof lock, "%s/%s", path, LOCK_NAME) >= (int)sizeof lock)
        return tb_bundle_refuse(&f->error, TB_BAD_ARGUMENT, "%.400s is too long", path);
    f->lock = tb_sys_open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (f->lock < 0) return unopened(f, lock, errno);
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) return TB_OK;
    (void)close(f->lock);
    return tb_bundle_refuse(&f->error, TB_SITE_LOCKED, "another subscribe writes to %.400s", path);
}

enum tb_status tb_folders_open(struct tb_folders *f, const char *path)
{
    memset(f, 0, sizeof *f);
    if (mkdir(path, 0755) != 0 && errno != EEXIST) return unopened(f, path, errno);
    enum tb_status s = take_lock(f, path);
    if (s != TB_OK) return s;
    char whole[PATH_MAX];
    if (realpath(path, whole) == NULL)
        s = unopened(f, path, errno);
    else if (snprintf(f->path, sizeof f->path, "%s", whole) + NAME_MAX_BYTES >= (int)sizeof f->path)
        s = tb_bundle_refuse(&f->error, TB_BAD_ARGUMENT, "%.400s is too long", path);
    if (s != TB_OK) goto undo_lock;
    f->fd = tb_sys_open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (f->fd < 0) {
        s = unopened(f, path, errno);
        goto undo_lock;
    }
    remove_leftovers(f);
    return TB_OK;

undo_lock:
    (void)close(f->lock);
    return s;
}

void tb_folders_close(struct tb_folders *f)
{
    TB_ASSERT(f->fd >= 0 && f->lock >= 0);
    (void)close(f->fd);
    (void)close(f->lock);
}

/* ---- a version comes ---- */

enum tb_status tb_folder_begin(struct tb_folders *f, const char *name, char path_out[TB_FOLDER_PATH_BYTES])
{
    char temporary[TB_FOLDER_NAME_BYTES + 16];
    TB_ASSERT(is_folder_name(name));
    (void)snprintf(temporary, sizeof temporary, NEW_PREFIX "%s", name);
    if (!path_of(f, NEW_PREFIX, name, path_out))
        return tb_bundle_refuse(&f->error, TB_BAD_ARGUMENT, "%.400s is too long", f->path);
    errno = EEXIST;
    if (!remove_folder(f, temporary)) return failed(f, temporary, "cannot be removed");
    if (mkdirat(f->fd, temporary, 0755) != 0) return failed(f, temporary, "cannot be made");
    return TB_OK;
}

enum tb_status tb_folder_place(struct tb_folders *f, const char *name)
{
    TB_ASSERT(is_folder_name(name));
    char from[TB_FOLDER_PATH_BYTES];
    char to[TB_FOLDER_PATH_BYTES];
    struct stat st;
    if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return tb_bundle_refuse(&f->error, TB_CONFLICT, "%.300s/%s: there is a folder of that name", f->path,
                                name);
    if (!path_of(f, NEW_PREFIX, name, from) || !path_of(f, "", name, to)) return TB_BAD_ARGUMENT;
    if (tb_sys_rename(from, to) != 0) return failed(f, name, "cannot be put in place");
    if (tb_sys_fsync(f->fd) != 0) return failed(f, "", "cannot be synced");
    return TB_OK;
}

void tb_folder_discard(struct tb_folders *f, const char *name)
{
    TB_ASSERT(is_folder_name(name));
    char temporary[TB_FOLDER_NAME_BYTES + 16];
    (void)snprintf(temporary, sizeof temporary, NEW_PREFIX "%s", name);
    (void)remove_folder(f, temporary);
}

/* ---- withdrawn ---- */

static enum tb_status write_text(struct tb_folders *f, int folder, const char *name, const char *text)
{
    (void)unlinkat(folder, TB_UNBUNDLE_PART, 0);
    const int fd =
        openat(folder, TB_UNBUNDLE_PART, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return failed(f, name, "its marker cannot be made");
    const size_t bytes = strlen(text);
    size_t at = 0;
    ssize_t wrote = 1;
    while (at < bytes && wrote > 0) {
        wrote = tb_sys_pwrite(fd, text + at, bytes - at, (off_t)at);
        if (wrote < 0 && errno == EINTR)
            wrote = 1;
        else if (wrote > 0)
            at += (size_t)wrote;
    }
    enum tb_status s = at == bytes ? TB_OK : failed(f, name, "its marker cannot be written");
    if (s == TB_OK && tb_sys_fsync(fd) != 0) s = failed(f, name, "its marker cannot be synced");
    (void)close(fd);
    if (s != TB_OK) (void)unlinkat(folder, TB_UNBUNDLE_PART, 0);
    return s;
}

static char *withdrawn_text(const struct tb_folders *f, const char *name, const char *why)
{
    bool there = false;
    json_t *marker = load_marker(f, name, TB_BUNDLE_MARKER, &there);
    char *text = NULL;
    if (marker != NULL && json_object_set_new(marker, "withdrawn", json_string(why)) == 0)
        text = json_dumps(marker, JSON_INDENT(1));
    json_decref(marker);
    return text;
}

static enum tb_status change_marker(struct tb_folders *f, int folder, const char *name, const char *text)
{
    enum tb_status s = write_text(f, folder, name, text);
    if (s != TB_OK) return s;
    if (renameat(folder, TB_UNBUNDLE_PART, folder, TB_BUNDLE_MARKER) != 0 ||
        renameat(folder, TB_BUNDLE_MARKER, folder, TB_BUNDLE_WITHDRAWN) != 0)
        return failed(f, name, "its marker cannot be renamed");
    if (tb_sys_fsync(folder) != 0) return failed(f, name, "cannot be synced");
    return TB_OK;
}

enum tb_status tb_folder_withdraw(struct tb_folders *f, const char *name, const char *why)
{
    TB_ASSERT(is_folder_name(name));
    struct tb_folder_marker marker;
    const enum tb_folder_state state = tb_folder_look(f, name, &marker);
    if (state == TB_FOLDER_WITHDRAWN) return TB_DONE_BEFORE;
    if (state != TB_FOLDER_STABLE) {
        errno = ENOENT;
        return failed(f, name, "has no marker");
    }
    char *text = withdrawn_text(f, name, why);
    if (text == NULL) return tb_bundle_no_memory(&f->error);
    const int folder = openat(f->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    enum tb_status s = TB_OK;
    if (folder < 0)
        s = failed(f, name, "cannot be opened");
    else
        s = change_marker(f, folder, name, text);
    if (folder >= 0) (void)close(folder);
    free(text);
    return s;
}

/* ---- latest ---- */

static enum tb_status switch_link(struct tb_folders *f, const char *name)
{
    char from[TB_FOLDER_PATH_BYTES];
    char to[TB_FOLDER_PATH_BYTES];
    if (!path_of(f, "", LINK_NAME, from) || !path_of(f, "", TB_FOLDER_LATEST, to)) return TB_BAD_ARGUMENT;
    (void)unlinkat(f->fd, LINK_NAME, 0);
    if (symlinkat(name, f->fd, LINK_NAME) != 0) return failed(f, LINK_NAME, "cannot be made");
    if (tb_sys_rename(from, to) == 0) return TB_OK;
    const enum tb_status s = failed(f, TB_FOLDER_LATEST, "cannot be switched");
    (void)unlinkat(f->fd, LINK_NAME, 0);
    return s;
}

enum tb_status tb_folder_latest(struct tb_folders *f, const char *name)
{
    TB_ASSERT(name == NULL || is_folder_name(name));
    struct stat st;
    const bool there = fstatat(f->fd, TB_FOLDER_LATEST, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !S_ISLNK(st.st_mode))
        return tb_bundle_refuse(&f->error, TB_CONFLICT,
                                "%.300s/" TB_FOLDER_LATEST " is no symbolic link: move it away", f->path);
    if (name == NULL && !there) return TB_OK;
    enum tb_status s = TB_OK;
    if (name != NULL)
        s = switch_link(f, name);
    else if (unlinkat(f->fd, TB_FOLDER_LATEST, 0) != 0)
        s = failed(f, TB_FOLDER_LATEST, "cannot be removed");
    if (s == TB_OK && tb_sys_fsync(f->fd) != 0) s = failed(f, "", "cannot be synced");
    return s;
}

bool tb_folder_is_latest(const struct tb_folders *f, const char *name)
{
    char to[TB_FOLDER_PATH_BYTES];
    const ssize_t bytes = readlinkat(f->fd, TB_FOLDER_LATEST, to, sizeof to - 1);
    if (bytes < 0) return false;
    to[bytes] = '\0';
    struct stat linked;
    struct stat own;
    if (strcmp(to, name) == 0) return true;
    /* A link that somebody else wrote in other words. */
    return fstatat(f->fd, TB_FOLDER_LATEST, &linked, 0) == 0 &&
           fstatat(f->fd, name, &own, AT_SYMLINK_NOFOLLOW) == 0 && linked.st_ino == own.st_ino &&
           linked.st_dev == own.st_dev;
}

/* ---- all of them ---- */

static int newest_first(const void *left, const void *right)
{
    const struct tb_folder_marker *a = &((const struct tb_folder_entry *)left)->marker;
    const struct tb_folder_marker *b = &((const struct tb_folder_entry *)right)->marker;
    if (a->run != b->run) return a->run < b->run ? 1 : -1;
    return a->number < b->number ? 1 : a->number > b->number ? -1 : 0;
}

static bool take_entry(const struct tb_folders *f, const char *name, const char *model,
                       struct tb_folder_entry *out)
{
    if (!is_folder_name(name)) return false;
    const enum tb_folder_state state = tb_folder_look(f, name, &out->marker);
    out->withdrawn = state == TB_FOLDER_WITHDRAWN;
    if (state != TB_FOLDER_STABLE && state != TB_FOLDER_WITHDRAWN) return false;
    tb_folder_name(out->marker.run, out->marker.number, out->name); /* as it is named */
    return strcmp(out->marker.model, model) == 0;
}

static bool make_room(struct tb_folder_entry **list, uint32_t count, uint32_t *cap)
{
    TB_ASSERT(count <= *cap);
    if (count < *cap) return true;
    *cap = *cap == 0 ? 64 : *cap * 2;
    struct tb_folder_entry *larger = tb_realloc(*list, *cap * sizeof *larger);
    if (larger == NULL) return false;
    *list = larger;
    return true;
}

enum tb_status tb_folders_list(struct tb_folders *f, const char *model, struct tb_folder_entry **entries_out,
                               uint32_t *count_out)
{
    struct tb_folder_entry *list = NULL;
    uint32_t count = 0;
    uint32_t cap = 0;
    const struct dirent *entry = NULL;
    DIR *root = read_root(f);
    if (root == NULL) return failed(f, "", "cannot be read");
    bool room = true;
    while ((room = make_room(&list, count, &cap)) && (entry = readdir(root)) != NULL)
        if (take_entry(f, entry->d_name, model, &list[count])) count++;
    (void)closedir(root);
    if (!room) {
        tb_free(list);
        return tb_bundle_no_memory(&f->error);
    }
    qsort(list, count, sizeof *list, newest_first);
    *entries_out = list;
    *count_out = count;
    return TB_OK;
}

/* Not in sight any more before its first file goes: nobody finds a marker beside
 * half of the files. */
static enum tb_status remove_version(struct tb_folders *f, const char *name)
{
    TB_ASSERT(is_folder_name(name));
    char old[TB_FOLDER_NAME_BYTES + 16];
    char from[TB_FOLDER_PATH_BYTES];
    char to[TB_FOLDER_PATH_BYTES];
    (void)snprintf(old, sizeof old, OLD_PREFIX "%s", name);
    if (!path_of(f, "", name, from) || !path_of(f, "", old, to)) return TB_BAD_ARGUMENT;
    (void)remove_folder(f, old);
    if (tb_sys_rename(from, to) != 0) return failed(f, name, "cannot be removed");
    if (!remove_folder(f, old)) return failed(f, old, "cannot be removed");
    return TB_OK;
}

enum tb_status tb_folders_keep(struct tb_folders *f, const char *model, uint64_t keep)
{
    struct tb_folder_entry *list = NULL;
    uint32_t count = 0;
    uint64_t stable = 0;
    enum tb_status s = tb_folders_list(f, model, &list, &count);
    for (uint32_t i = 0; i < count && s == TB_OK; i++) {
        const bool goes = stable >= keep && !tb_folder_is_latest(f, list[i].name);
        stable += !list[i].withdrawn;
        if (goes) s = remove_version(f, list[i].name);
    }
    tb_free(list);
    return s;
}

/* folder_walk.c - see folder_walk.h. */
#include "gateway/disk/folder_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/system_calls.h"

/* O_NONBLOCK: a FIFO that stands where a file was must not hold us. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* A root that links may lead into: opened, and its path without links. */
struct root {
    int fd; /* -1: there is none */
    char real[PATH_MAX];
};

struct walking {
    const struct tb_walk *walk;
    char *error;
    struct root root, links;
    uint32_t folders;
};

__attribute__((format(printf, 3, 4))) static enum tb_status refuse(struct walking *w, enum tb_status status,
                                                                   const char *format, ...)
{
    TB_ASSERT(status != TB_OK);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(w->error, TB_WALK_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return status;
}

static enum tb_status refuse_entry(struct walking *w, const char *name, int error)
{
    const char *slash = name[0] == '\0' ? "" : "/";
    if (error == EXDEV)
        return refuse(w, TB_BAD_FILE,
                      "%.200s%s%.200s: a link that leads out of the folder (--follow-links ROOT allows "
                      "links into ROOT)",
                      w->root.real, slash, name);
    const enum tb_status status =
        error == ENOENT || error == ENOTDIR                                            ? TB_NOT_FOUND
        : error == EACCES || error == EPERM || error == ENAMETOOLONG || error == ELOOP ? TB_BAD_ARGUMENT
                                                                                       : TB_SITE_IO;
    return refuse(w, status, "%.200s%s%.200s: %s", w->root.real, slash, name, strerror(error));
}

/* ---- opening beneath ---- */

/* The part of `real` behind `base`; NULL: it stands elsewhere. */
static const char *inside(const struct root *base, const char *real)
{
    const size_t bytes = strcmp(base->real, "/") == 0 ? 0 : strlen(base->real);
    if (base->fd < 0 || strncmp(real, base->real, bytes) != 0 || real[bytes] != '/') return NULL;
    return real + bytes + 1;
}

/* A link leads elsewhere, or is absolute. Where it leads to is opened anew, beneath the root that
 * has it and without any link: a link that changes meanwhile gets nothing. */
static int open_behind_link(const struct walking *w, const char *name)
{
    char path[PATH_MAX], real[PATH_MAX];
    errno = ENAMETOOLONG;
    if (snprintf(path, sizeof path, "%s/%s", w->root.real, name) >= (int)sizeof path) return -1;
    if (realpath(path, real) == NULL) return -1;
    const struct root *roots[] = {&w->root, &w->links};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        const char *rest = inside(roots[i], real);
        if (rest != NULL && rest[0] != '\0')
            return tb_sys_open_beneath(roots[i]->fd, rest, OPEN_FLAGS, RESOLVE_NO_SYMLINKS);
    }
    errno = EXDEV;
    return -1;
}

static int open_beneath(const struct walking *w, const char *name)
{
    const int fd = tb_sys_open_beneath(w->root.fd, name, OPEN_FLAGS, RESOLVE_NO_MAGICLINKS);
    return fd < 0 && errno == EXDEV ? open_behind_link(w, name) : fd;
}

static bool root_open(struct root *r, const char *path)
{
    if (realpath(path, r->real) == NULL) return false;
    r->fd = tb_sys_open(r->real, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return r->fd >= 0;
}

/* ---- the walk ---- */

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static enum tb_status add_folder(struct walking *w, const char *name, int fd, int depth);

static enum tb_status add_opened(struct walking *w, const char *name, int fd, int depth)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        const int error = errno;
        (void)close(fd);
        return refuse_entry(w, name, error);
    }
    if (!S_ISDIR(st.st_mode)) return w->walk->on_file(w->walk->user, name, fd, &st);
    const enum tb_status s = add_folder(w, name, fd, depth + 1);
    (void)close(fd);
    return s;
}

static enum tb_status add_entry(struct walking *w, const char *folder, const char *entry, int depth)
{
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", entry) >=
        (int)sizeof name)
        return refuse(w, TB_TOO_LARGE, "%.200s/%.200s: the path is too long", folder, entry);
    if (w->walk->leaves_out != NULL && w->walk->leaves_out(w->walk->user, name, entry)) return TB_OK;
    const int fd = open_beneath(w, name);
    if (fd < 0 && errno == ENXIO) return TB_OK; /* a socket, say: it has no bytes */
    return fd < 0 ? refuse_entry(w, name, errno) : add_opened(w, name, fd, depth);
}

static enum tb_status add_folder(struct walking *w, const char *name, int fd, int depth)
{
    struct dirent **entries = NULL;
    if (depth > w->walk->depth_max)
        return refuse(w, TB_TOO_LARGE, "%.200s/%.200s: folders are more than %d deep", w->root.real, name,
                      w->walk->depth_max);
    if (w->folders++ == TB_WALK_FOLDERS_MAX)
        return refuse(w, TB_TOO_LARGE, "%.200s: more than %d folders", w->root.real, TB_WALK_FOLDERS_MAX);
    const int count = scandirat(fd, ".", &entries, not_hidden, alphasort);
    if (count < 0) return refuse_entry(w, name, errno);
    enum tb_status s = TB_OK;
    for (int i = 0; i < count; i++) {
        if (s == TB_OK) s = add_entry(w, name, entries[i]->d_name, depth);
        free(entries[i]);
    }
    free(entries);
    return s;
}

/* One file: named by its last part, beneath the folder that it stands in. */
static enum tb_status add_file(struct walking *w, const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t bytes = slash == NULL ? 0 : (size_t)(slash - path);
    if (bytes >= sizeof folder) return refuse(w, TB_TOO_LARGE, "%.300s: the path is too long", path);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)bytes, path);
    if (bytes == 0) (void)snprintf(folder, sizeof folder, slash == NULL ? "." : "/");
    if (!root_open(&w->root, folder)) return refuse_entry(w, "", errno);
    return add_entry(w, "", slash == NULL ? path : slash + 1, 0);
}

static enum tb_status walk_from(struct walking *w)
{
    struct stat st;
    const char *path = w->walk->path;
    if (w->walk->links != NULL && !root_open(&w->links, w->walk->links))
        return refuse(w, errno == ENOENT || errno == ENOTDIR ? TB_NOT_FOUND : TB_SITE_IO, "%.300s: %s",
                      w->walk->links, strerror(errno));
    (void)snprintf(w->root.real, sizeof w->root.real, "%.4000s", path);
    if (stat(path, &st) != 0) return refuse_entry(w, "", errno);
    if (!S_ISDIR(st.st_mode)) return add_file(w, path);
    return root_open(&w->root, path) ? add_folder(w, "", w->root.fd, 0) : refuse_entry(w, "", errno);
}

enum tb_status tb_folder_walk(const struct tb_walk *walk, char error_out[TB_WALK_ERROR_BYTES])
{
    struct walking w = {.walk = walk, .error = error_out, .root = {.fd = -1}, .links = {.fd = -1}};
    const enum tb_status s = walk_from(&w);
    if (w.root.fd >= 0) (void)close(w.root.fd);
    if (w.links.fd >= 0) (void)close(w.links.fd);
    return s;
}

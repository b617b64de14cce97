/* anchor_folder.c - see anchor_folder.h. */
#include "gateway/disk/anchor_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/private_file.h"
#include "base/system_calls.h"
#include "gateway/disk/anchor_file.h"

static enum tb_status failed(struct tb_anchor_folder *f, enum tb_status status)
{
    TB_ASSERT(status != TB_OK);
    const int why = errno;
    tb_anchor_folder_close(f);
    errno = why;
    return status;
}

enum tb_status tb_anchor_folder_open(const char *path, struct tb_anchor_folder *folder_out)
{
    struct tb_anchor_folder f = {.path = path, .fd = -1};
    char why[TB_PRIVATE_WHY_BYTES];
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return TB_SITE_IO;
    f.fd = tb_sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (f.fd < 0 || faccessat(f.fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) != 0) return failed(&f, TB_SITE_IO);
    if (!tb_private_folder(f.fd, why)) return failed(&f, TB_SITE_CONFIG);
    if (flock(f.fd, LOCK_EX | LOCK_NB) != 0)
        return failed(&f, errno == EWOULDBLOCK ? TB_SITE_LOCKED : TB_SITE_IO);
    *folder_out = f;
    return TB_OK;
}

enum tb_status tb_anchor_folder_check(const char *path)
{
    char why[TB_PRIVATE_WHY_BYTES];
    struct stat st;
    struct tb_anchor_folder f = {.path = path,
                                 .fd = tb_sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)};
    if (f.fd >= 0) {
        enum tb_status status =
            faccessat(f.fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) == 0 ? TB_OK : TB_SITE_IO;
        if (status == TB_OK && !tb_private_folder(f.fd, why)) status = TB_SITE_CONFIG;
        if (status == TB_OK && flock(f.fd, LOCK_SH | LOCK_NB) != 0) status = TB_SITE_LOCKED;
        return status == TB_OK ? (tb_anchor_folder_close(&f), TB_OK) : failed(&f, status);
    }
    if (errno != ENOENT) return TB_SITE_IO;
    if (lstat(path, &st) == 0) { /* a link to nothing: no folder can be made there */
        errno = ENOENT;
        return TB_SITE_IO;
    }
    return tb_private_can_make(path) ? TB_OK : TB_SITE_IO;
}

void tb_anchor_folder_close(struct tb_anchor_folder *f)
{
    if (f->fd >= 0) (void)close(f->fd);
    f->fd = -1;
}

static bool name_make(const struct tb_anchor_folder *f, const struct tb_name *model,
                      const struct tb_anchor_which *which, char out[TB_ANCHOR_PATH_BYTES])
{
    return snprintf(out, TB_ANCHOR_PATH_BYTES, "%s/%s@%" PRIu64 "-%" PRIu64 TB_ANCHOR_END, f->path,
                    model->text, which->run_order, which->number) < TB_ANCHOR_PATH_BYTES;
}

bool tb_anchor_folder_name(const struct tb_anchor_folder *f, const struct tb_version_key *key,
                           char out[TB_ANCHOR_PATH_BYTES])
{
    const struct tb_anchor_which which = {.any = true, .run_order = key->run_order, .number = key->number};
    return name_make(f, &key->model, &which, out);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

/* Of that model, and which version. */
static bool name_parse(const char *name, const char *model, struct tb_anchor_which *out)
{
    char *end = NULL;
    const size_t length = strlen(model);
    if (strncmp(name, model, length) != 0 || name[length] != '@') return false;
    out->any = true;
    out->run_order = strtoull(name + length + 1, &end, 10);
    if (*end != '-') return false;
    out->number = strtoull(end + 1, &end, 10);
    return strcmp(end, TB_ANCHOR_END) == 0;
}

bool tb_anchor_newer(const struct tb_anchor_which *a, const struct tb_anchor_which *b)
{
    TB_ASSERT(a->any && b->any);
    return a->run_order != b->run_order ? a->run_order > b->run_order : a->number > b->number;
}

bool tb_anchor_folder_older(const struct tb_anchor_folder *f, const struct tb_name *model,
                            struct tb_anchor_which *at, char path_out[TB_ANCHOR_PATH_BYTES])
{
    DIR *folder = opendir(f->path);
    struct tb_anchor_which best = {.any = false};
    if (folder == NULL) return false;
    for (const struct dirent *e; (e = readdir(folder)) != NULL;) {
        struct tb_anchor_which which;
        if (!name_parse(e->d_name, model->text, &which)) continue;
        if (at->any && !tb_anchor_newer(at, &which)) continue;
        if (best.any && !tb_anchor_newer(&which, &best)) continue;
        best = which;
        if (snprintf(path_out, TB_ANCHOR_PATH_BYTES, "%s/%s", f->path, e->d_name) >= TB_ANCHOR_PATH_BYTES)
            best.any = false;
    }
    (void)closedir(folder);
    *at = best;
    return best.any;
}

void tb_anchor_folder_remove_older(const struct tb_anchor_folder *f, const struct tb_name *model,
                                   const struct tb_anchor_which *than)
{
    TB_ASSERT(f->fd >= 0 && than->any);
    DIR *folder = opendir(f->path);
    if (folder == NULL) return;
    for (const struct dirent *e; (e = readdir(folder)) != NULL;) {
        struct tb_anchor_which which;
        if (!name_parse(e->d_name, model->text, &which)) continue;
        if (tb_anchor_newer(than, &which)) (void)unlinkat(f->fd, e->d_name, 0);
    }
    (void)closedir(folder);
}

enum tb_status tb_anchor_folder_remove(const struct tb_anchor_folder *f, const struct tb_name *model,
                                       const struct tb_anchor_which *which)
{
    char path[TB_ANCHOR_PATH_BYTES];
    errno = ENAMETOOLONG;
    if (!name_make(f, model, which, path)) return TB_SITE_IO;
    return unlink(path) == 0 || errno == ENOENT ? TB_OK : TB_SITE_IO;
}

void tb_anchor_folder_remove_parts(const struct tb_anchor_folder *f)
{
    TB_ASSERT(f->fd >= 0); /* its lock says that no other gateway writes there */
    DIR *folder = opendir(f->path);
    if (folder == NULL) return;
    for (const struct dirent *e; (e = readdir(folder)) != NULL;)
        if (ends_with(e->d_name, TB_ANCHOR_END TB_ANCHOR_PART)) (void)unlinkat(f->fd, e->d_name, 0);
    (void)closedir(folder);
}

uint64_t tb_anchor_folder_free_bytes(const struct tb_anchor_folder *f)
{
    struct statvfs fs;
    return statvfs(f->path, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

/* disk_io.c - see disk_io.h. */
#include "gateway/disk/disk_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "base/system_calls.h"

bool tb_disk_read(int fd, uint64_t at, uint64_t count, void *out)
{
    uint8_t *to = out;
    TB_ASSERT(at <= INT64_MAX && count <= INT64_MAX - at); /* as off_t has it */
    while (count > 0) {
        errno = 0;
        const ssize_t got = tb_sys_pread(fd, to, count, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        TB_ASSERT((uint64_t)got <= count);
        to += got;
        at += (uint64_t)got;
        count -= (uint64_t)got;
    }
    return true;
}

bool tb_disk_write(int fd, uint64_t at, const void *bytes, uint64_t count)
{
    const uint8_t *from = bytes;
    TB_ASSERT(at <= INT64_MAX && count <= INT64_MAX - at);
    while (count > 0) {
        const ssize_t wrote = tb_sys_pwrite(fd, from, count, (off_t)at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        TB_ASSERT((uint64_t)wrote <= count);
        from += wrote;
        at += (uint64_t)wrote;
        count -= (uint64_t)wrote;
    }
    return true;
}

/* A filesystem that knows no such rename (NFS) knows links. */
bool tb_disk_rename_new(int folder, const char *from, const char *to)
{
    if (tb_fault_hit(TB_FAULT_rename, EIO)) return false;
    if (renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    return linkat(folder, from, folder, to, 0) == 0 && unlinkat(folder, from, 0) == 0;
}

bool tb_disk_sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const int chars = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
    if (snprintf(folder, sizeof folder, "%.*s", chars, slash == NULL ? "." : path) >= (int)sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    const int fd = tb_sys_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool good = tb_sys_fsync(fd) == 0;
    const int error = errno;
    (void)close(fd);
    errno = error;
    return good;
}

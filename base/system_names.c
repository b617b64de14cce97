/* system_names.c - see system_names.h. */
#include "base/system_names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/system_calls.h"

/* A filesystem that knows no such rename (NFS) knows links. */
bool tb_sys_rename_new(int folder, const char *from, const char *to)
{
    if (tb_fault_hit(TB_FAULT_rename, EIO)) return false;
    if (renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    return linkat(folder, from, folder, to, 0) == 0 && unlinkat(folder, from, 0) == 0;
}

bool tb_sys_sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const int chars = slash == NULL || slash == path ? 1 : (int)(slash - path);
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

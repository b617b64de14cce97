/* private_file.c - see private_file.h. */
#include "base/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool refuse_owner(const struct stat *st, char why_out[TB_PRIVATE_WHY_BYTES])
{
    (void)snprintf(why_out, TB_PRIVATE_WHY_BYTES,
                   "uid %u owns it, and this process is uid %u: another user made it; take it away",
                   (unsigned)st->st_uid, (unsigned)geteuid());
    return false;
}

static bool refuse_mode(const struct stat *st, const char *right, char why_out[TB_PRIVATE_WHY_BYTES])
{
    (void)snprintf(why_out, TB_PRIVATE_WHY_BYTES, "others may use it (mode %04o): chmod %s",
                   (unsigned)st->st_mode & 07777u, right);
    return false;
}

static bool look(int fd, struct stat *st, char why_out[TB_PRIVATE_WHY_BYTES])
{
    if (fstat(fd, st) == 0) return true;
    (void)snprintf(why_out, TB_PRIVATE_WHY_BYTES, "%.100s", strerror(errno));
    return false;
}

static bool is_kind(const struct stat *st, bool folder, char why_out[TB_PRIVATE_WHY_BYTES])
{
    if (folder ? S_ISDIR(st->st_mode) : S_ISREG(st->st_mode)) return true;
    (void)snprintf(why_out, TB_PRIVATE_WHY_BYTES, "is not a %s", folder ? "folder" : "regular file");
    return false;
}

bool tb_private_stat(const struct stat *st, char why_out[TB_PRIVATE_WHY_BYTES])
{
    if (!is_kind(st, false, why_out)) return false;
    if (st->st_uid != geteuid()) return refuse_owner(st, why_out);
    return (st->st_mode & 077) == 0 || refuse_mode(st, "600", why_out);
}

bool tb_private_file(int fd, char why_out[TB_PRIVATE_WHY_BYTES])
{
    struct stat st;
    return look(fd, &st, why_out) && tb_private_stat(&st, why_out);
}

bool tb_credential_file(int fd, char why_out[TB_PRIVATE_WHY_BYTES])
{
    struct stat st;
    if (!look(fd, &st, why_out) || !is_kind(&st, false, why_out)) return false;
    if (st.st_uid != geteuid() && st.st_uid != 0) return refuse_owner(&st, why_out);
    return (st.st_mode & 037) == 0 || refuse_mode(&st, "440", why_out);
}

bool tb_private_folder(int fd, char why_out[TB_PRIVATE_WHY_BYTES])
{
    struct stat st;
    if (!look(fd, &st, why_out) || !is_kind(&st, true, why_out)) return false;
    if (st.st_uid != geteuid()) return refuse_owner(&st, why_out);
    return (st.st_mode & 022) == 0 || refuse_mode(&st, "go-w", why_out);
}

bool tb_private_can_make(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t bytes = slash != NULL ? (size_t)(slash - path) : 0;
    const char *at = bytes == 0 ? (slash == NULL ? "." : "/") : folder;
    if (bytes >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(folder, path, bytes);
    folder[bytes] = '\0';
    return faccessat(AT_FDCWD, at, W_OK | X_OK, AT_EACCESS) == 0; /* config check is not root there */
}

bool tb_trusted_file(int fd, char why_out[TB_PRIVATE_WHY_BYTES])
{
    struct stat st;
    if (!look(fd, &st, why_out) || !is_kind(&st, false, why_out)) return false;
    if (st.st_uid != geteuid() && st.st_uid != 0) return refuse_owner(&st, why_out);
    return (st.st_mode & 002) == 0 || refuse_mode(&st, "o-w", why_out);
}

/* backup_source.c - see backup_source.h. */
#include "gateway/cli/backup/backup_source.h"

#include <errno.h>
#include <string.h>

#include "gateway/disk/disk_io.h"

#define PIECE     (64u << 10)
#define KEY       "PRIVATE KEY-----" /* the end of a PEM key's first line, of each kind */
#define KEY_CHARS (sizeof KEY - 1)

/* *has_out: a private key is in it. The end of a piece stands before the next one, so that a line
 * may lie across both. False: errno; 0 for a file that became shorter. */
static bool key_find(int fd, uint64_t bytes, bool *has_out)
{
    static char piece[KEY_CHARS + PIECE];
    size_t before = 0;
    *has_out = false;
    for (uint64_t at = 0; at < bytes && !*has_out;) {
        const size_t count = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        if (!tb_disk_read(fd, at, count, piece + before)) return false;
        const size_t there = before + count;
        *has_out = memmem(piece, there, KEY, KEY_CHARS) != NULL;
        before = there < KEY_CHARS ? there : KEY_CHARS;
        memmove(piece, piece + there - before, before);
        at += count;
    }
    return true;
}

enum tb_status tb_backup_source_look(int fd, enum tb_backup_role role, struct stat *seen_out,
                                     const char **why_out)
{
    bool has_key = false;
    if (fstat(fd, seen_out) != 0) {
        *why_out = strerror(errno);
        return TB_SITE_IO;
    }
    *why_out = "is no regular file";
    if (!S_ISREG(seen_out->st_mode)) return TB_BAD_ARGUMENT;
    *why_out = "is larger than 4 MiB";
    if (role != TB_BACKUP_STORE && seen_out->st_size > TB_BACKUP_FILE_MAX) return TB_BAD_ARGUMENT;
    if (role == TB_BACKUP_FILE && !key_find(fd, (uint64_t)seen_out->st_size, &has_key)) {
        *why_out = errno != 0 ? strerror(errno) : "it became shorter meanwhile";
        return TB_SITE_IO;
    }
    *why_out = "has a private key: give the key a file of its own, or say --keys where tls.key names it";
    return has_key ? TB_BAD_ARGUMENT : TB_OK;
}

static bool time_same(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool tb_backup_source_same(int fd, const struct stat *seen)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size == seen->st_size && st.st_ino == seen->st_ino &&
           time_same(&st.st_mtim, &seen->st_mtim) && time_same(&st.st_ctim, &seen->st_ctim);
}

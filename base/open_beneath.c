/* open_beneath.c - see open_beneath.h: the folders that were entered, and the rest of the name. */
#include "base/open_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

#define FOLDERS_MAX 64u
#define LINKS_MAX   40u /* as the kernel has it */

struct way {
    int folders[FOLDERS_MAX + 1]; /* the first one is the caller's */
    uint32_t depth;               /* of the last one in `folders` */
    uint32_t links;               /* that were followed */
    char rest[PATH_MAX];          /* of the name, behind folders[depth] */
};

static int refuse(int error)
{
    errno = error;
    return -1;
}

/* `first` and then what is left, which begins with a slash or is empty. False: it is too long. */
static bool put_before_rest(struct way *w, const char *first)
{
    const size_t bytes = strlen(first), left = strlen(w->rest);
    TB_ASSERT(left == 0 || w->rest[0] == '/');
    if (bytes + left >= sizeof w->rest) return false;
    memmove(w->rest + bytes, w->rest, left + 1);
    memcpy(w->rest, first, bytes);
    return true;
}

/* The next part of the name: *folder_out says that a slash is behind it. 0: none is left; -1: it is
 * too long. */
static int take_part(struct way *w, char part[NAME_MAX + 1], bool *folder_out)
{
    const char *at = w->rest + strspn(w->rest, "/");
    const size_t bytes = strcspn(at, "/");
    if (bytes > NAME_MAX) return refuse(ENAMETOOLONG);
    memcpy(part, at, bytes);
    part[bytes] = '\0';
    *folder_out = at[bytes] == '/';
    at += bytes;
    memmove(w->rest, at, strlen(at) + 1);
    return bytes > 0;
}

static int leave_folder(struct way *w)
{
    if (w->depth == 0) return refuse(EXDEV);
    (void)close(w->folders[w->depth--]);
    return 0;
}

static int enter_folder(struct way *w, int fd)
{
    if (w->depth < FOLDERS_MAX) {
        w->folders[++w->depth] = fd;
        return 0;
    }
    (void)close(fd);
    return refuse(ENAMETOOLONG);
}

/* `fd` is the link itself. */
static int follow_link(struct way *w, int fd)
{
    char text[PATH_MAX];
    const ssize_t bytes = readlinkat(fd, "", text, sizeof text - 1);
    const int error = errno;
    (void)close(fd);
    if (bytes < 0) return refuse(error);
    text[bytes] = '\0';
    if (bytes == 0) return refuse(ENOENT);
    if (text[0] == '/') return refuse(EXDEV);
    if (++w->links > LINKS_MAX) return refuse(ELOOP);
    return put_before_rest(w, text) ? 0 : refuse(ENAMETOOLONG);
}

/* The part is a link or a folder: `rest` and `folders` say then what comes next. 1: neither. */
static int step(struct way *w, const char *part, bool links)
{
    struct stat st;
    const int fd = openat(w->folders[w->depth], part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    const bool known = fstat(fd, &st) == 0;
    const int error = known ? ELOOP : errno;
    if (known && S_ISDIR(st.st_mode)) return enter_folder(w, fd);
    if (known && S_ISLNK(st.st_mode) && links) return follow_link(w, fd);
    (void)close(fd);
    return known && !S_ISLNK(st.st_mode) ? 1 : refuse(error);
}

static int walk(struct way *w, int flags, bool links)
{
    char part[NAME_MAX + 1];
    bool folder = false;
    int more;
    while ((more = take_part(w, part, &folder)) > 0) {
        int stepped = 0;
        if (strcmp(part, "..") == 0)
            stepped = leave_folder(w);
        else if (strcmp(part, ".") != 0)
            stepped = step(w, part, links);
        if (stepped < 0) return -1;
        if (stepped == 0) continue;
        if (folder) return refuse(ENOTDIR);
        /* A link that takes its place meanwhile is ELOOP. */
        return openat(w->folders[w->depth], part, flags | O_NOFOLLOW);
    }
    return more == 0 ? openat(w->folders[w->depth], ".", flags) : -1;
}

int tb_open_beneath_by_hand(int folder, const char *name, int flags, bool links)
{
    TB_ASSERT((flags & O_CLOEXEC) != 0 && (flags & (O_CREAT | O_TRUNC)) == 0);
    struct way w = {.folders = {folder}};
    if (name[0] == '\0') return refuse(ENOENT);
    if (name[0] == '/') return refuse(EXDEV);
    const size_t bytes = strlen(name);
    if (bytes >= sizeof w.rest) return refuse(ENAMETOOLONG);
    memcpy(w.rest, name, bytes + 1);
    const int fd = walk(&w, flags, links);
    const int error = errno;
    while (w.depth > 0)
        (void)close(w.folders[w.depth--]);
    errno = error;
    return fd;
}

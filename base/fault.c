/* fault.c - fault points and the wrappers that have them. */
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"

static struct {
    _Atomic uint64_t calls;
    _Atomic uint64_t nth; /* 0: not armed */
    atomic_bool sticky;
} points[TB_FAULT_COUNT];

/* One bit a point; 0 in every process but a test, and then a wrapper costs this load. */
static _Atomic uint64_t armed;

_Static_assert(TB_FAULT_COUNT <= 64, "one bit a point");

bool tb_fault_hit(enum tb_fault_point point, int error)
{
    if (atomic_load_explicit(&armed, memory_order_relaxed) == 0) return false;
    TB_ASSERT(point < TB_FAULT_COUNT);
    const uint64_t call = atomic_fetch_add(&points[point].calls, 1) + 1;
    const uint64_t nth = atomic_load(&points[point].nth);
    if (nth == 0 || call < nth) return false;
    if (call > nth && !atomic_load(&points[point].sticky)) return false;
    errno = error;
    return true;
}

void tb_fault_arm(enum tb_fault_point point, uint64_t nth, bool sticky)
{
    TB_ASSERT(point < TB_FAULT_COUNT);
    const uint64_t bit = UINT64_C(1) << point;
    atomic_store(&points[point].calls, 0);
    atomic_store(&points[point].sticky, sticky);
    atomic_store(&points[point].nth, nth);
    if (nth > 0) {
        atomic_fetch_or(&armed, bit);
    } else {
        atomic_fetch_and(&armed, ~bit);
    }
}

uint64_t tb_fault_calls(enum tb_fault_point point)
{
    TB_ASSERT(point < TB_FAULT_COUNT);
    return atomic_load(&points[point].calls);
}

static const char *const point_names[] = {
#define FAULT_NAME(name) #name,
    TB_FAULT_POINTS(FAULT_NAME)
#undef FAULT_NAME
};

static bool point_parse(const char *name, size_t count, enum tb_fault_point *point_out)
{
    for (int i = 0; i < TB_FAULT_COUNT; i++) {
        if (strlen(point_names[i]) != count || memcmp(point_names[i], name, count) != 0) continue;
        *point_out = (enum tb_fault_point)i;
        return true;
    }
    return false;
}

/* "NAME:NTH" or "NAME:NTH+" of `count` bytes. */
static bool arm_one(const char *item, size_t count)
{
    enum tb_fault_point point = TB_FAULT_COUNT;
    const char *colon = memchr(item, ':', count);
    if (colon == NULL || !point_parse(item, (size_t)(colon - item), &point)) return false;
    char *end = NULL;
    const unsigned long long nth = strtoull(colon + 1, &end, 10);
    const bool sticky = *end == '+';
    if (nth == 0 || end + sticky != item + count) return false;
    tb_fault_arm(point, nth, sticky);
    return true;
}

static void report_calls(void)
{
    FILE *out = fopen(getenv("TB_FAULT_CALLS"), "we");
    if (out == NULL) return;
    for (int i = 0; i < TB_FAULT_COUNT; i++)
        fprintf(out, "%s %llu\n", point_names[i], (unsigned long long)atomic_load(&points[i].calls));
    (void)fclose(out);
}

bool tb_fault_from_env(void)
{
    const bool counts = getenv("TB_FAULT_CALLS") != NULL;
    if (counts) {
        for (int i = 0; i < TB_FAULT_COUNT; i++)
            tb_fault_arm((enum tb_fault_point)i, UINT64_MAX, false); /* counts, and never fails */
        (void)atexit(report_calls);
    }
    const char *at = getenv("TB_FAULT");
    const bool asked = counts || at != NULL;
    while (at != NULL && *at != '\0') {
        const size_t count = strcspn(at, ",");
        /* A test that asks for a fault which does not exist must not pass. */
        if (!arm_one(at, count)) {
            fprintf(stderr, "error fault.unknown TB_FAULT=\"%.*s\" want=NAME:NTH[+]\n", (int)count, at);
            abort();
        }
        at += count;
        if (*at == ',') at++;
    }
    return asked;
}

void *tb_malloc(size_t bytes)
{
    return tb_fault_hit(TB_FAULT_malloc, ENOMEM) ? NULL : malloc(bytes);
}

void *tb_calloc(size_t count, size_t bytes)
{
    if (bytes == 0) bytes = 1;      /* a pointer of its own, not NULL for success */
    if (count > SIZE_MAX / bytes) { /* calloc says so too, but a sanitizer's aborts */
        errno = ENOMEM;
        return NULL;
    }
    return tb_fault_hit(TB_FAULT_malloc, ENOMEM) ? NULL : calloc(count, bytes);
}

void *tb_realloc(void *old, size_t bytes)
{
    return tb_fault_hit(TB_FAULT_malloc, ENOMEM) ? NULL : realloc(old, bytes);
}

void tb_free(void *memory)
{
    free(memory);
}

char *tb_strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = tb_malloc(bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void *tb_library_malloc(size_t bytes)
{
    return tb_fault_hit(TB_FAULT_library, ENOMEM) ? NULL : malloc(bytes);
}

void *tb_library_calloc(size_t count, size_t bytes)
{
    return tb_fault_hit(TB_FAULT_library, ENOMEM) ? NULL : calloc(count, bytes);
}

void *tb_library_realloc(void *old, size_t bytes)
{
    return tb_fault_hit(TB_FAULT_library, ENOMEM) ? NULL : realloc(old, bytes);
}

int tb_sys_open(const char *path, int flags, mode_t mode)
{
    TB_ASSERT((flags & O_CLOEXEC) != 0); /* a child of our host must not have it */
    return tb_fault_hit(TB_FAULT_open, EMFILE) ? -1 : open(path, flags, mode);
}

void *tb_sys_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    return tb_fault_hit(TB_FAULT_mmap, ENOMEM) ? MAP_FAILED : mmap(at, bytes, prot, flags, fd, offset);
}

int tb_sys_ftruncate(int fd, off_t bytes)
{
    return tb_fault_hit(TB_FAULT_ftruncate, EIO) ? -1 : ftruncate(fd, bytes);
}

/* tmpfs of many kernels (6.1 of Debian 12) gives up an allocation at any signal that waits, and
 * loses all that it had allocated. A process that gets a signal now and then would never get
 * large memory. So signals wait for the allocation. Those that end the process do not wait.
 * SIGSTOP and a freezer do not wait either, and the allocation goes on after them. */
int tb_sys_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (tb_fault_hit(TB_FAULT_fallocate, ENOSPC)) return -1;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result;
    do
        result = fallocate(fd, mode, offset, bytes);
    while (result != 0 && errno == EINTR);
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return result;
}

ssize_t tb_sys_pread(int fd, void *out, size_t count, off_t offset)
{
    return tb_fault_hit(TB_FAULT_pread, EIO) ? -1 : pread(fd, out, count, offset);
}

ssize_t tb_sys_pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    TB_ASSERT(offset >= 0);
    return tb_fault_hit(TB_FAULT_pwrite, ENOSPC) ? -1 : pwrite(fd, bytes, count, offset);
}

int tb_sys_fsync(int fd)
{
    return tb_fault_hit(TB_FAULT_fsync, EIO) ? -1 : fsync(fd);
}

int tb_sys_rename(const char *from, const char *to)
{
    return tb_fault_hit(TB_FAULT_rename, EIO) ? -1 : rename(from, to);
}

int tb_sys_socket(int domain, int type, int protocol)
{
    TB_ASSERT((type & SOCK_CLOEXEC) != 0);
    return tb_fault_hit(TB_FAULT_socket, EMFILE) ? -1 : socket(domain, type, protocol);
}

int tb_sys_connect(int fd, const struct sockaddr *to, socklen_t bytes)
{
    return tb_fault_hit(TB_FAULT_connect, ECONNREFUSED) ? -1 : connect(fd, to, bytes);
}

int tb_sys_accept(int fd, struct sockaddr *from, socklen_t *bytes)
{
    return tb_fault_hit(TB_FAULT_accept, EMFILE) ? -1 : accept4(fd, from, bytes, SOCK_CLOEXEC);
}

ssize_t tb_sys_recvmsg(int fd, struct msghdr *m, int flags)
{
    return tb_fault_hit(TB_FAULT_recvmsg, ECONNRESET) ? -1 : recvmsg(fd, m, flags);
}

ssize_t tb_sys_sendmsg(int fd, const struct msghdr *m, int flags)
{
    TB_ASSERT((flags & MSG_NOSIGNAL) != 0); /* SIGPIPE would end our host */
    return tb_fault_hit(TB_FAULT_sendmsg, EPIPE) ? -1 : sendmsg(fd, m, flags);
}

int tb_sys_memfd(const char *name, unsigned flags)
{
    TB_ASSERT((flags & MFD_CLOEXEC) != 0);
    return tb_fault_hit(TB_FAULT_memfd, EMFILE) ? -1 : memfd_create(name, flags);
}

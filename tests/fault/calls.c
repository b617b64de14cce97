/* calls.c - system calls that do not go through base/fault.h fail too: those that the shells
 * make by themselves, and those of OpenSSL, SQLite, c-ares and the rest. Preloaded into a
 * program, or linked into a test.
 *
 * TB_CALLS=NAME:K makes call K of a function fail, K+ all after it too. TB_CALLS_COUNT=PATH writes
 * "NAME CALLS" for each function at exit. A test calls tb_calls_arm.
 *
 * Calls of libuv itself never fail: libuv aborts by design when its own descriptors (epoll,
 * eventfd) do. Clocks, epoll_wait, munmap, close and exit never fail either: no caller could answer
 * their failure. */
#include "tests/fault/calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

static const char *const names[] = {
#define CALLS_NAME(name) #name,
    TB_CALLS(CALLS_NAME)
#undef CALLS_NAME
};

static struct {
    _Atomic uint64_t calls, nth;
    atomic_bool sticky;
} points[TB_CALLS_END];

static atomic_bool armed;          /* one of them counts or fails */
static uintptr_t uv_begin, uv_end; /* where libuv's code lies */

static int find_uv(struct dl_phdr_info *info, size_t bytes, void *user)
{
    (void)bytes, (void)user;
    if (strstr(info->dlpi_name, "/libuv.so") == NULL) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || (p->p_flags & PF_X) == 0) continue;
        uv_begin = info->dlpi_addr + p->p_vaddr;
        uv_end = uv_begin + p->p_memsz;
    }
    return 1;
}

static bool hit(enum tb_call call, const void *caller, int error)
{
    if (!atomic_load(&armed)) return false; /* if it is, uv_begin is there */
    if ((uintptr_t)caller >= uv_begin && (uintptr_t)caller < uv_end) return false;
    const uint64_t nth = atomic_load(&points[call].nth), n = atomic_fetch_add(&points[call].calls, 1) + 1;
    if (nth == 0 || n < nth || (n > nth && !atomic_load(&points[call].sticky))) return false;
    errno = error;
    return true;
}

void tb_calls_arm(enum tb_call call, uint64_t nth, bool sticky)
{
    if (uv_begin == 0) (void)dl_iterate_phdr(find_uv, NULL);
    atomic_store(&points[call].calls, 0);
    atomic_store(&points[call].nth, nth);
    atomic_store(&points[call].sticky, sticky);
    atomic_store(&armed, true);
}

uint64_t tb_calls_count(enum tb_call call)
{
    return atomic_load(&points[call].calls);
}

uint64_t tb_calls_disarm(enum tb_call call)
{
    atomic_store(&armed, false);
    atomic_store(&points[call].nth, 0);
    return tb_calls_count(call);
}

const char *tb_calls_name(enum tb_call call)
{
    return names[call];
}

static void report(void)
{
    atomic_store(&armed, false);
    FILE *out = fopen(getenv("TB_CALLS_COUNT"), "we");
    if (out == NULL) return;
    for (int i = 0; i < TB_CALLS_END; i++)
        fprintf(out, "%s %llu\n", names[i], (unsigned long long)atomic_load(&points[i].calls));
    (void)fclose(out);
}

static void arm_named(const char *text)
{
    const char *colon = strchr(text, ':');
    for (int i = 0; colon != NULL && i < TB_CALLS_END; i++) {
        if (strlen(names[i]) != (size_t)(colon - text) || memcmp(names[i], text, (size_t)(colon - text)) != 0)
            continue;
        char *end = NULL;
        const unsigned long long nth = strtoull(colon + 1, &end, 10);
        if (nth == 0 || strcmp(end, *end == '+' ? "+" : "") != 0) break;
        tb_calls_arm((enum tb_call)i, nth, *end == '+');
        return;
    }
    fprintf(stderr, "error calls.unknown TB_CALLS=\"%s\" want=NAME:NTH[+]\n", text);
    abort(); /* a test that asks for a fault which does not exist must not pass */
}

__attribute__((constructor)) static void from_env(void)
{
    const char *text = getenv("TB_CALLS");
    if (getenv("TB_CALLS_COUNT") != NULL) {
        tb_calls_arm((enum tb_call)0, 0, false);
        (void)atexit(report);
    }
    if (text != NULL) arm_named(text);
}

/* The next definition of a function: libc's, or a sanitizer's in front of it. Threads that look
 * at once find the same. */
#define REAL(name)                                                                                           \
    static _Atomic uintptr_t found;                                                                          \
    if (atomic_load(&found) == 0) atomic_store(&found, (uintptr_t)dlsym(RTLD_NEXT, #name));                  \
    const __typeof__(&name) real = (__typeof__(&name))atomic_load(&found);

#define CALL(type, name, parameters, arguments, bad, error)                                                  \
    SHOWN type name parameters                                                                               \
    {                                                                                                        \
        REAL(name)                                                                                           \
        return hit(TB_CALL_##name, __builtin_return_address(0), error) ? (bad) : real arguments;             \
    }

/* clang-format off */
CALL(ssize_t, pread64, (int fd, void *out, size_t n, off64_t at), (fd, out, n, at), -1, EIO)
CALL(ssize_t, pwrite64, (int fd, const void *in, size_t n, off64_t at), (fd, in, n, at), -1, ENOSPC)
CALL(ssize_t, recv, (int fd, void *out, size_t n, int flags), (fd, out, n, flags), -1, ECONNRESET)
CALL(ssize_t, send, (int fd, const void *in, size_t n, int flags), (fd, in, n, flags), -1, EPIPE)
CALL(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1, EADDRINUSE)
CALL(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE)
CALL(int, setsockopt, (int fd, int level, int name, const void *v, socklen_t n), (fd, level, name, v, n), -1,
     EPERM)
CALL(int, getsockopt, (int fd, int level, int name, void *v, socklen_t *n), (fd, level, name, v, n), -1,
     ENOBUFS)
CALL(int, getsockname, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), -1, ENOBUFS)
CALL(int, getpeername, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), -1, ENOTCONN)
CALL(int, fstat, (int fd, struct stat *s), (fd, s), -1, EIO)
CALL(int, lstat, (const char *path, struct stat *s), (path, s), -1, EACCES)
CALL(int, stat, (const char *path, struct stat *s), (path, s), -1, EACCES)
CALL(int, fstatfs, (int fd, struct statfs *s), (fd, s), -1, EIO)
CALL(int, flock, (int fd, int what), (fd, what), -1, ENOLCK)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)
CALL(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), -1, ENOSPC)
CALL(int, unlink, (const char *path), (path), -1, EROFS)
CALL(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), -1, EROFS)
CALL(int, renameat, (int at, const char *from, int to_at, const char *to), (at, from, to_at, to), -1, EIO)
CALL(int, dup, (int fd), (fd), -1, EMFILE)
CALL(int, eventfd, (unsigned count, int flags), (count, flags), -1, EMFILE)
CALL(int, timerfd_create, (clockid_t clock, int flags), (clock, flags), -1, EMFILE)
CALL(int, madvise, (void *at, size_t n, int advice), (at, n, advice), -1, ENOMEM)
CALL(ssize_t, process_vm_readv, (pid_t pid, const struct iovec *here, unsigned long n,
     const struct iovec *there, unsigned long m, unsigned long flags),
     (pid, here, n, there, m, flags), -1, EPERM)
CALL(int, poll, (struct pollfd *fds, nfds_t n, int ms), (fds, n, ms), -1, ENOMEM)
CALL(int, pthread_create, (pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *user),
     (t, a, fn, user), EAGAIN, EAGAIN)
CALL(DIR *, fdopendir, (int fd), (fd), NULL, ENOMEM)
CALL(DIR *, opendir, (const char *path), (path), NULL, EMFILE)
CALL(int, fdatasync, (int fd), (fd), -1, EIO)
CALL(int, ftruncate64, (int fd, off64_t to), (fd, to), -1, ENOSPC)
/* clang-format on */

/* Nothing but a wrong call makes an eventfd or a timerfd fail, and that is asserted. */
static bool may_fail(int fd)
{
    char link[64], what[64] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n =
        atomic_load_explicit(&armed, memory_order_relaxed) ? readlink(link, what, sizeof what - 1) : 0;
    return n > 0 && strncmp(what, "anon_inode:", 11) != 0;
}

SHOWN ssize_t read(int fd, void *out, size_t bytes)
{
    REAL(read)
    if (may_fail(fd) && hit(TB_CALL_read, __builtin_return_address(0), EIO)) return -1;
    return real(fd, out, bytes);
}

SHOWN ssize_t write(int fd, const void *in, size_t bytes)
{
    REAL(write)
    if (may_fail(fd) && hit(TB_CALL_write, __builtin_return_address(0), EIO)) return -1;
    return real(fd, in, bytes);
}

/* Of those with an argument that may be absent, the argument is passed on whatever the call has. */

SHOWN int fcntl64(int fd, int command, ...)
{
    REAL(fcntl64)
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return hit(TB_CALL_fcntl64, __builtin_return_address(0), EIO) ? -1 : real(fd, command, argument);
}

SHOWN int open64(const char *path, int flags, ...)
{
    REAL(open64)
    va_list rest;
    va_start(rest, flags);
    const unsigned mode = va_arg(rest, unsigned);
    va_end(rest);
    return hit(TB_CALL_open64, __builtin_return_address(0), EMFILE) ? -1 : real(path, flags, mode);
}

SHOWN int openat(int at, const char *path, int flags, ...)
{
    REAL(openat)
    va_list rest;
    va_start(rest, flags);
    const unsigned mode = va_arg(rest, unsigned);
    va_end(rest);
    return hit(TB_CALL_openat, __builtin_return_address(0), EMFILE) ? -1 : real(at, path, flags, mode);
}

SHOWN int fcntl(int fd, int command, ...)
{
    REAL(fcntl)
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return hit(TB_CALL_fcntl, __builtin_return_address(0), EIO) ? -1 : real(fd, command, argument);
}

/* record_calls.c - what programs say to each other, as they say it: preloaded, it copies what is
 * written to unix stream sockets and what is given to TLS, before it is encrypted, into files of
 * TB_RECORD_DIR: one for each descriptor and each SSL of a process, PID-KIND-NUMBER.
 * `tests/fuzz/record` cuts them into seeds. Best effort: what cannot be copied is left out. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SHOWN    __attribute__((visibility("default")))
#define FILE_MAX (256 << 10) /* of one descriptor: its beginning */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void keep(const char *kind, uintptr_t number, const struct iovec *parts, size_t count, size_t bytes)
{
    const char *folder = getenv("TB_RECORD_DIR");
    char path[512];
    struct stat st;
    if (folder == NULL) return;
    (void)snprintf(path, sizeof path, "%s/%ld-%s-%lx", folder, (long)getpid(), kind, (unsigned long)number);
    (void)pthread_mutex_lock(&lock);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ssize_t (*real_write)(int, const void *, size_t) =
        (ssize_t(*)(int, const void *, size_t))(uintptr_t)dlsym(RTLD_NEXT, "write");
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size < FILE_MAX)
        for (size_t i = 0; i < count && bytes > 0; i++) {
            const size_t n = parts[i].iov_len < bytes ? parts[i].iov_len : bytes;
            if (real_write(fd, parts[i].iov_base, n) != (ssize_t)n) break;
            bytes -= n;
        }
    if (fd >= 0) (void)close(fd);
    (void)pthread_mutex_unlock(&lock);
}

static int unix_stream(int fd)
{
    int domain = 0, type = 0;
    socklen_t bytes = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_UNIX) return 0;
    bytes = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
}

SHOWN ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    ssize_t (*real)(int, const struct msghdr *, int) =
        (ssize_t(*)(int, const struct msghdr *, int))(uintptr_t)dlsym(RTLD_NEXT, "sendmsg");
    const ssize_t sent = real(fd, m, flags);
    if (sent > 0 && unix_stream(fd)) keep("unix", (uintptr_t)fd, m->msg_iov, m->msg_iovlen, (size_t)sent);
    return sent;
}

SHOWN ssize_t write(int fd, const void *bytes, size_t count)
{
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t(*)(int, const void *, size_t))(uintptr_t)dlsym(RTLD_NEXT, "write");
    const ssize_t sent = real(fd, bytes, count);
    const struct iovec part = {(void *)(uintptr_t)bytes, count};
    if (sent > 0 && unix_stream(fd)) keep("unix", (uintptr_t)fd, &part, 1, (size_t)sent);
    return sent;
}

SHOWN ssize_t writev(int fd, const struct iovec *parts, int count)
{
    ssize_t (*real)(int, const struct iovec *, int) =
        (ssize_t(*)(int, const struct iovec *, int))(uintptr_t)dlsym(RTLD_NEXT, "writev");
    const ssize_t sent = real(fd, parts, count);
    if (sent > 0 && unix_stream(fd)) keep("unix", (uintptr_t)fd, parts, (size_t)count, (size_t)sent);
    return sent;
}

SHOWN int SSL_write_ex(void *ssl, const void *bytes, size_t count, size_t *written);
SHOWN int SSL_write_ex(void *ssl, const void *bytes, size_t count, size_t *written)
{
    int (*real)(void *, const void *, size_t, size_t *) =
        (int (*)(void *, const void *, size_t, size_t *))(uintptr_t)dlsym(RTLD_NEXT, "SSL_write_ex");
    const int result = real(ssl, bytes, count, written);
    const struct iovec part = {(void *)(uintptr_t)bytes, count};
    if (result == 1) keep("tls", (uintptr_t)ssl, &part, 1, *written);
    return result;
}

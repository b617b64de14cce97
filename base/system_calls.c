/* system_calls.c - calls of the kernel, each behind the fault point of its name. */
#include "base/system_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "base/open_beneath.h"

int tb_sys_open(const char *path, int flags, mode_t mode)
{
    TB_ASSERT((flags & O_CLOEXEC) != 0); /* a child of our host must not have it */
    return tb_fault_hit(TB_FAULT_open, EMFILE) ? -1 : open(path, flags, mode);
}

/* Old container runtimes answer EPERM to a call that they do not know, whatever the file. */
static bool openat2_is_forbidden(void)
{
    static atomic_int known; /* 1: it is; 2: it is not */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        const struct open_how how = {.flags = O_PATH | O_CLOEXEC};
        const int fd = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how);
        answer = fd < 0 && errno == EPERM ? 1 : 2;
        if (fd >= 0) (void)close(fd);
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 1;
}

int tb_sys_open_beneath(int folder, const char *name, int flags, uint64_t resolve)
{
    TB_ASSERT((flags & O_CLOEXEC) != 0);
    const struct open_how how = {.flags = (uint64_t)flags, .resolve = RESOLVE_BENEATH | resolve};
    if (tb_fault_hit(TB_FAULT_open, EMFILE)) return -1;
    const int fd = (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
    const int error = fd >= 0 ? 0 : errno;
    if (error != ENOSYS && (error != EPERM || !openat2_is_forbidden())) {
        errno = error;
        return fd;
    }
    return tb_open_beneath_by_hand(folder, name, flags, (resolve & RESOLVE_NO_SYMLINKS) == 0);
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

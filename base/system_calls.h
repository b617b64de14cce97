/* system_calls.h - calls of the kernel that a fault point (base/fault.h) can make fail. Each is the
 * call of its name, with its results and errno. Threads: any. */
#ifndef TB_BASE_SYSTEM_CALLS_H
#define TB_BASE_SYSTEM_CALLS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

int tb_sys_open(const char *path, int flags, mode_t mode);
/* openat2 with RESOLVE_BENEATH and `resolve`: RESOLVE_NO_SYMLINKS or RESOLVE_NO_MAGICLINKS. By hand
 * (open_beneath.h) where the kernel has no openat2. */
int tb_sys_open_beneath(int folder, const char *name, int flags, uint64_t resolve);
void *tb_sys_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int tb_sys_ftruncate(int fd, off_t bytes);
int tb_sys_fallocate(int fd, int mode, off_t offset, off_t bytes);
ssize_t tb_sys_pread(int fd, void *out, size_t count, off_t offset);
ssize_t tb_sys_pwrite(int fd, const void *bytes, size_t count, off_t offset);
int tb_sys_fsync(int fd);
int tb_sys_rename(const char *from, const char *to);
int tb_sys_socket(int domain, int type, int protocol);
int tb_sys_connect(int fd, const struct sockaddr *to, socklen_t bytes);
int tb_sys_accept(int fd, struct sockaddr *from, socklen_t *bytes);
ssize_t tb_sys_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t tb_sys_sendmsg(int fd, const struct msghdr *m, int flags);
int tb_sys_memfd(const char *name, unsigned flags);

#endif

/* fault.h - wrappers of allocations and system calls, with points where a test makes them fail.
 *
 * Shells allocate and call the kernel through these. TB_FAULT in the environment of a test
 * ("malloc:7", "pwrite:1+", "mmap:3") or tb_fault_arm makes call number N of a point fail once, or
 * with '+' once and from then on. Without it a wrapper costs one relaxed load. Threads: any.
 *
 * Point `library` is what the libraries allocate that take an allocator: OpenSSL, libuv, c-ares,
 * jansson, SQLite. They are given tb_library_* only in a process that asks for faults, so elsewhere
 * nothing stands between them and malloc. */
#ifndef TB_BASE_FAULT_H
#define TB_BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* clang-format off */
#define TB_FAULT_POINTS(X) X(malloc) X(open) X(mmap) X(ftruncate) X(fallocate) X(pread) X(pwrite) X(fsync) \
                           X(rename) X(socket) X(connect) X(accept) X(recvmsg) X(sendmsg) X(memfd) \
                           X(thread) X(library)

enum tb_fault_point {
#define TB_FAULT_ENUM(name) TB_FAULT_##name,
    TB_FAULT_POINTS(TB_FAULT_ENUM)
#undef TB_FAULT_ENUM
    TB_FAULT_COUNT
};
/* clang-format on */

/* True when this call has to fail; then errno is set to `error`. */
bool tb_fault_hit(enum tb_fault_point point, int error);
/* Call `nth` (from 1) of the point fails; sticky: and all after it. nth 0 disarms. */
void tb_fault_arm(enum tb_fault_point point, uint64_t nth, bool sticky);
/* Reads TB_FAULT; called by main of each program. With TB_FAULT_CALLS=PATH it also counts, and an
 * exit writes a line "NAME CALLS" for each point to that file. True: one of them is set, and
 * libraries are to be given tb_library_*. */
bool tb_fault_from_env(void);
uint64_t tb_fault_calls(enum tb_fault_point point);

void *tb_malloc(size_t bytes);               /* NULL when there is none */
void *tb_calloc(size_t count, size_t bytes); /* NULL also on overflow */
void *tb_realloc(void *old, size_t bytes);
void tb_free(void *memory);
char *tb_strdup(const char *text);

/* For libraries; what they give is freed by free(). */
void *tb_library_malloc(size_t bytes);
void *tb_library_calloc(size_t count, size_t bytes);
void *tb_library_realloc(void *old, size_t bytes);

int tb_sys_open(const char *path, int flags, mode_t mode);
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

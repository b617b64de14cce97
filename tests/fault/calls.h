/* calls.h - functions of libc, as the shells and the libraries call them, that can be made to
 * fail. */
#ifndef TB_TESTS_CALLS_H
#define TB_TESTS_CALLS_H

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define TB_CALLS(X)                                                                                  \
    X(read) X(write) X(pread64) X(pwrite64) X(recv) X(send) X(bind) X(listen) X(setsockopt)          \
    X(getsockopt) X(getsockname) X(getpeername) X(fstat) X(lstat) X(stat) X(fstatfs) X(flock)        \
    X(mkdir) X(mkdirat) X(unlink) X(unlinkat) X(renameat) X(dup) X(eventfd) X(timerfd_create)        \
    X(madvise) X(process_vm_readv) X(poll) X(pthread_create) X(fdopendir) X(opendir) X(fdatasync)    \
    X(ftruncate64) X(fcntl) X(fcntl64) X(open64) X(openat)
/* clang-format on */

enum tb_call {
#define TB_CALLS_ENUM(name) TB_CALL_##name,
    TB_CALLS(TB_CALLS_ENUM)
#undef TB_CALLS_ENUM
        TB_CALLS_END
};

/* Call `nth` (from 1) fails; sticky: and all after it. nth 0 counts alone. One
 * function at a time. */
void tb_calls_arm(enum tb_call call, uint64_t nth, bool sticky);
uint64_t tb_calls_count(enum tb_call call);  /* since it was armed */
uint64_t tb_calls_disarm(enum tb_call call); /* how many there were */
const char *tb_calls_name(enum tb_call call);

#endif

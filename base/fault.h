/* fault.h - points where a test makes an allocation or a system call fail.
 *
 * Shells allocate by allocate.h and call the kernel by system_calls.h. TB_FAULT in the environment
 * of a test ("malloc:7", "pwrite:1+", "mmap:3") or tb_fault_arm makes call number N of a point fail
 * once, or with '+' once and from then on. Without it a wrapper costs one relaxed load. Threads:
 * any.
 *
 * Point `library` is what the libraries allocate that take an allocator: OpenSSL, libuv, c-ares,
 * jansson, SQLite. They are given tb_library_* only in a process that asks for faults, so elsewhere
 * nothing stands between them and malloc. */
#ifndef TB_BASE_FAULT_H
#define TB_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

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

#endif

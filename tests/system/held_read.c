/* held_read.c - a worker that reads another process's memory slowly, for one that is started with
 * LD_PRELOAD: its first two reads of chunks pass, the others return when the file that
 * TB_HOLD_READ names is gone. With TB_DENY_READ it may read no other process's memory at all. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PASS        2u
#define CHUNK_BYTES 4096u /* and more: less is a look whether the memory can be read at all */

static atomic_uint reads;

static void hold(void)
{
    const char *path = getenv("TB_HOLD_READ");
    const struct timespec t = {0, 5000000};
    while (path != NULL && access(path, F_OK) == 0)
        nanosleep(&t, NULL);
}

__attribute__((visibility("default"))) ssize_t process_vm_readv(pid_t pid, const struct iovec *here,
                                                                unsigned long here_count,
                                                                const struct iovec *there,
                                                                unsigned long there_count,
                                                                unsigned long flags)
{
    if (getenv("TB_DENY_READ") != NULL) {
        errno = EPERM;
        return -1;
    }
    const bool chunk = here_count > 0 && here[0].iov_len >= CHUNK_BYTES;
    if (chunk && atomic_fetch_add(&reads, 1) >= PASS) hold();
    return syscall(SYS_process_vm_readv, pid, here, here_count, there, there_count, flags);
}

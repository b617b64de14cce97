#include "denied_readv.h"

#include <errno.h>
#include <sys/uio.h>

bool readv_denied;

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count, unsigned long flags);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count, unsigned long flags)
{
    if (!readv_denied) return __real_process_vm_readv(pid, here, here_count, there, there_count, flags);
    errno = EPERM;
    return -1;
}

/* disk_io.c - see disk_io.h. */
#include "gateway/disk/disk_io.h"

#include <errno.h>

#include "base/assert.h"
#include "base/system_calls.h"

bool tb_disk_read(int fd, uint64_t at, uint64_t count, void *out)
{
    uint8_t *to = out;
    TB_ASSERT(at <= INT64_MAX && count <= INT64_MAX - at); /* as off_t has it */
    while (count > 0) {
        errno = 0;
        const ssize_t got = tb_sys_pread(fd, to, count, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        TB_ASSERT((uint64_t)got <= count);
        to += got;
        at += (uint64_t)got;
        count -= (uint64_t)got;
    }
    return true;
}

bool tb_disk_write(int fd, uint64_t at, const void *bytes, uint64_t count)
{
    const uint8_t *from = bytes;
    TB_ASSERT(at <= INT64_MAX && count <= INT64_MAX - at);
    while (count > 0) {
        const ssize_t wrote = tb_sys_pwrite(fd, from, count, (off_t)at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        TB_ASSERT((uint64_t)wrote <= count);
        from += wrote;
        at += (uint64_t)wrote;
        count -= (uint64_t)wrote;
    }
    return true;
}

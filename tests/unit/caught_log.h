/* caught_log.h - a file in memory for tb_log_set, in which every line stands. Two threads that
 * write(2) to a memfd at once may begin at one place, and one line is lost (seen with Linux 6.1 and
 * 6.18): only of a file that was opened by a name do threads take turns at the place. A line
 * that is appended has its place from the file's end, under the inode's lock. */
#ifndef TB_TESTS_UNIT_CAUGHT_LOG_H
#define TB_TESTS_UNIT_CAUGHT_LOG_H

#include <fcntl.h>
#include <sys/mman.h>

#include "tests/unit/check.h"

/* Read it by pread; the caller closes it. */
static inline int caught_log_new(void)
{
    const int log = memfd_create("log", MFD_CLOEXEC);
    assert_true(log >= 0);
    assert_int_equal(fcntl(log, F_SETFL, O_APPEND), 0);
    return log;
}

#endif

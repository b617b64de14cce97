#include "base/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/system_calls.h"

uint32_t tb_cores_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int count = CPU_COUNT(&set);
    return count < 1 ? 1 : (uint32_t)count;
}

bool tb_machine_line(const char *path, char *line_out, size_t cap)
{
    TB_ASSERT(cap > 0);
    line_out[0] = '\0';
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    const ssize_t got = tb_sys_pread(fd, line_out, cap - 1, 0);
    close(fd);
    TB_ASSERT(got < (ssize_t)cap);
    line_out[got > 0 ? got : 0] = '\0';
    line_out[strcspn(line_out, "\n")] = '\0';
    return line_out[0] != '\0';
}

/* held_sync.c - a disk that takes its time, for a process that is started with LD_PRELOAD: fsync
 * and fdatasync return when the file that TB_HOLD_SYNC names is gone, and after
 * TB_DELAY_SYNC_MS. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fsync(int fd);
int fdatasync(int fd);

static void wait_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void hold(void)
{
    const char *path = getenv("TB_HOLD_SYNC"), *ms = getenv("TB_DELAY_SYNC_MS");
    if (ms != NULL) wait_ms(atol(ms));
    while (path != NULL && access(path, F_OK) == 0)
        wait_ms(5);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    hold();
    return (int)syscall(SYS_fsync, fd);
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    hold();
    return (int)syscall(SYS_fdatasync, fd);
}

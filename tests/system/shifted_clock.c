/* shifted_clock.c - a wall clock that a test sets, for a process that is started with LD_PRELOAD:
 * CLOCK_REALTIME is ahead of the machine's by the seconds that stand in the file which
 * TB_CLOCK_SHIFT names, as an int64 in memory. Other clocks are the machine's. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int (*gettime_fn)(clockid_t id, struct timespec *time_out);

static const _Atomic int64_t *shift_s; /* mapped: it may change */
static gettime_fn machines;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TB_CLOCK_SHIFT");
    void *found = dlsym(RTLD_NEXT, "clock_gettime");
    memcpy(&machines, &found, sizeof machines); /* ISO C knows no way from an encoded chunk to a function */
    const int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof *shift_s, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) shift_s = map;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *time_out);

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *time_out)
{
    if (machines == NULL) begin(); /* who asks before our constructor ran */
    const int failed = machines(id, time_out);
    if (failed == 0 && id == CLOCK_REALTIME && shift_s != NULL)
        time_out->tv_sec += atomic_load_explicit(shift_s, memory_order_relaxed);
    return failed;
}

/* OpenSSL looks at the dates of certificates by it: only where TB_CLOCK_DATES says so, as these are
 * of the machine's clock. */
__attribute__((visibility("default"))) time_t time(time_t *time_out)
{
    struct timespec now = {0};
    if (machines == NULL) begin();
    if (getenv("TB_CLOCK_DATES") != NULL)
        (void)clock_gettime(CLOCK_REALTIME, &now);
    else
        (void)machines(CLOCK_REALTIME, &now);
    if (time_out != NULL) *time_out = now.tv_sec;
    return now.tv_sec;
}

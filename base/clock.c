/* clock.c - time and randomness from the kernel. */
#include "base/clock.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

#include "base/assert.h"

tb_time_ns tb_clock_now(void)
{
    struct timespec t;
    const int failed = clock_gettime(CLOCK_MONOTONIC, &t);
    TB_ASSERT(!failed);
    return TB_SECONDS(t.tv_sec) + (tb_time_ns)t.tv_nsec;
}

uint64_t tb_clock_wall_ms(void)
{
    struct timespec t;
    const int failed = clock_gettime(CLOCK_REALTIME, &t);
    TB_ASSERT(!failed);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

void tb_random_bytes(void *out, uint32_t bytes)
{
    uint8_t *at = out;
    while (bytes > 0) {
        const ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR) continue;
        TB_ASSERT(got > 0); /* ids and tokens without randomness would be worse than no process */
        at += got;
        bytes -= (uint32_t)got;
    }
}

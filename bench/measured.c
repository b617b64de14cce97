#include "bench/measured.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

void measured_die(const char *what)
{
    perror(what);
    exit(1);
}

void measured_end(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

void *measured_given(void *memory)
{
    if (memory == NULL) measured_end("no memory");
    return memory;
}

uint64_t measured_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 27);
}

double measured_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#define PASSES_MAX 8
#define AGREE      0.05

double measured_pass_s(bool (*pass)(void *user), void *user, bool *steady_out)
{
    double last = 0;
    *steady_out = false;
    for (int i = 0; i < PASSES_MAX && !*steady_out; i++) {
        const double start = measured_now_s();
        if (!pass(user)) return -1;
        const double seconds = measured_now_s() - start;
        *steady_out = i > 0 && seconds <= last * (1 + AGREE) && last <= seconds * (1 + AGREE);
        last = seconds;
    }
    return last;
}

static uint8_t *filled(size_t bytes, int fill, int kind)
{
    uint8_t *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) measured_die("mmap");
    memset(m, fill, bytes);
    return m;
}

uint8_t *measured_memory(size_t bytes, int fill)
{
    return filled(bytes, fill, MAP_PRIVATE);
}

uint8_t *measured_shared_memory(size_t bytes, int fill)
{
    return filled(bytes, fill, MAP_SHARED);
}

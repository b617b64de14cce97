/* memory_copy.c - the floor under a pass over bytes: memcpy of --bytes, both ends cold, on one core.
 *
 * Source and target are populated first, so no page is made while the clock runs; at 1 GiB neither is in a cache.
 * Prints one JSON line: {"bytes", "seconds", "gb_per_s"}. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Written once, so that no page is the kernel's shared page of zeros. */
static uint8_t *memory_new(uint64_t bytes, int fill)
{
    uint8_t *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) {
        perror("memory_copy: mmap");
        exit(1);
    }
    memset(m, fill, bytes);
    return m;
}

int main(int argc, char **argv)
{
    if (argc != 1 && !(argc == 3 && strcmp(argv[1], "--bytes") == 0)) {
        fputs("Usage: tombolo-memory-copy [--bytes N]\nThe time of one cold memcpy, 1 GiB unless said "
              "otherwise.\n"
              "Example: tombolo-memory-copy --bytes 1073741824\n",
              stderr);
        return 2;
    }
    const uint64_t bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 1u << 30;
    if (bytes == 0) return 2;
    const uint8_t *from = memory_new(bytes, 1);
    uint8_t *to = memory_new(bytes, 2);

    const double start = now_s();
    memcpy(to, from, bytes);
    const double seconds = now_s() - start;

    if (memcmp(to, from, bytes) != 0) return 1; /* and no compiler may leave the copy out */
    printf("{\"bytes\": %llu, \"seconds\": %.6f, \"gb_per_s\": %.4f}\n", (unsigned long long)bytes, seconds,
           (double)bytes / seconds / 1e9);
    return 0;
}

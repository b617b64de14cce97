/* replay.c - runs a fuzz target without libFuzzer, in every preset and with every compiler:
 * each seed as it is, all its truncations while it is small, and some mutations that are
 * the same in every run.
 *
 * Covers: tests/fuzz/fuzz.h */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define SEED_BYTES_MAX  ((size_t)1 << 20)
#define TRUNCATIONS_MAX 2048u
#define MUTATIONS       500u

static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* On a copy of exactly this size, so that a sanitizer sees the first byte read past the end. */
static void run_copy(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count > 0 ? count : 1);
    if (copy == NULL) abort();
    if (count > 0) memcpy(copy, bytes, count);
    LLVMFuzzerTestOneInput(copy, count);
    free(copy);
}

static void run_mutations(uint8_t *bytes, size_t count)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    uint64_t seed = count;
    if (count == 0) return;
    for (unsigned i = 0; i < MUTATIONS; i++) {
        const size_t at = (size_t)(next_random(&seed) % count);
        const uint8_t was = bytes[at];
        const uint64_t pick = next_random(&seed);
        bytes[at] =
            pick % 2 == 0 ? values[pick / 2 % sizeof values] : (uint8_t)(was ^ (1u << (pick / 2 % 8)));
        run_copy(bytes, count);
        if (pick % 4 != 3) bytes[at] = was; /* a quarter of them stay, and add up */
    }
}

static void run_seed(const char *path)
{
    static uint8_t bytes[SEED_BYTES_MAX];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        exit(1);
    }
    const size_t count = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    fprintf(stderr, "seed %s bytes=%zu\n", path, count); /* the last one printed is the one that failed */
    run_copy(bytes, count);
    for (size_t cut = 0; cut < count && count <= TRUNCATIONS_MAX; cut++)
        run_copy(bytes, cut);
    run_mutations(bytes, count);
}

int main(int argc, char **argv)
{
    unsigned seeds = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            fprintf(stderr, "%s: no folder of seeds there; each fuzz target needs one\n", argv[i]);
            return 1;
        }
        for (const struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
            char path[4096];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            run_seed(path);
            seeds++;
        }
        closedir(folder);
    }
    run_copy(NULL, 0);
    printf("%u seeds\n", seeds);
    return seeds > 0 ? 0 : 1;
}

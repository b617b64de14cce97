/* memory_copy.c - the floor under a pass over bytes: memcpy of --bytes, both ends cold, on one
 * core.
 *
 * Source and target are populated first, so no page is made while the clock runs; at 1 GiB neither
 * is in a cache. Prints one JSON line: {"bytes", "seconds", "gb_per_s", "steady"}. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measured.h"

struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
};

static bool copied(void *user)
{
    const struct copy *c = user;
    memcpy(c->to, c->from, c->bytes);
    return true;
}

int main(int argc, char **argv)
{
    const bool asks = argc == 2 && strcmp(argv[1], "--help") == 0;
    if (argc != 1 && !(argc == 3 && strcmp(argv[1], "--bytes") == 0)) {
        fputs("Usage: tombolo-memory-copy [--bytes N]\nThe time of a cold memcpy, 1 GiB unless said "
              "otherwise: the last of two that agree within 5 %.\n"
              "Example: tombolo-memory-copy --bytes 1073741824\n",
              asks ? stdout : stderr);
        return asks ? 0 : 2;
    }
    const uint64_t bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 1u << 30;
    if (bytes == 0) return 2;
    struct copy c = {measured_memory(bytes, 2), measured_memory(bytes, 1), bytes};
    bool steady;
    const double seconds = measured_pass_s(copied, &c, &steady);

    if (memcmp(c.to, c.from, bytes) != 0) return 1; /* and no compiler may leave the copy out */
    printf("{\"bytes\": %llu, \"seconds\": %.6f, \"gb_per_s\": %.4f, \"steady\": %s}\n",
           (unsigned long long)bytes, seconds, (double)bytes / seconds / 1e9, steady ? "true" : "false");
    return 0;
}

/* world_shrink.c - the smallest faults with which a seed still fails: each is left out, then made as weak as can be. */
#include <stdio.h>
#include <string.h>

#include "world.h"

static bool fails(uint64_t seed, const uint32_t *most)
{
    world_run(seed, false, most);
    return the->failed;
}

static void weaken(uint64_t seed, uint32_t *most)
{
    for (uint32_t f = 0; f < FAULTS; f++) {
        const uint32_t was = most[f];
        for (most[f] = 0; most[f] < was && !fails(seed, most);)
            most[f]++;
    }
}

void world_shrink(uint64_t seed, const uint32_t *allowed)
{
    uint32_t most[FAULTS];
    memcpy(most, allowed, sizeof most);
    if (!fails(seed, most)) return;
    for (uint32_t f = 0; f < FAULTS; f++) /* what this seed never had needs no trial */
        most[f] = the->strength[f];
    weaken(seed, most);
    world_run(seed, true, most);
    printf("seed %llu fails: %s\nfaults needed:", (unsigned long long)seed, the->why);
    for (uint32_t f = 0; f < FAULTS; f++)
        if (most[f] != 0) printf(" %s=%u", fault_names[f], most[f]);
    printf("\nagain: tombolo-world --seed %llu --trace --faults ", (unsigned long long)seed);
    const char *comma = "";
    for (uint32_t f = 0; f < FAULTS; f++) {
        if (most[f] == 0) continue;
        printf("%s%s=%u", comma, fault_names[f], most[f]);
        comma = ",";
    }
    puts(*comma == '\0' ? "none" : "");
}

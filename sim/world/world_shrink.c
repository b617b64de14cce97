/* world_shrink.c - the smallest faults with which a seed still fails: each is left out, then
 * made as weak as can be. Each trial is a process of its own, as a seed may fail by a crash, or
 * by coming to no end. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "world.h"
#include "world_faults.h"
#include "world_run.h"

/* Trials that come to no end take their whole time: with what was found by then the trace is
 * shown. */
#define SHRINK_S 300

static bool weaken(uint64_t seed, struct trial_limits *l)
{
    const time_t until = time(NULL) + SHRINK_S;
    char why[WHY_BYTES];
    for (uint32_t f = 0; f < FAULTS; f++) {
        const uint32_t was = l->most[f];
        for (l->most[f] = 0; l->most[f] < was; l->most[f]++) {
            if (time(NULL) > until) {
                l->most[f] = was;
                return false;
            }
            if (world_trial(seed, false, l, why)) break;
        }
    }
    return true;
}

/* With which strengths it failed: what this seed never had needs no trial. */
static void had(uint64_t seed, struct trial_limits *l)
{
    memset(the, 0, sizeof *the);
    the->seed = seed;
    world_faults_draw(l->most);
    memcpy(l->most, the->strength, sizeof l->most);
}

void world_shrink(uint64_t seed, const struct trial_limits *limits)
{
    struct trial_limits l = *limits;
    char why[WHY_BYTES];
    had(seed, &l);
    const bool least = weaken(seed, &l);
    if (!world_trial(seed, true, &l, why)) { /* with other memory under it than it failed with */
        printf("seed %llu failed, and does not by itself\n", (unsigned long long)seed);
        return;
    }
    printf("seed %llu fails: %s\nfaults needed%s:", (unsigned long long)seed, why,
           least ? "" : " (there may be fewer)");
    for (uint32_t f = 0; f < FAULTS; f++)
        if (l.most[f] != 0) printf(" %s=%u", fault_names[f], l.most[f]);
    printf("\nagain: tombolo-world --seed %llu --trace --faults ", (unsigned long long)seed);
    const char *comma = "";
    for (uint32_t f = 0; f < FAULTS; f++) {
        if (l.most[f] == 0) continue;
        printf("%s%s=%u", comma, fault_names[f], l.most[f]);
        comma = ",";
    }
    puts(*comma == '\0' ? "none" : "");
}

/* world_faults.c - which faults a seed has, and how strong. Each draws from a stream of its own, so
 * that one that is taken away or made weaker leaves the others as they were. */
#include "world_faults.h"
#include "world.h"
#include "world_process.h"

const char *const fault_names[FAULTS] = {
#define X(name, text) text,
    FAULT_LIST(X)
#undef X
};

const char *const way_names[WAYS] = {
#define X(name, text) text,
    WAY_LIST(X)
#undef X
};

uint32_t world_strength(enum fault f)
{
    return the->faulty ? the->strength[f] : 0;
}

bool world_strikes(enum fault f, uint32_t per_100000)
{
    const uint32_t strength = world_strength(f);
    if (strength == 0 || world_draw(f, 100000) >= (uint64_t)per_100000 * strength) return false;
    the->struck[f]++;
    return true;
}

void world_faults_draw(const uint32_t *most)
{
    for (uint32_t f = 0; f < FAULTS; f++) {
        the->chances[f] = world_stream(the->seed, f);
        const bool on = world_draw((enum fault)f, 2) == 1;
        const uint32_t strength = 1 + (uint32_t)world_draw((enum fault)f, STRENGTH_MAX);
        the->strength[f] = !on ? 0 : strength < most[f] ? strength : most[f];
    }
}

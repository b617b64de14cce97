/* world_met.c - the faults and ways that the seeds of a run met. A fault that no seed of 10,000
 * meets is never tried: that is a failure. */
#include "world_met.h"
#include "world_run.h"

#define WINDOW     10000u
#define WINDOW_MIN 1000u /* of fewer seeds nothing is asked */

uint64_t world_met_counts(uint64_t seeds)
{
    return (seeds / WINDOW + 1) * MET;
}

void world_met_add(const struct world_met *m, uint64_t seed, uint64_t met)
{
    uint32_t *counts = &m->counts[seed / WINDOW * MET];
    for (uint32_t i = 0; i < MET; i++)
        counts[i] += met >> i & 1;
}

uint64_t world_met_by(const struct world_met *m, uint32_t which)
{
    uint64_t seeds = 0;
    for (uint64_t i = which; i < world_met_counts(m->seeds); i += MET)
        seeds += m->counts[i];
    return seeds;
}

/* Of the last window's seeds there may be too few to ask. */
static bool is_missed(const struct world_met *m, uint64_t i)
{
    const uint64_t first = i / MET * WINDOW;
    const uint32_t which = i % MET;
    const bool off = which < FAULTS && m->most[which] == 0;
    return first + WINDOW_MIN <= m->seeds && !off && m->counts[i] == 0;
}

bool world_met_missed(const struct world_met *m, uint64_t *at, struct world_missed *missed_out)
{
    for (; *at < world_met_counts(m->seeds); (*at)++) {
        if (!is_missed(m, *at)) continue;
        *missed_out = (struct world_missed){.which = *at % MET, .first = *at / MET * WINDOW};
        (*at)++;
        return true;
    }
    return false;
}

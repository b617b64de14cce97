/* world_met.h - which faults and ways the seeds of a run met, ten thousand by ten thousand.
 * Pure. */
#ifndef TB_SIM_WORLD_MET_H
#define TB_SIM_WORLD_MET_H

#include "world.h"

struct world_met {
    uint64_t seeds;       /* of the run */
    const uint32_t *most; /* of faults, the strength that is allowed; 0: it is off, and nobody asks for it */
    uint32_t *counts;     /* world_met_counts() of them, zero at first; the caller's */
};

struct world_missed {
    uint32_t which; /* a fault, or FAULTS + a way */
    uint64_t first; /* by no seed from this on, counted from the run's first */
};

uint64_t world_met_counts(uint64_t seeds);
/* A seed has ended. seed: counted from the run's first; met: a bit each. */
void world_met_add(const struct world_met *m, uint64_t seed, uint64_t met);
uint64_t world_met_by(const struct world_met *m, uint32_t which); /* so many seeds of the run */
/* One that no seed of a window met; *at: 0 at first. False: there is none, or no more. */
bool world_met_missed(const struct world_met *m, uint64_t *at, struct world_missed *missed_out);

#endif

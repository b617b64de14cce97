/* world_run.h - one seed, many, and the smallest that fails. A part of the world (world.h). */
#ifndef TB_SIM_WORLD_RUN_H
#define TB_SIM_WORLD_RUN_H

#include "world.h"

/* world_run.c */
/* A mistake of the world's own, to see that it is found and told: once a gateway was killed, it
 * crashes or comes to no end. */
enum world_plant { PLANT_NONE, PLANT_CRASH, PLANT_HANG };
extern enum world_plant world_plant;
void world_run(uint64_t seed, bool trace, const uint32_t *most);

/* world_trial.c */
struct trial_limits {
    uint32_t most[FAULTS]; /* strengths */
    uint32_t cpu_s;        /* of a seed */
};
/* A seed in a process of its own. True: it failed, and why; of a crash the trace
 * ends where it happened. */
bool world_trial(uint64_t seed, bool trace, const struct trial_limits *l, char why_out[WHY_BYTES]);
void world_trial_begin(uint32_t cpu_s); /* from here on a seed has so long; then the process ends */
bool world_trial_why(int status, char why_out[WHY_BYTES]); /* of waitpid; false: it ended as it should */

/* world_jobs.c */
#define JOBS_MAX 64u
#define MET      (FAULTS + WAYS) /* what is counted: faults, then ways */
struct world_result {            /* of one seed */
    uint64_t seed, hash;
    uint64_t met; /* faults that struck and ways that were gone, a bit each */
    bool failed;
    char why[WHY_BYTES];
};
struct world_jobs {
    uint64_t from, seeds, jobs;
    struct trial_limits limits;
    bool (*ended)(void *user, const struct world_result *r); /* false: that is enough */
    void *user;
};
bool world_jobs(
    const struct world_jobs *w); /* false: no process, or one that is ended from outside between two seeds */

/* world_shrink.c */
void world_shrink(uint64_t seed, const struct trial_limits *limits); /* prints */

#endif

/* trays_scene.h - what tests of trays share: hops to a device, and what is left of them. */
#ifndef TB_TESTS_INTRA_TRAYS_SCENE_H
#define TB_TESTS_INTRA_TRAYS_SCENE_H

#include "island_far.h"
#include "scene.h"

#define PATIENT_MS 60000u

/* A question to the owner, which is another process. */
int64_t trays_ask(const struct scene *s, enum far_op op);
/* Nothing of a hop is left at either end. */
void trays_check_nothing_left(struct scene *s);

#endif

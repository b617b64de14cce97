/* world_faults.h - faults: drawn, and struck. A part of the world (world.h). */
#ifndef TB_SIM_WORLD_FAULTS_H
#define TB_SIM_WORLD_FAULTS_H

#include "world.h"

/* world_faults.c; fault_link.c, fault_process.c, fault_disk.c */
uint32_t world_strength(enum fault f);                 /* 0: off, or faults have stopped */
bool world_strikes(enum fault f, uint32_t per_100000); /* times its strength; counted */
uint64_t world_draw(enum fault f, uint64_t below);
void world_faults_draw(const uint32_t *most); /* coins and strengths of this seed, none over `most` */
void world_fault_link_step(void);
void world_fault_process_step(void);
void world_fault_disk_step(void);

#endif

/* world_process.h - processes, chance, and words of the trace. A part of the world (world.h). */
#ifndef TB_SIM_WORLD_PROCESS_H
#define TB_SIM_WORLD_PROCESS_H

#include "world.h"

/* world_process.c */
uint64_t world_random(uint64_t below);
/* Where a stream of draws begins: far from those of the next seed, of which it would else be a
 * part. */
uint64_t world_stream(uint64_t seed, uint32_t number);
struct tb_id world_id(void);
struct process *world_process_new(enum process_kind kind, uint32_t site, const char *name);
void world_process_start(struct process *p);
void world_process_end(struct process *p, bool machine); /* SIGKILL; machine: without a word to its peers */
bool world_process_runs(const struct process *p);        /* alive and not stopped */
__attribute__((format(printf, 1, 2))) void world_say(const char *format, ...);
__attribute__((format(printf, 1, 2))) void world_fail(const char *format, ...);

#endif

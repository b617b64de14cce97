/* world_machine.h - the machine under the processes: timers, connections, arenas, stores, threads,
 * READs. A part of the world (world.h). */
#ifndef TB_SIM_WORLD_MACHINE_H
#define TB_SIM_WORLD_MACHINE_H

#include "world.h"

/* world_uv.c */
bool world_uv_run(struct process *p); /* what is due; true: something was */

/* world_chan.c */
bool world_chan_run(void);
uint32_t world_chan_count(const struct process *p); /* connections that it has an end of */
void world_chan_process_ended(struct process *p, uint32_t life, bool machine);
void world_connections_break(uint32_t a, uint32_t b, bool all); /* one stream, or all, of a pair of sites */
void world_connections_sweep(void);
void world_connections_free(void);
uint64_t world_connections_bytes(const struct process *p);

/* world_arena.c */
void world_arena_new(struct arena_file *f); /* an empty one, with a new life */
void world_arena_drop(struct arena_file *f);
bool world_arena_rot(struct arena_file *f); /* a held chunk is wrong: it was found by re-verification */
uint64_t world_arena_held(const struct arena_file *f, uint32_t version, uint32_t shard);
/* For longer than `least`. */
uint64_t world_arena_held_for(const struct arena_file *f, uint32_t version, uint32_t shard, tb_time_ns least);
void world_arena_check(struct site *s);

/* world_store.c */
void world_store_write_lost(struct store_file *f, uint32_t writes);

/* world_fabric.c */
bool world_fabric_run(struct process *p);

/* world_threads.c */
void world_threads_run(struct process *p);
void world_adopt_step(struct site *s);

/* world_shelves.c */
void world_shelves_run(struct process *p);

#endif

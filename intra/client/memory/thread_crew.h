/* thread_crew.h - the bounded threads for passes over bytes: many small pieces of one job, or one
 * task in background. A shell.
 *
 * A job's caller works too, so a job never waits for a busy pool: it is only slower. Pieces are
 * handed out one at a time by an atomic counter, so a slow core does not hold up the others.
 *
 * Threads: every call may come from any thread; several jobs may run at once. */
#ifndef TB_INTRA_CLIENT_CREW_H
#define TB_INTRA_CLIENT_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

#define TB_CREW_THREADS_MAX 256

struct tb_crew;

/* piece: index of the work, below count. slot: the worker, below tb_crew_slots, for scratch memory:
 * no two at once have the same in one job. */
typedef void (*tb_crew_fn)(void *user, uint32_t piece, uint32_t slot);

/* 0 threads: as many as the process may use cores. TB_SITE_NOMEM: no thread could be made. */
TB_MUST_USE enum tb_status tb_crew_new(uint32_t threads, struct tb_crew **crew_out);
void tb_crew_free(struct tb_crew *crew); /* no job may run; tasks that were given are done first */

uint32_t tb_crew_slots(const struct tb_crew *crew);
/* Returns when fn ran once for each of 0 .. count - 1. */
void tb_crew_run(struct tb_crew *crew, uint32_t count, tb_crew_fn fn, void *user);
/* The same for what nobody waits for, between such jobs: it ends early, after the pieces in hand,
 * where tb_crew_run has pieces that nobody took. Returns how many were run, the first ones; the
 * caller goes on with the rest in a task that it submits. */
TB_MUST_USE uint32_t tb_crew_run_between(struct tb_crew *crew, uint32_t count, tb_crew_fn fn, void *user);
/* fn(user, 0, 0) on a thread of the crew, some time; the owner learns of its end from fn itself.
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_crew_submit(struct tb_crew *crew, tb_crew_fn fn, void *user);

#endif

/* arena_prover.h - the proofs of chunks that land at home, made by a thread behind the landing.
 *
 * BLAKE3 takes a core longer than all else of a chunk that lands. Where one thread lands all
 * chunks, it would hold up the chunks behind it, and the links that wait for them. So there a
 * thread that rests half of the time makes the proofs, while landing goes on and after it. On a
 * larger machine the threads that land chunks prove them side by side, and this one is not started.
 *
 * A version is whole before it is proven. It is signed once it is proven, and readers hear of it
 * then (links/home_statements.c). */
#ifndef TB_GATEWAY_PROVER_H
#define TB_GATEWAY_PROVER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct tb_config;
struct tb_daemon;

struct tb_arena_prover {
    pthread_t thread;
    sem_t due;
    bool runs;
    bool moved; /* in the tick before this one */
    _Atomic bool asked, stop;
    _Atomic bool proved; /* shards, since the main loop looked: versions may be ready to be signed */
};

/* That land chunks from ranks; the other half of the cores is for links. */
uint32_t tb_arena_prover_threads(const struct tb_config *config);
/* Behind tb_arena_open, ahead of tb_arena_prove. Without a thread the arena proves as chunks
 * land. */
void tb_arena_prover_start(struct tb_daemon *d);
/* In each tick. `moves`: chunks land. */
void tb_arena_prover_ask(struct tb_daemon *d, bool moves);
/* A copy is whole, or readers wait for one: a small version lands between two ticks, which then saw
 * nothing move. */
void tb_arena_prover_due(struct tb_daemon *d);
void tb_arena_prover_end(struct tb_daemon *d); /* also where it was not started */

#endif

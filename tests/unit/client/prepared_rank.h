/* prepared_rank.h - a rank whose memory is prepared in background, and what a test holds of that:
 * pieces, tasks and the crew's one worker. */
#ifndef TB_TESTS_PREPARED_RANK_H
#define TB_TESTS_PREPARED_RANK_H

#include <pthread.h>

#include "intra/client/memory/reserve.h"
#include "intra/client/session/session.h"
#include "unit/client/fake_gateway.h"

#define PREPARED_TENSOR ((uint64_t)80 << 20)
#define PREPARED_PIECES 5u
#define PREPARED_PIECE  TB_SHARED_PIECE_BYTES
#define PREPARED_NONE   UINT32_MAX

/* A task that has the crew's one worker until it is let go. */
struct prepared_blocker {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool runs, ends, gone;
};

struct prepared_rank {
    struct fake f;
    struct tb_session *s;
    struct tb_registration *r;
    struct tb_run_info run;
    uint8_t *memory;
    int published; /* by a thread */
};

/* The thread that makes this piece of a shadow stands still; what was made is counted anew. */
void prepared_hold(uint32_t piece);
void prepared_let_go(void);
void prepared_wait_held(void);
void prepared_wait_filled(uint32_t count);
uint32_t prepared_filled_now(void);
/* After so many. */
void prepared_refuse_submits(uint32_t after);
void prepared_block_worker(struct tb_session *s, struct prepared_blocker *b);
void prepared_unblock_worker(struct prepared_blocker *b);
struct tb_session *prepared_session_of(struct fake *f, bool no_prepare);
void prepared_rank_open(struct prepared_rank *k, bool no_prepare);
void prepared_rank_close(struct prepared_rank *k);
struct tb_publish_options prepared_options_of(struct prepared_rank *k, uint64_t number);
void prepared_prepare(struct prepared_rank *k);
int prepared_publish(struct prepared_rank *k, uint64_t number);
void *prepared_publish_one(void *user);
void *prepared_unregister_it(void *user);
/* Until no reserve of the session is at work. */
void prepared_wait_prepared(struct tb_session *s);
void prepared_wait_ending(struct tb_session *s);
struct tb_reserve_counts prepared_counts_of(struct tb_session *s);
uint32_t prepared_reserves_of(struct tb_session *s);
void prepared_must_say(struct tb_session *s, const char *words);
/* The gateway has read the version, and it is the rank's. */
void prepared_must_land(struct prepared_rank *k, uint64_t number);

#endif

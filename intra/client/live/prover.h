/* prover.h - the thread of a session that compares the bytes that rollouts compute from with the
 * sealed ones. It begins with the first run, has a low priority, and rests most of the time. A
 * shell. */
#ifndef TB_INTRA_CLIENT_PROVER_H
#define TB_INTRA_CLIENT_PROVER_H

#include <pthread.h>
#include <stdbool.h>

struct tb_session;

/* A member of the session; under its lock. */
struct tb_prover {
    bool started, stop;
    pthread_t thread;
};

/* Under the lock: there may be a run. Without a thread it waits for the next call. */
void tb_prover_wake(struct tb_session *s);
/* Without the lock. After it no unit is looked at. */
void tb_prover_end(struct tb_session *s);

#endif

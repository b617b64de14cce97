/* coalesce.h - one thread does the work that several threads ask for at the same time, for all that
 * wait. For work that takes as long for many as for one, as a launch of a GPU's kernel does. A
 * shell.
 *
 * A thread that asks while the work is done waits for the next round, as its request had not begun
 * when this round did. Threads: tb_together_ask from any; the others when nobody asks. */
#ifndef TB_INTRA_TOGETHER_H
#define TB_INTRA_TOGETHER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

#define TB_TOGETHER_MAX 64u /* at a time */

/* The first member of what is asked. */
struct tb_asked {
    struct tb_asked *next;
    enum tb_status status; /* of the time that it was of */
    bool done;
};
/* Does what all of them ask, on the thread of one. */
typedef enum tb_status (*tb_together_fn)(void *user, struct tb_asked *const *all, uint32_t count);

struct tb_together {
    tb_together_fn fn;
    void *user;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool busy;
    struct tb_asked *first, **last; /* that wait */
};

void tb_together_init(struct tb_together *t, tb_together_fn fn, void *user);
void tb_together_fini(struct tb_together *t);
/* Returns when it is done. */
TB_MUST_USE enum tb_status tb_together_ask(struct tb_together *t, struct tb_asked *mine);

#endif

/* life_walk.h - every pair of state and event of a life's table. A pair that the table refuses ends
 * the process: a child takes each step. */
#ifndef TB_TESTS_UNIT_LIFE_WALK_H
#define TB_TESTS_UNIT_LIFE_WALK_H

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/check.h"

struct life_walk {
    int lives, events;
    int (*expected)(int life, int event); /* the state behind the event; `lives`: the pair is refused */
    int (*after)(int life, int event);    /* what the table says */
    int (*step)(int life, int event);     /* the state that the step leads to; in the child */
};

/* True: a child went on behind this pair, to the state that is expected. */
static inline bool life_walk_takes(const struct life_walk *w, int life, int event)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(STDERR_FILENO);
        _exit(w->step(life, event) == w->expected(life, event) ? 0 : 1);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (WIFSIGNALED(ended)) assert_int_equal(WTERMSIG(ended), SIGABRT);
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

static inline void life_walk_pairs(const struct life_walk *w)
{
    for (int life = 0; life < w->lives; life++)
        for (int event = 0; event < w->events; event++)
            if (w->after(life, event) != w->expected(life, event))
                fail_msg("state %d on event %d: %d", life, event, w->after(life, event));
}

static inline void life_walk_steps(const struct life_walk *w)
{
    for (int life = 0; life < w->lives; life++)
        for (int event = 0; event < w->events; event++)
            assert_int_equal(life_walk_takes(w, life, event), w->expected(life, event) != w->lives);
}

#endif

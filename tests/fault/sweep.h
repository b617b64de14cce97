/* sweep.h - a round of work is run once to count its calls, then again with each of them failing:
 * once, and once and from then on. A round says whether it did all of its work; `check` looks,
 * without the fault, whether that was so and what was left behind. No descriptor may be left, and a
 * sanitized build looks for memory. */
#ifndef TB_TESTS_SWEEP_H
#define TB_TESTS_SWEEP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fault.h"
#include "tests/fault/calls.h"
#include "tests/unit/check.h"

struct sweep {
    void (*prepare)(void *world);          /* before the fault; may be NULL */
    bool (*round)(void *world);            /* with the fault */
    void (*check)(void *world, bool done); /* after it; `done` as the round said */
    void *world;
    bool without_libraries; /* libuv ends the process where a table of its own cannot grow */
    /* bits of base/fault.h's points: when they fail for good a call waits its whole time */
    uint64_t once_only;
    uint64_t passed_over; /* bits of functions of libc that make it wait for long, by design */
    uint64_t
        most; /* calls of a point that are all tried; as many more are spread over the rest (sweep_next) */
    unsigned tried, refused;
};

/* A round that waits does so for long where nothing is to go wrong, on however slow a machine. */
static bool sweep_faulty;
#define SWEEP_PATIENCE_MS(short_ms) (sweep_faulty ? (short_ms) : 30000u)

#define SWEEP_POINTS                (TB_FAULT_COUNT + TB_CALLS_END) /* base/fault.h's, then libc's */

static inline const char *sweep_name(int point)
{
    static const char *const names[] = {
#define SWEEP_NAME(name) #name,
        TB_FAULT_POINTS(SWEEP_NAME)
#undef SWEEP_NAME
    };
    return point < TB_FAULT_COUNT ? names[point] : tb_calls_name((enum tb_call)(point - TB_FAULT_COUNT));
}

static inline void sweep_arm(int point, uint64_t nth, bool sticky)
{
    if (point < TB_FAULT_COUNT)
        tb_fault_arm((enum tb_fault_point)point, nth == 0 ? UINT64_MAX : nth, sticky);
    else
        tb_calls_arm((enum tb_call)(point - TB_FAULT_COUNT), nth, sticky);
}

/* So far; it stays armed. */
static inline uint64_t sweep_calls(int point)
{
    return point < TB_FAULT_COUNT ? tb_fault_calls((enum tb_fault_point)point)
                                  : tb_calls_count((enum tb_call)(point - TB_FAULT_COUNT));
}

static inline uint64_t sweep_disarm(int point)
{
    if (point >= TB_FAULT_COUNT) return tb_calls_disarm((enum tb_call)(point - TB_FAULT_COUNT));
    const uint64_t calls = tb_fault_calls((enum tb_fault_point)point);
    tb_fault_arm((enum tb_fault_point)point, 0, false);
    return calls;
}

static inline unsigned sweep_open_fds(void)
{
    unsigned count = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL)
        count++;
    closedir(d);
    return count;
}

static inline void sweep_one(struct sweep *s, int point, uint64_t nth, bool sticky)
{
    const unsigned before = sweep_open_fds();
    fprintf(stderr, "%s:%u%s\n", sweep_name(point), (unsigned)nth,
            sticky ? "+" : ""); /* the last is the one that failed */
    if (s->prepare != NULL) s->prepare(s->world);
    sweep_faulty = true;
    sweep_arm(point, nth, sticky);
    const bool done = s->round(s->world);
    (void)sweep_disarm(point);
    sweep_faulty = false;
    s->check(s->world, done);
    s->tried++;
    s->refused += !done;
    if (sweep_open_fds() != before)
        fail_msg("%s:%d%s left a descriptor", sweep_name(point), (int)nth, sticky ? "+" : "");
}

/* The call after k that is tried. Of those behind the first `most`, which ones depends on
 * TB_FAULT_TURN, which tests/run takes from the commit: so over time all of them. TB_FAULT_ALL:
 * each, which takes minutes (label `long`). */
static inline uint64_t sweep_next(const struct sweep *s, int point, uint64_t k, uint64_t calls)
{
    const char *turn = getenv("TB_FAULT_TURN");
    if (getenv("TB_FAULT_ALL") != NULL || k < s->most || calls < 2 * s->most) return k + 1;
    const uint64_t stride = (calls - s->most) / s->most;
    if (k > s->most) return k + stride;
    return k + 1 + (turn != NULL ? strtoull(turn, NULL, 10) + (uint64_t)point * 7919 : 0) % stride;
}

static inline void sweep_good(const struct sweep *s)
{
    if (s->prepare != NULL) s->prepare(s->world);
    assert_true(s->round(s->world));
    s->check(s->world, true);
}

static inline void sweep_run(struct sweep *s)
{
    sweep_good(s); /* what libraries make once a process is made here */
    for (int point = 0; point < SWEEP_POINTS; point++) {
        if (point == TB_FAULT_library && s->without_libraries) continue;
        if (point >= TB_FAULT_COUNT && (s->passed_over >> (point - TB_FAULT_COUNT) & 1) != 0) continue;
        if (s->prepare != NULL) s->prepare(s->world);
        sweep_arm(point, 0, false);
        assert_true(s->round(s->world));
        const uint64_t calls = sweep_disarm(point);
        s->check(s->world, true);
        for (uint64_t k = 1; k <= calls; k = sweep_next(s, point, k, calls)) {
            sweep_one(s, point, k, false);
            if (point >= TB_FAULT_COUNT || (s->once_only >> point & 1) == 0) sweep_one(s, point, k, true);
        }
    }
    sweep_good(s); /* none of it spoiled what comes after */
    printf("%u rounds with a fault, %u refused\n", s->tried, s->refused);
    assert_true(s->refused > 0);
}

#endif

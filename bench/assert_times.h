/* assert_times.h - the time that asserts take. A build with TB_ASSERTS_TIMED includes this before
 * each source file: TB_ASSERT then reads the processor's counter before and after its expression,
 * and TB_CHECK reads the thread's CPU time. Nobody ships such a build; bench/asserts makes and runs
 * it.
 *
 * A process has its sums, a row for each place in the code, in a file of its own that is mapped:
 * $TB_ASSERTS_DIR/PID, and PID.1 where its program and a library of it both have base/. So they are
 * there however the process ends, and can be read while it runs. Without that variable nothing is
 * kept. The file is made before main, so before any sandbox.
 *
 * Inside of a walk that TB_CHECK times, TB_ASSERT takes no time of its own. */
#ifndef TB_BENCH_ASSERT_TIMES_H
#define TB_BENCH_ASSERT_TIMES_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define TB_ASSERT_ROWS       8192 /* in one file; places beyond them share the last one */
#define TB_ASSERT_TEXT_BYTES 96
/* A longer reading is counted apart: the thread was probably interrupted meanwhile. */
#define TB_ASSERT_LONG_NS 50000

/* bench/asserts reads these two by their layout. */
struct tb_assert_row {
    char place[TB_ASSERT_TEXT_BYTES]; /* FILE:LINE, the end of it */
    char expression[TB_ASSERT_TEXT_BYTES];
    _Atomic uint64_t count, ticks;           /* of a walk: nanoseconds of CPU time */
    _Atomic uint64_t long_count, long_ticks; /* of those over TB_ASSERT_LONG_NS; not in the two above */
    uint64_t is_walk;
};

struct tb_assert_times {
    char program[TB_ASSERT_TEXT_BYTES];
    uint64_t ticks_per_s;
    uint64_t inside_ticks; /* of a reading alone: what the least of an empty assert's adds to its row */
    uint64_t whole_ps;     /* picoseconds that an empty assert takes in all, the least */
    _Atomic uint64_t cpu_ns, user_ns; /* of the process; at its end, and each 50 ms before that */
    _Atomic uint64_t used;            /* rows */
    struct tb_assert_row rows[TB_ASSERT_ROWS];
};

/* One in the code. */
struct tb_assert_place {
    const char *file;
    int line;
    const char *expression;
    _Atomic(struct tb_assert_row *) row; /* NULL: nothing passed here yet */
};

extern _Thread_local unsigned tb_assert_walks; /* that this thread is inside of */

void tb_assert_took(struct tb_assert_place *place, uint64_t began, uint64_t ended);
uint64_t tb_assert_walk_begins(void);
void tb_assert_walk_ends(struct tb_assert_place *place, uint64_t began);

/* tb_assert_ticks(): all work before it has ended, and none behind it has begun. */
#if defined(__x86_64__)
static inline uint64_t tb_assert_ticks(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
}
#elif defined(__aarch64__)
static inline uint64_t tb_assert_ticks(void)
{
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
    return ticks;
}
#else
static inline uint64_t tb_assert_ticks(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
#endif

#define TB_ASSERT_PLACE(text)                                                                                \
    {                                                                                                        \
        .file = __FILE__, .line = __LINE__, .expression = (text)                                             \
    }

#define TB_ASSERT(condition)                                                                                 \
    do {                                                                                                     \
        if (tb_assert_walks > 0) {                                                                           \
            if (!(condition)) tb_assert_failed(__FILE__, __LINE__, #condition);                              \
        } else {                                                                                             \
            static struct tb_assert_place tb_place_of_it = TB_ASSERT_PLACE(#condition);                      \
            const uint64_t tb_began_at = tb_assert_ticks();                                                  \
            if (!(condition)) tb_assert_failed(__FILE__, __LINE__, #condition);                              \
            tb_assert_took(&tb_place_of_it, tb_began_at, tb_assert_ticks());                                 \
        }                                                                                                    \
    } while (0)

#define TB_CHECK(walk)                                                                                       \
    do {                                                                                                     \
        static struct tb_assert_place tb_place_of_it = TB_ASSERT_PLACE(#walk);                               \
        const uint64_t tb_began_at = tb_assert_walk_begins();                                                \
        (walk);                                                                                              \
        tb_assert_walk_ends(&tb_place_of_it, tb_began_at);                                                   \
    } while (0)

#include "base/assert.h"

#endif

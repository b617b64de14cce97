/* tuner.h - how many streams one way of a link uses, and which congestion control.
 *
 * Pure. The sending side has one for each link, asked a few times a second with the bytes and
 * streams that it saw.
 *
 * The congestion control follows from the path. From TB_TUNER_LONG on it is bbr where the kernel
 * offers it, because bbr keeps its rate through losses and through silence. Below it is cubic,
 * whose sending costs fewer cores. docs/benchmarks.md has the measurements.
 *
 * The number begins where it was last on this path, or at rate x RTT / window. While a full copy
 * crosses it is searched. The utility of n streams is their goodput / 1.02^n, so one more has to
 * bring 2 % more (the utility of Falcon, Arifuzzaman and Arslan, 2023). A try goes half of the
 * number up or down. One whose utility is not over 2 % more is taken back, and after one each way
 * the number is settled.
 *
 * A settled number is searched again when its goodput was below three quarters of what it had
 * been, or above four thirds, for three looks in a row, and not more often than every 30 s. So at
 * a steady state nothing changes.
 *
 * Where fewer come up than are wanted, those have to do. A minute later the others are tried
 * again, then 2, 4 ... 60 minutes later (P6: a path that was broken for some seconds is not slow
 * for good).
 *
 * Promise P6. Kept by tests/unit/wan/tuner.c and tests/fault/tuner_events.c. */
#ifndef TB_WAN_TUNER_H
#define TB_WAN_TUNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

#define TB_TUNER_STREAMS_MAX 64u
#define TB_TUNER_LONG        TB_MS(5) /* RTT */

enum tb_congestion { TB_CONGESTION_SYSTEM, TB_CONGESTION_BBR, TB_CONGESTION_CUBIC };

struct tb_tuner_options {
    uint32_t streams; /* always so many; 0: searched */
    uint32_t cores;   /* that streams run on */
    bool bbr, cubic;  /* offered */
};

struct tb_tuner_seen {
    tb_time_ns now;
    tb_time_ns rtt;        /* 0: not known */
    uint64_t bytes;        /* put on the link's streams since ever */
    uint64_t window_bytes; /* that the kernel lets one connection have under way, now; 0: not known */
    uint32_t usable;       /* streams that are open */
    bool full;             /* since the last look there was always something to send */
};

enum tb_tuner_state {
    TB_TUNER_SETTLED,
    TB_TUNER_WARMING, /* a number was changed: windows grow */
    TB_TUNER_LOOKING  /* what does it bring? */
};

struct tb_tuner {
    struct tb_tuner_options options;
    enum tb_tuner_state state;
    bool searched;         /* the number was settled by a search, not by arithmetic */
    uint32_t streams;      /* now */
    tb_time_ns rtt;        /* the least seen */
    uint64_t window_bytes; /* seen last */
    tb_time_ns until;      /* of warming or looking */
    tb_time_ns settled_at;
    uint64_t from_bytes;
    tb_time_ns from;
    uint32_t best;          /* the number to go back to; 0: not looked at yet */
    uint64_t best_rate;     /* bytes/s with it */
    uint32_t ceiling;       /* more than so many do not come up */
    tb_time_ns short_since; /* fewer than wanted are open; 0: no */
    tb_time_ns seen_at;     /* the last look */
    /* Under a ceiling: when more are tried again, how long after the last time, and how
     * many there were before. */
    tb_time_ns more_at, more_after;
    uint32_t high_streams;
    uint32_t low_ceiling, low_streams; /* while they are: what to go back to; 0: they are not */
    int direction;                     /* of the step that is tried: 1, -1; 0: none */
    bool turned;                       /* the other direction need not be tried any more */
    uint32_t other;                    /* looks in a row that were: it brought much less or more */
};

void tb_tuner_init(struct tb_tuner *t, const struct tb_tuner_options *options);
/* The number that an earlier process found on this path: begun with, and searched again only where
 * it brings much less. Before the first look. */
void tb_tuner_recall(struct tb_tuner *t, uint32_t streams, uint64_t bytes_per_s);
/* Asserts what holds of it between two calls. */
void tb_tuner_check(const struct tb_tuner *t);
/* How many streams are used from now on. */
uint32_t tb_tuner_look(struct tb_tuner *t, const struct tb_tuner_seen *seen);
/* For an RTT; SYSTEM where neither is offered. */
enum tb_congestion tb_tuner_congestion(const struct tb_tuner_options *options, tb_time_ns rtt);
/* rate x RTT / window: streams that it takes because of the window. */
uint32_t tb_tuner_by_window(uint64_t bytes_per_s, tb_time_ns rtt, uint64_t window_bytes);

#endif

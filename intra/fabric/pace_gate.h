/* pace_gate.h - one direction of an emulated NIC, and the line of hops that wait for bytes. Inside
 * intra/ only. */
#ifndef TB_INTRA_PACE_GATE_H
#define TB_INTRA_PACE_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "base/time.h"
#include "intra/hop/token_bucket.h"

struct tb_fabric;

/* One direction of the emulated NIC. A waiter that gets no bytes stands in line, and the alarm
 * serves the line. */
struct tb_pace_waiter {
    TAILQ_ENTRY(tb_pace_waiter) link;
    void (*ready)(struct tb_pace_waiter *waiter); /* a grant is there: move on */
    bool waiting;
    size_t granted; /* bytes that are its own to use */
};

struct tb_pace_gate {
    struct tb_pace pace;
    TAILQ_HEAD(, tb_pace_waiter) line;
};

/* How much of `want` may go now; 0: the waiter stands in line, and ready is called. */
size_t tb_pace_gate_take(struct tb_fabric *f, struct tb_pace_gate *gate, struct tb_pace_waiter *waiter,
                         size_t want);
void tb_pace_gate_leave(struct tb_pace_gate *gate, struct tb_pace_waiter *waiter);
/* Grants bytes to those in line; when the next of them can have some. */
tb_time_ns tb_pace_gate_serve(struct tb_pace_gate *gate, tb_time_ns now);

#endif

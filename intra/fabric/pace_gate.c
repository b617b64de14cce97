/* pace_gate.c - one direction of the emulated NIC: bytes are granted in the order in which they
 * were asked for. fabric.c's alarm serves the line. */
#include "base/assert.h"
#include "base/clock.h"
#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"

tb_time_ns tb_pace_gate_serve(struct tb_pace_gate *gate, tb_time_ns now)
{
    struct tb_pace_waiter *w;
    while ((w = TAILQ_FIRST(&gate->line)) != NULL) {
        TB_ASSERT(w->waiting);
        const size_t granted = tb_pace_take(&gate->pace, TB_PACE_QUANTUM_BYTES, now);
        if (granted == 0) return tb_pace_ready_at(&gate->pace, TB_PACE_QUANTUM_BYTES, now);
        TAILQ_REMOVE(&gate->line, w, link);
        w->waiting = false;
        w->granted += granted;
        w->ready(w);
    }
    return TB_TIME_NEVER;
}

size_t tb_pace_gate_take(struct tb_fabric *f, struct tb_pace_gate *gate, struct tb_pace_waiter *waiter,
                         size_t want)
{
    TB_ASSERT(waiter->ready != NULL);
    if (gate->pace.bytes_per_s == 0) return want;
    if (waiter->waiting) return 0;
    const tb_time_ns now = tb_clock_now();
    size_t take = waiter->granted < want ? waiter->granted : want;
    if (take == 0 && TAILQ_EMPTY(&gate->line))
        take = tb_pace_take(&gate->pace, want, now);
    else
        waiter->granted -= take;
    if (take > 0) return take;
    waiter->waiting = true;
    TAILQ_INSERT_TAIL(&gate->line, waiter, link);
    tb_fabric_wake_at(f, tb_pace_ready_at(&gate->pace, TB_PACE_QUANTUM_BYTES, now));
    return 0;
}

void tb_pace_gate_leave(struct tb_pace_gate *gate, struct tb_pace_waiter *waiter)
{
    if (waiter->waiting) TAILQ_REMOVE(&gate->line, waiter, link);
    waiter->waiting = false;
    tb_pace_give_back(&gate->pace, waiter->granted);
    waiter->granted = 0;
}

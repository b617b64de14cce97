/* stream_life.c - the phase of a stream, its end, and the last time that it moved.
 *
 * It calls no other file of a stream. */
#include "wan/stream/stream_life.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_facts.h"
#include "wan/stream/stream.h"

enum tb_stream_phase tb_stream_phase(const struct tb_stream *s)
{
    return (enum tb_stream_phase)atomic_load_explicit(&s->phase, memory_order_acquire);
}

bool tb_stream_is_closing(const struct tb_stream *s)
{
    return s->state >= TB_STREAM_STATE_CLOSING;
}

bool tb_stream_step(struct tb_stream *s, enum tb_stream_event event)
{
    if (!tb_stream_state_step(&s->state, event)) return false;
    if (s->state == TB_STREAM_STATE_BOUND) {
        atomic_store_explicit(&s->was_bound, true, memory_order_relaxed);
        atomic_store_explicit(&s->phase, TB_STREAM_BOUND, memory_order_release);
    } else if (s->state == TB_STREAM_STATE_GONE) {
        atomic_store_explicit(&s->phase, TB_STREAM_GONE, memory_order_release);
    }
    return true;
}

void tb_stream_close(struct tb_stream *s, enum tb_status why)
{
    if (tb_stream_is_closing(s)) return;
    const bool legal = tb_stream_step(s, TB_STREAM_EVENT_CLOSE);
    TB_ASSERT(legal);
    tb_chan_close(s->chan, why);
}

void tb_stream_lost(struct tb_stream *s, enum tb_status why)
{
    TB_ASSERT(s->loop == NULL && s->state == TB_STREAM_STATE_OPENING);
    atomic_store_explicit(&s->why, (int)why, memory_order_relaxed);
    const bool legal = tb_stream_step(s, TB_STREAM_EVENT_ENDED);
    TB_ASSERT(legal);
}

void tb_stream_moved(struct tb_stream *s, tb_time_ns *at_out)
{
    TB_ASSERT(s->state != TB_STREAM_STATE_GONE);
    *at_out = tb_clock_now();
    if (s->chan != NULL) atomic_store_explicit(&s->records, tb_chan_records(s->chan), memory_order_relaxed);
}

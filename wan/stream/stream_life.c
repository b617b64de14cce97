/* stream_life.c - the phase of a stream, its end, and the last time that it moved.
 *
 * It calls no other file of a stream. */
#include "base/clock.h"
#include "wan/stream/stream.h"

enum tb_stream_phase tb_stream_phase(const struct tb_stream *s)
{
    return (enum tb_stream_phase)atomic_load_explicit(&s->phase, memory_order_acquire);
}

void tb_stream_close(struct tb_stream *s, enum tb_status why)
{
    if (s->closing) return;
    s->closing = true;
    tb_chan_close(s->chan, why);
}

void tb_stream_moved(struct tb_stream *s, tb_time_ns *at_out)
{
    *at_out = tb_clock_now();
    if (s->chan != NULL) atomic_store_explicit(&s->records, tb_chan_records(s->chan), memory_order_relaxed);
}

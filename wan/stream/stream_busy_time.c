/* stream_busy_time.c - what a link carries while it is busy: acknowledged bytes over the time in
 * which there were any to acknowledge, by the kernel's own count. A writer that has nothing to
 * write, because it encodes, is no slow link. */
#include "base/assert.h"
#include "base/net/chan_facts.h"
#include "base/net/tcp.h"
#include "wan/send/feed_choice.h"
#include "wan/stream/stream.h"
#include "wan/stream/stream_send.h"

#define BUSY_EVERY TB_MS(20)

void tb_stream_busy(struct tb_stream *s, tb_time_ns now)
{
    TB_ASSERT(s->chan != NULL);
    struct tb_stream_send *t = &s->send;
    struct tb_tcp_seen seen;
    if (tb_time_since(t->busy_seen, now) < BUSY_EVERY || !tb_tcp_look(tb_chan_fd(s->chan), &seen)) return;
    const struct tb_feed_slot carried = {.at = now,
                                         .time = t->busy_seen != 0 ? tb_time_since(t->busy_seen, now) : 0,
                                         .busy = seen.busy - t->busy_time,
                                         .acked_bytes = seen.bytes_acked - t->busy_acked,
                                         .full = t->full};
    t->busy_seen = now;
    t->busy_acked = seen.bytes_acked;
    t->busy_time = seen.busy;
    if (carried.time > 0) tb_feed_carry(s->plan.feed, s->plan.slot, &carried);
}

/* stream_table.c - the data streams of a link as the main loop sees them, by slot. */
#include "wan/link/streams/stream_table.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_stats.h"
#include "wan/link/path/link_path.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_numbers.h"
#include "wan/stream/stream_life.h"
#include "wan/stream/stream_loop.h"

uint32_t tb_link_streams_count(const struct tb_link *l)
{
    uint32_t count = l->traffic.streams.ahead_count;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        count += l->traffic.streams.slots[i] != NULL;
    return count;
}

bool tb_link_streams_old(const struct tb_link *l)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        if (l->traffic.streams.slots[i] != NULL &&
            l->traffic.streams.slots[i]->plan.session_seq != tb_link_session_seq(l))
            return true;
    return false;
}

struct tb_stream *tb_link_stream_at(const struct tb_link *l, uint32_t slot)
{
    TB_ASSERT(slot < TB_LINKS_STREAMS_MAX);
    return l->traffic.streams.slots[slot];
}

bool tb_link_streams_are_ahead(const struct tb_link *l)
{
    return l->traffic.streams.ahead_count > 0;
}

void tb_link_streams_up(struct tb_link *l, tb_time_ns rtt)
{
    struct tb_link_streams *s = &l->traffic.streams;
    s->number = 0;
    s->failures = 0;
    s->retry_at = 0;
    s->rtt = rtt;
    s->peer_wants = s->told_wants = 0;
    s->looked_at = 0;
    memset(s->gone_numbers, 0, sizeof s->gone_numbers);
}

void tb_link_stream_end(struct tb_stream *s)
{
    if (s->loop != NULL)
        tb_stream_end(s);
    else
        atomic_store(&s->ending, true); /* still on its way to a loop */
}

int tb_link_stream_free_slot(const struct tb_link *l)
{
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        if (l->traffic.streams.slots[i] == NULL) return (int)i;
    return -1;
}

void tb_links_stream_to_loop(struct tb_links *ls, struct tb_stream *s)
{
    TB_ASSERT(ls->loop_count > 0 && s->loop == NULL);
    tb_stream_loop_add(ls->loops[ls->loop_at++ % ls->loop_count], s);
}

struct tb_stream_plan tb_link_stream_plan(struct tb_link *l, uint32_t slot, uint32_t number)
{
    TB_ASSERT(slot < TB_LINKS_STREAMS_MAX);
    const struct tb_links_options *o = &l->links->options;
    return (struct tb_stream_plan){.feed = l->traffic.feed,
                                   .session_seq = tb_link_session_seq(l),
                                   .session = tb_link_session_id(l),
                                   .number = number,
                                   .slot = slot,
                                   .protocol = tb_link_protocol(l),
                                   .peer = l->index,
                                   .trust = {o->ops->base_good, o->user},
                                   .encoded_chunks = l->links->options.encoded_chunks,
                                   .path = tb_link_tcp_options(l),
                                   .records_max = o->records_max,
                                   .idle = TB_MS(o->stream_idle_ms)};
}

struct tb_stream_plan tb_link_stream_dial_plan(struct tb_link *l, uint32_t slot, const struct tb_address *to)
{
    struct tb_stream_plan plan = tb_link_stream_plan(l, slot, 0);
    plan.dialled = true;
    plan.address = *to;
    plan.segment_bytes_max = tb_link_segment_bytes(l);
    plan.source = tb_link_source(l);
    plan.tls = l->links->options.tls;
    plan.expect = l->identity;
    return plan;
}

void tb_link_stream_add_stats(struct tb_links_stats *to, const struct tb_stream *s)
{
    to->bytes_sent += atomic_load_explicit(&s->bytes_sent, memory_order_relaxed);
    to->bytes_received += atomic_load_explicit(&s->bytes_received, memory_order_relaxed);
    to->bytes_retransmitted += atomic_load_explicit(&s->retransmitted_bytes, memory_order_relaxed);
    to->chunks_sent += atomic_load_explicit(&s->chunks_sent, memory_order_relaxed);
    to->chunks_received += atomic_load_explicit(&s->chunks_received, memory_order_relaxed);
    to->chunks_duplicate += atomic_load_explicit(&s->chunks_duplicate, memory_order_relaxed);
    to->chunks_bad += atomic_load_explicit(&s->chunks_bad, memory_order_relaxed);
    to->delta_chunks += atomic_load_explicit(&s->delta_chunks, memory_order_relaxed);
    to->raw_bytes_sent += atomic_load_explicit(&s->raw_bytes, memory_order_relaxed);
    to->bytes_hedged += atomic_load_explicit(&s->hedged_bytes, memory_order_relaxed);
}

uint64_t tb_link_sent_bytes(const struct tb_link *l)
{
    uint64_t bytes = l->stats.bytes_sent;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        if (l->traffic.streams.slots[i] != NULL)
            bytes += atomic_load_explicit(&l->traffic.streams.slots[i]->bytes_sent, memory_order_relaxed);
    return bytes;
}

static uint64_t seen(const atomic_ullong *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void one_stream(const struct tb_stream *s, struct tb_links_stream_stats *to)
{
    *to = (struct tb_links_stream_stats){
        .stream = s->plan.number,
        .open = tb_stream_phase(s) == TB_STREAM_BOUND,
        .bytes_sent = seen(&s->bytes_sent),
        .bytes_received = seen(&s->bytes_received),
        .rtt = seen(&s->rtt),
        .sent_per_s = seen(&s->sent_per_s),
        .received_per_s = seen(&s->received_per_s),
        .retransmitted_bytes = seen(&s->retransmitted_bytes),
        .unsent_bytes = seen(&s->unsent_bytes),
        .window_bytes = seen(&s->window_bytes),
        .records = seen(&s->records),
        .limit = (enum tb_limit)atomic_load_explicit(&s->limit, memory_order_relaxed)};
    TB_ASSERT(to->limit < TB_LIMITS);
    to->kernel_sends = to->open && s->kernel_sends;
    to->own_records = to->open && s->own_records;
    if (to->open) snprintf(to->congestion, sizeof to->congestion, "%s", s->congestion);
}

void tb_link_stream_stats(const struct tb_link *l, struct tb_links_stats *stats)
{
    stats->stream_count = 0;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        const struct tb_stream *s = l->traffic.streams.slots[i];
        if (s == NULL) continue;
        tb_link_stream_add_stats(stats, s);
        one_stream(s, &stats->streams[stats->stream_count++]);
    }
    stats->streams_wanted = tb_link_streams_wanted(l);
    stats->streams_used = l->traffic.streams.usable;
    stats->searching = l->traffic.streams.tuner.state != TB_TUNER_SETTLED;
}

bool tb_link_stream_is_worn(const struct tb_link *l, const struct tb_stream *s)
{
    return atomic_load_explicit(&s->records, memory_order_relaxed) >= l->links->options.records_max;
}

static bool is_ours(const struct tb_link *l, const struct tb_stream *s)
{
    return s != NULL && s->plan.session_seq == tb_link_session_seq(l) &&
           tb_stream_phase(s) != TB_STREAM_GONE && !tb_stream_farewell_told(s->farewell);
}

bool tb_link_stream_is_bound(const struct tb_link *l, const struct tb_stream *s)
{
    return is_ours(l, s) && tb_stream_phase(s) == TB_STREAM_BOUND && !tb_stream_farewell_heard(s->farewell);
}

uint32_t tb_link_streams_wanted(const struct tb_link *l)
{
    const uint32_t wanted = l->traffic.streams.tuner.streams > l->traffic.streams.peer_wants
                                ? l->traffic.streams.tuner.streams
                                : l->traffic.streams.peer_wants;
    return wanted < TB_LINKS_STREAMS_MAX ? wanted : TB_LINKS_STREAMS_MAX;
}

uint32_t tb_link_streams_fresh(const struct tb_link *l)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        count += is_ours(l, l->traffic.streams.slots[i]) &&
                 !tb_link_stream_is_worn(l, l->traffic.streams.slots[i]);
    return count;
}

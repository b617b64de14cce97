/* stream.c - the life of a data stream: opening, binding, idling, ending. */
#include "wan/stream/stream.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_facts.h"
#include "wan/send/feed_choice.h"
#include "wan/send/feed_limits.h"
#include "wan/send/rate_cap.h"
#include "wan/stream/stream_life.h"
#include "wan/stream/stream_loop.h"
#include "wan/stream/stream_receive.h"
#include "wan/stream/stream_send.h"

#define HEADER_BYTES_V4   52u /* IP, TCP, timestamps */
#define HEADER_BYTES_V6   72u
#define SEGMENT_BYTES_MIN 256u

struct tb_stream *tb_stream_new(const struct tb_stream_plan *plan)
{
    TB_ASSERT(plan->feed != NULL && plan->slot < TB_FEED_SLOTS_MAX && plan->records_max > 0);
    TB_ASSERT(plan->dialled == (plan->tls != NULL));
    struct tb_stream *s = tb_calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->plan = *plan;
    if (plan->tls != NULL)
        (void)tb_tls_ref(plan->tls); /* the main loop may take another before this one dials */
    s->price = (struct tb_cap_price){.segment_bytes = SEGMENT_BYTES_MIN, .header_bytes = 0};
    s->receive.reading = plan->dialled ? TB_READING_BOUND : TB_READING_HEADER;
    atomic_init(&s->phase, TB_STREAM_OPENING);
    atomic_init(&s->why, TB_OK);
    atomic_init(&s->ending, false);
    atomic_init(&s->may_bind, true);
    atomic_init(&s->was_bound, !plan->dialled);
    atomic_init(&s->fd, -1);
    return s;
}

struct tb_stream *tb_stream_new_ahead(const struct tb_stream_plan *plan)
{
    struct tb_stream *s = tb_stream_new(plan);
    TB_ASSERT(plan->dialled); /* who accepts knows the session */
    if (s != NULL) atomic_init(&s->may_bind, false);
    return s;
}

void tb_stream_bind(struct tb_stream *s, const struct tb_stream_plan *plan)
{
    TB_ASSERT(!atomic_load_explicit(&s->may_bind, memory_order_relaxed)); /* it was dialled ahead */
    s->plan.session_seq = plan->session_seq;
    s->plan.session = plan->session;
    s->plan.number = plan->number;
    s->plan.slot = plan->slot;
    s->plan.protocol = plan->protocol;
    atomic_store_explicit(&s->may_bind, true, memory_order_release);
    tb_stream_loop_wake(s->loop);
}

void tb_stream_free(struct tb_stream *s)
{
    TB_ASSERT(s->loop == NULL || tb_stream_phase(s) == TB_STREAM_GONE);
    tb_tls_free(s->plan.tls);
    tb_free(s);
}

void tb_stream_end(struct tb_stream *s)
{
    TB_ASSERT(s->loop != NULL);
    atomic_store_explicit(&s->ending, true, memory_order_release);
    tb_stream_loop_wake(s->loop);
}

static bool ending(const struct tb_stream *s)
{
    return atomic_load_explicit(&s->ending, memory_order_acquire);
}

static void be_gone(struct tb_stream *s, enum tb_status why)
{
    TB_ASSERT(s->loop != NULL && s->state != TB_STREAM_STATE_GONE);
    tb_stream_send_fini(s);
    tb_stream_receive_fini(s);
    s->chan = NULL;
    struct tb_stream_loop *loop = s->loop;
    tb_stream_loop_leave(loop, s);
    atomic_store_explicit(&s->fd, -1, memory_order_relaxed);
    atomic_store_explicit(&s->why, (int)why, memory_order_relaxed);
    const bool legal = tb_stream_step(s, TB_STREAM_EVENT_ENDED); /* from here on it is the main loop's */
    TB_ASSERT(legal);
    tb_stream_loop_tell(loop);
}

/* The cost of our bytes in packets, for the link's cap. */
static void price(struct tb_stream *s)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    const uint32_t segment = s->tcp.seen.segment_bytes;
    const bool v6 =
        getsockname(tb_chan_fd(s->chan), (struct sockaddr *)&at, &bytes) == 0 && at.ss_family == AF_INET6;
    s->price.header_bytes = v6 ? HEADER_BYTES_V6 : HEADER_BYTES_V4;
    s->price.segment_bytes = segment > SEGMENT_BYTES_MIN ? segment : SEGMENT_BYTES_MIN;
}

static void charge(struct tb_stream *s)
{
    const uint32_t again = s->tcp.seen.segments_again - s->sent_again;
    s->sent_again = s->tcp.seen.segments_again;
    if (again > 0 && tb_feed_capped(s->plan.feed))
        tb_feed_charge(s->plan.feed, (uint64_t)again * (s->price.segment_bytes + s->price.header_bytes));
}

static bool may_bind(const struct tb_stream *s)
{
    return atomic_load_explicit(&s->may_bind, memory_order_acquire);
}

/* The end that dialled says which session and stream it is, the other answers. */
static void greet(struct tb_stream *s)
{
    tb_stream_send_control(s, s->plan.dialled ? TB_FRAME_BIND : TB_FRAME_BOUND);
    const bool legal = tb_stream_step(s, s->plan.dialled ? TB_STREAM_EVENT_GREET : TB_STREAM_EVENT_ACCEPT);
    TB_ASSERT(legal);
    if (!s->plan.dialled) tb_stream_loop_tell(s->loop);
}

static void opened(struct tb_stream *s)
{
    TB_ASSERT(s->chan != NULL && s->state == TB_STREAM_STATE_OPENING);
    const tb_time_ns now = tb_clock_now();
    s->send.moved_at = s->receive.moved_at = now;
    tb_tcp_path_open(&s->tcp, s->plan.path, tb_chan_fd(s->chan), true);
    tb_tcp_congestion(tb_chan_fd(s->chan), s->congestion);
    s->kernel_sends = tb_chan_kernel_sends(s->chan);
    s->own_records = tb_chan_own_records(s->chan);
    price(s);
    atomic_store_explicit(&s->fd, tb_chan_fd(s->chan), memory_order_relaxed);
    if (may_bind(s)) {
        greet(s);
        return;
    }
    const bool legal = tb_stream_step(s, TB_STREAM_EVENT_EARLY);
    TB_ASSERT(legal);
}

static void on_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    (void)c, (void)peer;
    opened(user);
}

static void on_readable(struct tb_chan *c, void *user)
{
    (void)c;
    (void)tb_stream_receive_more(user, TB_STREAM_TURN_BYTES);
}

static void on_writable(struct tb_chan *c, void *user)
{
    (void)c;
    tb_stream_send_more(user);
}

static void on_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    (void)c;
    be_gone(user, why);
}

static const struct tb_chan_ops chan_ops = {
    .on_open = on_open, .on_readable = on_readable, .on_writable = on_writable, .on_closed = on_closed};

static enum tb_status dial(struct tb_stream *s)
{
    TB_ASSERT(s->plan.dialled && s->chan == NULL);
    const struct tb_chan_options options = {.loop = tb_stream_loop_uv(s->loop),
                                            .tls = s->plan.tls,
                                            .expect = {.identity = s->plan.expect, .bulk = true},
                                            .ops = &chan_ops,
                                            .user = s,
                                            .segment_bytes_max = s->plan.segment_bytes_max,
                                            .source = s->plan.source,
                                            .dscp = s->plan.path->dscp,
                                            .open_ms = (uint32_t)(s->plan.idle / TB_MS(1))};
    return tb_chan_dial(&options, &s->plan.address, &s->chan);
}

static enum tb_status attach(struct tb_stream *s)
{
    TB_ASSERT(!s->plan.dialled && s->plan.chan != NULL);
    s->chan = s->plan.chan;
    const enum tb_status status = tb_chan_attach(s->chan, tb_stream_loop_uv(s->loop), &chan_ops, s);
    if (status == TB_OK)
        opened(s);
    else
        tb_chan_discard(s->plan.chan);
    return status;
}

void tb_stream_begin(struct tb_stream *s)
{
    TB_ASSERT(s->state == TB_STREAM_STATE_OPENING);
    const enum tb_status status = s->plan.dialled ? dial(s) : attach(s);
    if (status != TB_OK) be_gone(s, status);
}

/* Chunks that reached this machine before the end was said are not asked for again (P5): they are
 * read first. */
static void end(struct tb_stream *s)
{
    const uint64_t before = atomic_load_explicit(&s->bytes_received, memory_order_relaxed);
    const tb_time_ns began = tb_clock_now();
    bool more = tb_stream_phase(s) == TB_STREAM_BOUND;
    while (more) {
        more = tb_stream_receive_more(s, TB_STREAM_TURN_BYTES);
        const uint64_t now = atomic_load_explicit(&s->bytes_received, memory_order_relaxed);
        more = more && now - before < TB_STREAM_DRAIN_BYTES &&
               tb_time_since(began, tb_clock_now()) < TB_STREAM_DRAIN_TIME;
    }
    tb_stream_close(s, TB_CANCELLED);
}

void tb_stream_look(struct tb_stream *s)
{
    if (tb_stream_is_closing(s)) return;
    if (s->state == TB_STREAM_STATE_WAITING && may_bind(s)) greet(s);
    tb_stream_receive_heed(s);
    tb_stream_send_heed(s);
    if (ending(s))
        end(s);
    else if (tb_stream_phase(s) == TB_STREAM_BOUND && !tb_stream_sending(s))
        tb_stream_send_more(s);
}

static void show(atomic_ullong *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static void measure(struct tb_stream *s, tb_time_ns now)
{
    TB_ASSERT(s->chan != NULL);
    const struct tb_tcp_path *p = &s->tcp;
    const struct tb_tcp_writer writer =
        tb_stream_send_seen(s, now, p->seen_at != 0 ? tb_time_since(p->seen_at, now) : 0);
    const uint64_t acked = p->seen.bytes_acked;
    tb_tcp_path_look(&s->tcp, tb_chan_fd(s->chan), now, &writer);
    /* Bytes that the peer acknowledges are progress, too. At 32 kB/s a socket is writable again
     * after 16 s, when half of the 1 MiB is sent that may wait before a rate is known. */
    if (p->seen.bytes_acked > acked) s->send.moved_at = now;
    price(s);
    charge(s);
    show(&s->rtt, p->seen.rtt);
    show(&s->rtt_min, p->seen.rtt_min);
    show(&s->sent_per_s, p->sent_per_s);
    show(&s->received_per_s, p->received_per_s);
    show(&s->unsent_bytes, p->seen.unsent_bytes);
    show(&s->window_bytes, p->seen.window_bytes);
    show(&s->retransmitted_bytes, p->seen.bytes_retransmitted);
    atomic_store_explicit(&s->limit, (int)p->limit, memory_order_relaxed);
    show(&s->acked_bytes, p->seen.bytes_acked);
    atomic_store_explicit(&s->stalled_segment, p->seen.timeouts > 0 ? tb_tcp_stalled(tb_chan_fd(s->chan)) : 0,
                          memory_order_relaxed);
}

void tb_stream_tick(struct tb_stream *s, tb_time_ns now)
{
    if (tb_stream_is_closing(s) || atomic_load_explicit(&s->fd, memory_order_relaxed) < 0) return;
    measure(s, now);
    if (tb_stream_sending(s)) tb_stream_busy(s, now);
    const bool stuck_sending = tb_stream_sending(s) && tb_time_since(s->send.moved_at, now) >= s->plan.idle;
    const bool stuck_receiving =
        tb_stream_receiving(s) && tb_time_since(s->receive.moved_at, now) >= s->plan.idle;
    if (stuck_sending || stuck_receiving) tb_stream_close(s, TB_STREAM_IDLE);
}

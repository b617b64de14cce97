/* link_tune.c - how many data streams a link has, which of them are used, and when they
 * are replaced. tuner.h decides the number for what this side sends; the side that dials
 * opens and closes them.
 *
 * Used are those with the lowest numbers that are not worn, so both ends mean the same ones
 * by "the first n" without a word. Worn is a stream under whose keys `records_max` TLS
 * records went either way: it is used on until a fresh one has come up, and closed when
 * nothing moves on it any more. */
#include "wan/link/streams/link_tune.h"

#include "base/assert.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_numbers.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/traffic/link_send.h"
#include "wan/send/feed_parcels.h"

#define LOOK_EVERY TB_MS(250)

/* Nothing moved on a stream that is not needed: it is closed. */
#define IDLE_BEFORE      TB_SECONDS(2)
#define IDLE_BEFORE_WORN TB_MS(500)

/* Slots of the bound streams with the lowest numbers, at most `most`. */
static uint64_t first_of(const struct tb_link *l, uint32_t most, bool worn, uint32_t *count_out)
{
    uint64_t slots = 0;
    uint32_t after = 0;
    for (*count_out = 0; *count_out < most; ++*count_out) {
        int found = -1;
        for (int i = 0; i < (int)TB_LINKS_STREAMS_MAX; i++) {
            const struct tb_stream *s = l->traffic.streams.slots[i];
            if (!tb_link_stream_is_bound(l, s) || s->plan.number <= after ||
                tb_link_stream_is_worn(l, s) != worn)
                continue;
            if (found < 0 || s->plan.number < l->traffic.streams.slots[found]->plan.number) found = i;
        }
        if (found < 0) break;
        after = l->traffic.streams.slots[found]->plan.number;
        TB_ASSERT((slots >> found & 1) == 0);
        slots |= UINT64_C(1) << found;
    }
    return slots;
}

/* ---- what is used ---- */

static uint64_t used_now(const struct tb_link *l, uint32_t *fresh_out)
{
    uint32_t more = 0;
    const uint64_t fresh = first_of(l, l->traffic.streams.tuner.streams, false, fresh_out);
    return fresh | first_of(l, l->traffic.streams.tuner.streams - *fresh_out, true, &more);
}

static tb_time_ns least_rtt(const struct tb_link *l)
{
    tb_time_ns least = 0;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        const tb_time_ns rtt =
            tb_link_stream_is_bound(l, l->traffic.streams.slots[i])
                ? atomic_load_explicit(&l->traffic.streams.slots[i]->rtt_min, memory_order_relaxed)
                : 0;
        if (rtt != 0 && (least == 0 || rtt < least)) least = rtt;
    }
    return least != 0 ? least : l->traffic.streams.rtt;
}

/* ---- the kernel's ceilings ---- */

static void tell_window(const struct tb_link *l, const struct tb_window_seen *seen, uint64_t needs)
{
    struct tb_log_line line;
    tb_log_begin(&line, needs > 0 ? TB_LOG_WARN : TB_LOG_INFO, "link.window");
    tb_log_str(&line, "peer", l->label.text);
    tb_log_str(&line, "sysctl", seen->receives ? "net.ipv4.tcp_rmem" : "net.ipv4.tcp_wmem");
    tb_log_u64(&line, "has_bytes", seen->ceiling_bytes);
    tb_log_u64(&line, "needs_bytes", needs);
    tb_log_str(&line, "action", needs > 0 ? "raise its third value" : "none");
    tb_log_end(&line);
}

/* Said when more is needed than was said before, and when the ceiling is high enough. */
static void watch_window(const struct tb_link *l, const struct tb_window_seen *seen, uint64_t *wanted_bytes)
{
    const uint64_t before = *wanted_bytes;
    if (tb_window_look(wanted_bytes, seen) || *wanted_bytes < before) tell_window(l, seen, *wanted_bytes);
}

static void watch_windows(struct tb_link *l)
{
    const struct tb_tcp_ceilings *c = &l->links->ceilings;
    struct tb_window_seen sent = {.rtt = least_rtt(l), .ceiling_bytes = c->send_bytes};
    struct tb_window_seen received = {.rtt = sent.rtt, .ceiling_bytes = c->receive_bytes, .receives = true};
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        const struct tb_stream *s = l->traffic.streams.slots[i];
        if (!tb_link_stream_is_bound(l, s)) continue;
        const uint64_t out = atomic_load_explicit(&s->sent_per_s, memory_order_relaxed);
        const uint64_t in = atomic_load_explicit(&s->received_per_s, memory_order_relaxed);
        const int limit = atomic_load_explicit(&s->limit, memory_order_relaxed);
        sent.bytes_per_s += out, sent.streams += out > 0;
        sent.held += out > 0 && limit == TB_LIMIT_SEND_BUFFER;
        received.bytes_per_s += in, received.streams += in > 0;
    }
    watch_window(l, &sent, &l->stats.send_wanted_bytes);
    watch_window(l, &received, &l->stats.receive_wanted_bytes);
    l->stats.send_ceiling_bytes = c->send_bytes;
    l->stats.receive_ceiling_bytes = c->receive_bytes;
}

/* That one connection may have under way, by this end's ceilings, as if the peer's were like them:
 * a receiver's window is about half of its buffer. */
static uint64_t window_of(const struct tb_tcp_ceilings *c)
{
    return c->receive_bytes / 2 < c->send_bytes ? c->receive_bytes / 2 : c->send_bytes;
}

static void look(struct tb_link *l, tb_time_ns now)
{
    const struct tb_tuner_seen seen = {.now = now,
                                       .rtt = least_rtt(l),
                                       .bytes = tb_link_sent_bytes(l),
                                       .window_bytes = window_of(&l->links->ceilings),
                                       .usable = l->traffic.streams.usable,
                                       .full = l->traffic.crossings.full};
    const uint32_t before = l->traffic.streams.tuner.streams;
    const enum tb_tuner_state state = l->traffic.streams.tuner.state;
    l->traffic.streams.looked_at = now;
    (void)tb_tuner_look(&l->traffic.streams.tuner, &seen);
    l->traffic.crossings.full = true; /* until a refill finds nothing to send */
    if (l->traffic.streams.tuner.streams != before)
        tb_log(TB_LOG_DEBUG, "link.streams", "peer=%s streams=%u before=%u", l->label.text,
               l->traffic.streams.tuner.streams, before);
    if (state == TB_TUNER_SETTLED || l->traffic.streams.tuner.state != TB_TUNER_SETTLED) return;
    if (l->traffic.streams.tuner.ceiling < TB_TUNER_STREAMS_MAX)
        return; /* found among the few that came up: not the path's */
    l->stats.streams_found = l->traffic.streams.tuner.streams;
    l->stats.found_bytes_per_s = l->traffic.streams.tuner.best_rate;
    tb_log(TB_LOG_INFO, "link.streams", "peer=%s streams=%u bytes_per_s=%llu", l->label.text,
           l->traffic.streams.tuner.streams, (unsigned long long)l->traffic.streams.tuner.best_rate);
}

/* ---- what is open ---- */

/* The side that accepts cannot dial: it says how many would serve it. */
static void tell_wanted(struct tb_link *l)
{
    const struct tb_links_options *o = &l->links->options;
    if (tb_link_control(l)->dialled || o->streams != 0 || tb_link_protocol(l) < TB_LINK_PROTOCOL_STREAMS)
        return;
    if (l->traffic.crossings.outs == NULL ||
        l->traffic.streams.told_wants == l->traffic.streams.tuner.streams)
        return;                                      /* who sends nothing wants nothing */
    TB_ASSERT(l->traffic.streams.tuner.streams > 0); /* 0 breaks the protocol */
    l->traffic.streams.told_wants = l->traffic.streams.tuner.streams;
    LINK_SEND(l, TB_FRAME_STREAMS, tb_frame_streams, LINK_SMALL, .count = l->traffic.streams.told_wants);
}

/* A number of the operator's is not gone over. */
enum tb_status tb_link_on_streams(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_streams m;
    const enum tb_status status = tb_frame_streams_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_STREAMS || !tb_link_control(l)->dialled)
        return TB_PEER_GARBLED;
    if (m.count == 0 || m.count > TB_LINKS_STREAMS_MAX) return TB_PEER_GARBLED;
    if (l->links->options.streams == 0) l->traffic.streams.peer_wants = m.count;
    return TB_OK;
}

/* How many bytes moved on it, either way. */
static uint64_t moved(const struct tb_stream *s)
{
    return atomic_load_explicit(&s->bytes_sent, memory_order_relaxed) +
           atomic_load_explicit(&s->bytes_received, memory_order_relaxed);
}

/* Nothing is on its way on it: the peer is told first, so that it does not take the end for a
 * loss. */
static void retire(struct tb_link *l, struct tb_stream *s)
{
    TB_ASSERT(tb_link_stream_is_bound(l, s));
    const bool legal = tb_stream_farewell_step(&s->farewell, TB_STREAM_WORD_RETIRE);
    TB_ASSERT(legal); /* close_idle asks for streams that are bound */
    if (tb_link_stream_is_worn(l, s)) l->stats.streams_rotated++;
    LINK_SEND(l, TB_FRAME_STREAM_GONE, tb_frame_stream_gone, LINK_SMALL, .stream = s->plan.number);
    tb_link_stream_end(s);
}

/* The dialler closes what is not among the first it wants, once nothing moved on it for a while. */
static void close_idle(struct tb_link *l, tb_time_ns now)
{
    uint32_t count = 0;
    const uint64_t needed = first_of(l, tb_link_streams_wanted(l), false, &count);
    if (count < tb_link_streams_wanted(l)) return; /* make before break */
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        struct tb_stream *s = l->traffic.streams.slots[i];
        if (!tb_link_stream_is_bound(l, s)) continue;
        if (moved(s) != s->moved_bytes || s->idle_since == 0 || (needed >> i & 1) != 0) {
            s->moved_bytes = moved(s);
            s->idle_since = now;
        } else if (tb_time_since(s->idle_since, now) >=
                       (tb_link_stream_is_worn(l, s) ? IDLE_BEFORE_WORN : IDLE_BEFORE) &&
                   tb_link_slot_idle(l, i)) {
            retire(l, s);
        }
    }
}

void tb_link_tune(struct tb_link *l, tb_time_ns now)
{
    if (!tb_link_is_up(l)) return;
    uint32_t fresh = 0;
    const uint64_t used = used_now(l, &fresh);
    l->traffic.streams.usable = (uint32_t)__builtin_popcountll(used);
    if (tb_feed_use(l->traffic.feed, used)) tb_links_fed(l->links);
    tell_wanted(l);
    if (tb_time_since(l->traffic.streams.looked_at, now) < LOOK_EVERY) return;
    look(l, now);
    watch_windows(l);
    if (tb_link_control(l)->dialled) close_idle(l, now);
}

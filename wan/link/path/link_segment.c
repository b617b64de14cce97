/* link_segment.c - an MTU black hole: what of a link's connections stalls, what is done about
 * it, and who is told.
 *
 * The dialler of a session makes all its connections, so it alone can lower their segments for both
 * ways (TCP_MAXSEG goes into the SYN). The other end tells it by SEGMENT. A session goes on over a
 * fresh connection with smaller segments, as for new certificates; what was crossing resumes.
 *
 * After a while the dialler tries the path's own size again: it says so by SEGMENT with
 * TB_SEGMENT_BYTES_MAX, so that the other end forgets its bound, too, and goes on over a fresh
 * connection.
 *
 * Where not even the handshake passes, each attempt after one that TCP opened and TLS did not tries
 * a smaller size. The first of those that opens becomes the session, and one that stalls stays as a
 * probe: if it opens after all, the peer was only slow. */
#include "wan/link/path/link_segment.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/chan_facts.h"
#include "wan/link/link.h"
#include "wan/link/links_limits.h"
#include "wan/link/path/link_dial.h"
#include "wan/link/path/link_why.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_table.h"

#define LOOK_EVERY  TB_MS(200)
#define HEARD_AFTER TB_MS(400)  /* what was on its way when ours stopped says nothing */
#define MOVED_BYTES (32u << 10) /* not to be made of small segments */

/* P10: one line for each size. */
static void tell(struct tb_link *l, bool by_peer)
{
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&l->identity, uri);
    tb_log_begin(&line, TB_LOG_WARN, "link.mtu");
    tb_log_str(&line, "peer", uri);
    tb_log_str(&line, "by", by_peer ? "peer" : "us");
    if (tb_link_control(l) != NULL) tb_log_str(&line, "address", tb_link_control(l)->address_text);
    tb_log_u64(&line, "stalled_segment_bytes", l->path.segment.from);
    tb_log_u64(&line, "segment_bytes", l->path.segment.bytes_max);
    tb_log_end(&line);
    tb_link_said_mtu(l);
}

static void say(struct tb_link *l)
{
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_SEGMENT) return;
    LINK_SEND(l, TB_FRAME_SEGMENT, tb_frame_segment, LINK_SMALL, .bytes = l->path.segment.bytes_max);
}

/* The session's connections are larger. */
static void renew(struct tb_link *l)
{
    TB_ASSERT(tb_link_is_up(l)); /* it goes on over a fresh connection */
    const uint32_t of_session = tb_link_control(l)->path_segment;
    if (tb_link_control(l)->dialled && (of_session == 0 || of_session > l->path.segment.bytes_max))
        tb_link_renew(l, tb_clock_now());
}

static void try_own(struct tb_link *l, tb_time_ns now)
{
    TB_ASSERT(tb_link_is_up(l));
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&l->identity, uri);
    tb_log(TB_LOG_INFO, "link.mtu_again", "peer=%s segment_bytes=%u", uri, l->path.segment.back);
    if (tb_link_protocol(l) >= TB_LINK_PROTOCOL_SEGMENT)
        LINK_SEND(l, TB_FRAME_SEGMENT, tb_frame_segment, LINK_SMALL, .bytes = TB_SEGMENT_BYTES_MAX);
    tb_link_said_no_mtu(l);
    tb_link_renew(l, now);
}

static void lowered(struct tb_link *l)
{
    tell(l, false);
    say(l);
    renew(l);
}

/* ---- streams ---- */

static bool stream_moved(struct tb_stream *s)
{
    const uint64_t acked = atomic_load_explicit(&s->acked_bytes, memory_order_relaxed);
    if (acked < s->acked_seen + MOVED_BYTES) return false;
    s->acked_seen = acked;
    return true;
}

/* A heartbeat that was sent since then has been answered: small packets pass while
 * these segments do not. */
static bool stream_stalled(const struct tb_link *l, struct tb_stream *s, tb_time_ns now)
{
    if (atomic_load_explicit(&s->stalled_segment, memory_order_relaxed) == 0) {
        s->stalled_at = 0;
        s->stall_counted = false;
        return false;
    }
    if (s->stalled_at == 0) s->stalled_at = now;
    if (s->stall_counted || tb_link_answered_at(l) < s->stalled_at) return false;
    s->stall_counted = true;
    return true;
}

/* Connections that stall at one time may have one fault, as on a path that comes and goes: what was
 * open then counts once. */
static bool is_fresh(const struct tb_link *l, const struct tb_stream *s)
{
    return l->path.segment_seq != tb_link_session_seq(l) || s->plan.number > l->path.segment_number;
}

static bool count_stalled(struct tb_link *l, uint32_t bytes)
{
    TB_ASSERT(bytes > 0);
    l->path.segment_seq = tb_link_session_seq(l);
    l->path.segment_number = 0;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        const struct tb_stream *s = tb_link_stream_at(l, i);
        if (s == NULL || s->plan.session_seq != tb_link_session_seq(l)) continue;
        if (s->plan.number > l->path.segment_number) l->path.segment_number = s->plan.number;
    }
    return tb_segment_stalled(&l->path.segment, bytes);
}

/* Manifests fill it with full segments, and heartbeats wait behind them. */
static void watch_control(struct tb_link *l, tb_time_ns now)
{
    TB_ASSERT(tb_link_is_up(l));
    struct tb_tcp_seen seen;
    if (!tb_tcp_look(tb_chan_fd(tb_wire_chan(tb_link_control(l)->wire)), &seen)) return;
    if (seen.bytes_acked == l->path.control_acked && l->path.control_at != 0) return;
    l->path.control_acked = seen.bytes_acked;
    l->path.control_at = now;
}

void tb_link_segment_tick(struct tb_link *l, tb_time_ns now)
{
    bool low = false, moved = false;
    if (!tb_link_is_up(l) || tb_time_since(l->path.segment_at, now) < LOOK_EVERY) return;
    l->path.segment_at = now;
    watch_control(l, now);
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        struct tb_stream *s = tb_link_stream_at(l, i);
        if (s == NULL || s->plan.session_seq != tb_link_session_seq(l)) continue;
        moved |= stream_moved(s);
        const uint32_t bytes = atomic_load_explicit(&s->stalled_segment, memory_order_relaxed);
        if (stream_stalled(l, s, now) && is_fresh(l, s)) low |= count_stalled(l, bytes);
    }
    if (moved) tb_segment_moved(&l->path.segment);
    if (low) lowered(l);
    if (tb_link_control(l)->dialled && tb_segment_again(&l->path.segment, now)) try_own(l, now);
}

/* ---- sessions ---- */

/* The peer went on speaking on it while nothing of ours was acknowledged: a path that is cut
 * is silent both ways. */
bool tb_link_segment_replaced(struct tb_link *l, const struct tb_link_conn *old)
{
    TB_ASSERT(!tb_link_is_up(l) || tb_link_control(l) == old); /* it is about to be replaced */
    const uint32_t bytes = tb_tcp_stalled(tb_chan_fd(tb_wire_chan(old->wire)));
    const bool heard = l->path.control_at != 0 &&
                       tb_wire_heard_at(old->wire) >= tb_time_add(l->path.control_at, HEARD_AFTER);
    return bytes != 0 && heard && tb_segment_stalled(&l->path.segment, bytes);
}

void tb_link_segment_up(struct tb_link *l, bool low)
{
    TB_ASSERT(tb_link_is_up(l));
    if (low) {
        lowered(l);
    } else if (l->path.segment.proven) {
        tb_link_said_mtu(l);
        say(l);
        renew(l);
    }
}

enum tb_status tb_link_on_segment(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_segment m;
    const enum tb_status status = tb_frame_segment_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_SEGMENT || m.bytes < TB_SEGMENT_BYTES_MIN ||
        m.bytes > TB_SEGMENT_BYTES_MAX)
        return TB_PEER_GARBLED;
    if (m.bytes == TB_SEGMENT_BYTES_MAX) {
        if (tb_link_control(l)->dialled || !l->path.segment.proven) return TB_OK;
        tb_segment_try_own(&l->path.segment);
        tb_link_said_no_mtu(l);
        return TB_OK;
    }
    if (!tb_segment_told(&l->path.segment, m.bytes)) return TB_OK;
    tell(l, true);
    renew(l);
    return TB_OK;
}

/* ---- handshakes ---- */

/* It opened after all, or never did. */
void tb_link_segment_probed(struct tb_link *l, bool opened)
{
    if (opened && !l->path.segment.proven)
        l->path.segment = (struct tb_segment){0};
    else if (!opened && tb_link_is_up(l) && l->path.segment.bytes_max != 0 && !l->path.segment.proven) {
        (void)tb_segment_told(&l->path.segment, l->path.segment.bytes_max);
        lowered(l);
    }
}

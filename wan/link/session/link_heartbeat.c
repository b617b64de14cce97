/* link_heartbeat.c - the turn of a session: heartbeats, certificates that end, the next dial. */
#include "wan/link/session/link_heartbeat.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/path/link_dial.h"
#include "wan/link/path/link_path.h"
#include "wan/link/path/link_why.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/session/link_session_life.h"
#include "wan/link/session/link_twin.h"
#include "wan/link/streams/streams_ahead.h"

#define RENEW_BEFORE_S 60u /* of a certificate's end */
#define RENEW_EVERY    TB_SECONDS(10)
#define FRAME_PATIENCE 10u /* times down_ms for 64 KiB of a frame, or for the end of it */

enum tb_status tb_link_on_ping(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_ping ping;
    const enum tb_status status = tb_frame_ping_decode(&f->payload, &ping);
    if (status == TB_OK) LINK_SEND(l, TB_FRAME_PONG, tb_frame_pong, LINK_SMALL, .stamp = ping.stamp);
    return status;
}

enum tb_status tb_link_on_pong(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_pong pong;
    struct tb_link_session_todo todo;
    const enum tb_status status = tb_frame_pong_decode(&f->payload, &pong);
    if (status != TB_OK) return status;
    const tb_time_ns now = tb_clock_now();
    if (pong.stamp > 0 && pong.stamp <= now) {
        l->stats.rtt = now - pong.stamp;
        tb_link_session_answered(&l->session.life, l->stats.rtt);
        tb_link_twin_answered(l, pong.stamp, now);
        l->session.beat.answered = pong.stamp;
    }
    l->session.beat.waiting_since = 0;
    if (l->session.life.state != TB_LINK_SILENT) return TB_OK;
    tb_link_step(l, TB_LINK_HEARD, NULL, &todo);
    tb_link_race_end(l);
    return TB_OK;
}

/* When the first of a session's two certificates ends; 0: neither does. */
static uint64_t session_expires(const struct tb_link_conn *c)
{
    const uint64_t ours = c->own_expires_wall_s, theirs = c->expires_wall_s;
    if (ours == 0 || theirs == 0) return ours + theirs;
    return ours < theirs ? ours : theirs;
}

/* A dial that began before the newest certificates were read came up after, or a
 * renewal with them failed. */
static bool shows_old_ones(const struct tb_link *l)
{
    const struct tb_digest newest = tb_tls_shown(l->links->options.tls);
    return l->session.control->dialled && !tb_digest_equal(&l->session.control->own_shown, &newest);
}

static void end_with_certificate(struct tb_link *l, bool ours)
{
    tb_link_drop(l, TB_PEER_IDENTITY);
    tb_link_said_expired(l, ours);
}

/* A session does not outlive the certificate of either end. A session that we dialled takes a
 * fresh connection a minute before, because either certificate may have been renewed by then.
 * Where ours has been renewed it does so at once. A renewal that failed is tried again after a
 * while. */
static void watch_certificates(struct tb_link *l, tb_time_ns now)
{
    TB_ASSERT(tb_link_is_up(l));
    const uint64_t wall_s = tb_clock_wall_ms() / 1000, expires = session_expires(l->session.control);
    const bool failed = tb_link_renewed_at(l) > l->stats.up_since;
    const bool rested = tb_time_since(tb_link_renewed_at(l), now) >= RENEW_EVERY;
    if (expires != 0 && wall_s >= expires)
        end_with_certificate(l, expires == l->session.control->own_expires_wall_s);
    else if (shows_old_ones(l) ? !failed || rested
                               : expires != 0 && wall_s + RENEW_BEFORE_S >= expires && rested)
        tb_link_renew(l, now);
}

static void beat(struct tb_link *l, tb_time_ns now)
{
    TB_ASSERT(tb_link_is_up(l));
    const struct tb_links_options *o = &l->links->options;
    struct tb_link_heartbeat *b = &l->session.beat;
    if (tb_time_since(b->sent_at, now) < TB_MS(o->heartbeat_ms)) return;
    b->sent_at = now;
    if (b->waiting_since == 0) b->waiting_since = now;
    LINK_SEND(l, TB_FRAME_PING, tb_frame_ping, LINK_SMALL, .stamp = now);
    watch_certificates(l, now);
}

static void listen_for_beats(struct tb_link *l, tb_time_ns now)
{
    TB_ASSERT(tb_link_is_up(l));
    const struct tb_links_options *o = &l->links->options;
    struct tb_link_session_todo todo;
    tb_time_ns heard = tb_wire_heard_at(l->session.control->wire);
    if (heard < l->session.beat.heard_floor) heard = l->session.beat.heard_floor;
    /* P7: a frame that makes no progress is no life sign, however its bytes drip. */
    const tb_time_ns moved = tb_wire_moved_at(l->session.control->wire);
    const bool stands = moved != 0 && moved >= l->session.beat.heard_floor &&
                        tb_time_since(moved, now) >= FRAME_PATIENCE * TB_MS(o->down_ms);
    if (stands || tb_time_since(heard, now) >= TB_MS(o->down_ms)) {
        tb_link_drop(l, TB_STREAM_IDLE);
        return;
    }
    if (l->session.life.state != TB_LINK_UP || l->session.beat.waiting_since == 0) return;
    if (tb_time_since(l->session.beat.waiting_since, now) < tb_link_session_patience(&l->session.life))
        return;
    tb_link_step(l, TB_LINK_QUIET, NULL, &todo);
    tb_link_log(l, TB_LOG_WARN, "link.silent", TB_OK, l->session.control->address_text);
    tb_link_names_doubt(l);
    if (todo.dial) tb_link_dial(l);
}

/* Our own loop stood still (a debugger, a stopped process): that is not the peer's silence. */
static void forgive_gap(struct tb_link *l, tb_time_ns now)
{
    const tb_time_ns gap = tb_time_since(l->links->ticked_at, now);
    if (gap < TB_MS(300)) return;
    l->session.beat.heard_floor = now;
    if (l->session.beat.waiting_since != 0) l->session.beat.waiting_since = now;
}

static void watch_limbo(struct tb_link *l, tb_time_ns now)
{
    if (l->session.limbo_since == 0) return;
    if (tb_link_has_candidate(l) &&
        tb_time_since(l->session.limbo_since, now) < TB_MS(l->links->options.down_ms))
        return;
    tb_link_be_down(l, TB_STREAM_CLOSED);
}

void tb_link_up_tick(struct tb_link *l, tb_time_ns now)
{
    struct tb_link_session_todo todo;
    if (tb_link_is_up(l)) forgive_gap(l, now);
    if (tb_link_is_up(l)) beat(l, now);
    if (tb_link_is_up(l)) listen_for_beats(l, now);
    tb_link_twin_forget(l, now);
    watch_limbo(l, now);
    if (l->links->closing) return;
    tb_link_dial_tick(l, now);
    if (now < l->session.life.next_dial_at) return;
    tb_link_step(l, TB_LINK_DUE, NULL, &todo);
    if (todo.dial) tb_link_dial(l);
}

void tb_link_up_stop(struct tb_link *l)
{
    struct tb_link_session_todo todo;
    tb_link_step(l, TB_LINK_STOP, NULL, &todo);
    tb_link_forget_resolving(l);
    tb_link_streams_ahead_end(l);
    if (tb_link_is_up(l)) tb_link_drop(l, TB_SITE_DRAINING);
}

/* Connections that were never greeted, or that are to end. */
void tb_links_conns_tick(struct tb_links *ls, tb_time_ns now)
{
    for (struct tb_link_conn *c = ls->conns; c != NULL; c = c->next) {
        if (c->is_session || c->ended || c->binding != NULL) continue;
        if (ls->closing || now >= c->greet_by)
            tb_link_conn_close(c, ls->closing ? TB_CANCELLED : TB_STREAM_IDLE);
    }
}

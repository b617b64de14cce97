/* link_frames.c - what comes on connections: opened, greeted, refused, frames of a session,
 * closed. */
#include "wan/link/session/link_frames.h"
#include "wan/link/path/segment_attempt.h"

#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/chan_facts.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/path/link_dial.h"
#include "wan/link/path/link_path.h"
#include "wan/link/path/link_segment.h"
#include "wan/link/path/link_why.h"
#include "wan/link/session/link_admission.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/session/link_heartbeat.h"
#include "wan/link/session/link_session_life.h"
#include "wan/link/session/link_twin.h"
#include "wan/link/streams/link_streams.h"
#include "wan/link/streams/link_tune.h"
#include "wan/link/traffic/link_day_budget.h"
#include "wan/link/traffic/link_expected.h"
#include "wan/link/traffic/link_manifest.h"
#include "wan/link/traffic/link_manifest_pages.h"
#include "wan/link/traffic/link_pause.h"
#include "wan/link/traffic/link_push.h"
#include "wan/link/traffic/link_runs.h"
#include "wan/link/traffic/link_send.h"
#include "wan/link/traffic/link_share.h"
#include "wan/link/traffic/link_signed.h"
#include "wan/link/traffic/link_state.h"
#include "wan/link/traffic/link_versions.h"

#define FULL_TOLD_EVERY TB_SECONDS(10)
#define GREETING_BYTES  (4096u - TB_WIRE_HEADER_BYTES) /* of a frame, before HELLO is answered (P7) */

/* P10: one line for each stranger. */
static void refuse_stranger(struct tb_link_conn *c, enum tb_status why)
{
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX] = "";
    if (c->fault_told) return;
    c->fault_told = true;
    c->links->strangers++;
    if (c->identity.kind != TB_IDENTITY_NONE) tb_identity_format(&c->identity, uri);
    tb_log_begin(&line, TB_LOG_WARN, "link.stranger_refused");
    tb_log_str(&line, "address", c->address_text);
    if (uri[0] != '\0') tb_log_str(&line, "identity", uri);
    tb_log_str(&line, "status", tb_status_name(why));
    tb_log_str(&line, "reason", tb_chan_reason(tb_wire_chan(c->wire)));
    tb_log_end(&line);
    tb_links_said_stranger(c, why);
}

static struct tb_link *link_of_identity(struct tb_links *ls, const struct tb_identity *identity)
{
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        if (tb_identity_equal(&ls->links[i].identity, identity)) return &ls->links[i];
    return NULL;
}

static void send_hello(struct tb_link_conn *c, const struct tb_id *session)
{
    const struct tb_links_options *o = &c->links->options;
    struct tb_writer *w = tb_wire_begin(c->wire, TB_FRAME_HELLO, 0, LINK_SMALL);
    if (w == NULL) return;
    uint8_t more[TB_FRAME_HELLO_MORE_BYTES];
    struct tb_writer said;
    tb_writer_init(&said, more, sizeof more);
    tb_write_id(&said, &o->process);
    tb_write_u64(&said, tb_clock_wall_ms());
    TB_ASSERT(!said.full && said.used == sizeof more);
    const struct tb_frame_hello hello = {.protocol = o->protocol_max,
                                         .protocol_min = TB_LINK_PROTOCOL_MIN,
                                         .site = o->site,
                                         .gateway = o->gateway,
                                         .lane = o->lane,
                                         .lane_count = o->lane_count,
                                         .life = o->life,
                                         .incarnation = o->incarnation,
                                         .session = *session,
                                         .more = {more, (uint32_t)said.used}};
    tb_frame_hello_encode(&hello, w);
    tb_wire_end(c->wire);
}

/* Messages on a control stream are small, but a version waits for them first: its congestion
 * control matters too. A data stream is measured again once it is on its loop. */
static void conn_path(struct tb_link_conn *c)
{
    TB_ASSERT(c->link != NULL && c->wire != NULL);
    struct tb_tcp_path path;
    tb_tcp_path_open(&path, tb_link_tcp_options(c->link), tb_chan_fd(tb_wire_chan(c->wire)), false);
    c->rtt = path.seen.rtt_min;
}

/* P10: a fault after that is its doing, and few lines of it are written. */
static void log_of(const struct tb_link_conn *c)
{
    if (c->identity.kind != TB_IDENTITY_NONE)
        tb_log_of_identity(&c->identity);
    else
        tb_log_of_stranger(c->address_text);
}

/* P7 P10: counted as what it is, and no stranger: it lacks no right. */
static bool has_its_share(struct tb_link *l)
{
    if (l->session.conn_count < LINK_CONNS_SHARE) return false;
    l->links->tables[TB_LINKS_TABLE_CONNS].spent++;
    tb_links_table_refused(l->links, TB_LINKS_TABLE_CONNS, l);
    return true;
}

static void opened(struct tb_link_conn *c, const struct tb_chan_peer *peer)
{
    const struct tb_id none = {{0}};
    c->identity = peer->identity;
    c->opened_at = tb_clock_now();
    c->expires_wall_s = peer->expires_wall_s;
    snprintf(c->address_text, sizeof c->address_text, "%s", peer->address);
    if (c->probe) {
        c->outrun = true;
        tb_link_segment_probed(c->link, true);
        tb_link_conn_close(c, TB_CANCELLED);
        return;
    }
    log_of(c);
    if (c->dialled && tb_link_is_shut_out(c->link)) {
        tb_link_conn_close(c, TB_PEER_DENIED);
        return;
    }
    if (c->dialled) {
        tb_link_dial_won(c);
        conn_path(c);
        send_hello(c, &none);
        /* not after a round trip more: what the peer has comes with its HELLO */
        tb_link_subscribe(c->link, c->wire);
        return;
    }
    struct tb_link *l = link_of_identity(c->links, &peer->identity);
    if (l == NULL || tb_link_is_shut_out(l)) {
        refuse_stranger(c, TB_PEER_DENIED);
        tb_link_conn_bye(c, TB_PEER_DENIED, 0);
        return;
    }
    if (has_its_share(l)) {
        tb_link_conn_bye(c, TB_SITE_NOMEM, 0);
        return;
    }
    c->link = l;
    l->session.conn_count++;
    tb_link_admitted(c, true);
    conn_path(c);
}

static void on_wire_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w;
    struct tb_link_conn *c = user;
    opened(c, peer);
    tb_log_of_us();
}

static void log_refused(const struct tb_link *l, enum tb_status why, uint64_t detail, bool by_peer)
{
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&l->identity, uri);
    tb_log_begin(&line, TB_LOG_WARN, "link.refused");
    tb_log_str(&line, "peer", uri);
    tb_log_str(&line, "by", by_peer ? "peer" : "us");
    tb_log_str(&line, "status", tb_status_name(why));
    tb_log_u64(&line, "detail", detail);
    tb_log_end(&line);
}

static void tell_refused(struct tb_link *l, enum tb_status why, uint64_t detail, bool by_peer)
{
    if (why == TB_PEER_DUPLICATE) return; /* nobody's fault: the other session stays */
    l->stats.refused++;
    l->stats.last_why = why;
    if (why != TB_PEER_TWIN)
        log_refused(l, why, detail, by_peer);
    else if (by_peer)
        tb_link_twin_is_us(l);
    tb_link_said_bye(l, why, by_peer);
    const struct tb_links_options *o = &l->links->options;
    if (o->ops->on_refused != NULL) o->ops->on_refused(o->user, l->index, why, detail, by_peer);
}

/* HELLO that is no part of a session yet. The dialler speaks first; the acceptor answers
 * with the session's id. */
static enum tb_status on_hello(struct tb_link_conn *c, struct tb_wire_frame *f)
{
    TB_ASSERT(c->link != NULL && !c->is_session);
    struct tb_frame_hello hello;
    struct tb_link_session_verdict verdict;
    struct tb_link *l = c->link;
    enum tb_status status = tb_frame_hello_decode(&f->payload, &hello);
    if (status != TB_OK) return status;
    if (tb_id_is_zero(&hello.session) != !c->dialled) return TB_PEER_GARBLED;
    /* P6: a session that began now would never end, and the links would never be closed */
    if (c->links->closing || tb_link_life_state(l) == TB_LINK_STOPPED) {
        c->fault_told = true;
        tb_link_conn_bye(c, TB_SITE_DRAINING, 0);
        return TB_OK;
    }
    tb_link_twin_forget(l, tb_clock_now());
    status = tb_link_session_judge(&l->session.life, &hello, c->dialled, &verdict);
    if (status == TB_PEER_TWIN) tb_link_twin_found(l, c, &hello);
    if (verdict.ask) tb_link_twin_ask(l);
    if (status != TB_OK) {
        tell_refused(l, status, verdict.detail, false);
        c->fault_told = true;
        tb_link_conn_bye(c, status, verdict.detail);
        return TB_OK;
    }
    struct tb_id id = hello.session;
    if (!c->dialled) {
        tb_random_bytes(id.bytes, sizeof id.bytes);
        send_hello(c, &id);
    }
    tb_wire_allow(c->wire, TB_LINK_FRAME_BYTES_MAX, true);
    tb_link_session_begin(c, &hello, &id, verdict.protocol);
    return TB_OK;
}

static void session_refused(struct tb_link *l, enum tb_status why)
{
    TB_ASSERT(tb_link_is_up(l));
    tb_link_session_end(l, why);
    if (why == TB_PEER_TWIN) tb_link_twin_is_us(l);
    if (why != TB_PEER_DUPLICATE) tb_link_said_bye(l, why, true);
}

static enum tb_status on_bye(struct tb_link_conn *c, struct tb_wire_frame *f)
{
    struct tb_frame_bye bye;
    const enum tb_status status = tb_frame_bye_decode(&f->payload, &bye);
    if (status != TB_OK) return status;
    const enum tb_status why = tb_frame_status_of(bye.status_negated);
    /* P6: an acceptor is in the session when the dialler judges its HELLO: without this word its
     * catalog never counts on. */
    const bool judged = !c->is_session || why == TB_PEER_STALE;
    if (judged && c->link != NULL) tell_refused(c->link, why, bye.detail, true);
    c->fault_told = true;
    if (c->is_session && why == TB_PEER_DUPLICATE && tb_link_has_candidate(c->link))
        tb_link_session_limbo(c->link);
    else if (c->is_session)
        session_refused(c->link, why);
    tb_link_conn_close(c, why);
    return TB_OK;
}

typedef enum tb_status (*link_handler)(struct tb_link *l, struct tb_wire_frame *f);

static const link_handler handlers[TB_FRAME_TYPE_END] = {
    [TB_FRAME_PING] = tb_link_on_ping,
    [TB_FRAME_PONG] = tb_link_on_pong,
    [TB_FRAME_SUBSCRIBE] = tb_link_on_subscribe,
    [TB_FRAME_DENIED] = tb_link_on_denied,
    [TB_FRAME_VERSION] = tb_link_on_version,
    [TB_FRAME_GONE] = tb_link_on_gone,
    [TB_FRAME_ASK] = tb_link_on_ask,
    [TB_FRAME_HEAD] = tb_link_on_head,
    [TB_FRAME_DIGESTS] = tb_link_on_digests,
    [TB_FRAME_WANT] = tb_link_on_want,
    [TB_FRAME_BASE] = tb_link_on_base,
    [TB_FRAME_TAKE] = tb_link_on_take,
    [TB_FRAME_HAVE] = tb_link_on_have,
    [TB_FRAME_HELD] = tb_link_on_held,
    [TB_FRAME_START] = tb_link_on_start,
    [TB_FRAME_STOP] = tb_link_on_stop,
    [TB_FRAME_REFUSED] = tb_link_on_refused,
    [TB_FRAME_WHOLE] = tb_link_on_whole,
    [TB_FRAME_STREAM_GONE] = tb_link_on_stream_gone,
    [TB_FRAME_REPORT] = tb_link_on_report,
    [TB_FRAME_STREAMS] = tb_link_on_streams,
    [TB_FRAME_EXPECT] = tb_link_on_expect,
    [TB_FRAME_PUSH] = tb_link_on_push,
    [TB_FRAME_SPENT] = tb_link_on_spent,
    [TB_FRAME_RUNS] = tb_link_on_runs,
    [TB_FRAME_RUN_TOLD] = tb_link_on_run_told,
    [TB_FRAME_SEGMENT] = tb_link_on_segment,
    [TB_FRAME_STATE] = tb_link_on_state,
    [TB_FRAME_HOLDUP] = tb_link_on_holdup,
    [TB_FRAME_STATEMENT] = tb_link_on_statement,
    [TB_FRAME_PROOFS] = tb_link_on_proofs,
    [TB_FRAME_PAUSED] = tb_link_on_paused,
};

static void log_garbled(const struct tb_link_conn *c, uint16_t type)
{
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&c->identity, uri);
    tb_log_begin(&line, TB_LOG_WARN, "link.garbled");
    tb_log_str(&line, "peer", uri);
    tb_log_str(&line, "frame", tb_frame_name(type));
    tb_log_u64(&line, "type", type);
    tb_log_end(&line);
}

static enum tb_status dispatch(struct tb_link_conn *c, struct tb_wire_frame *f)
{
    if (f->request != 0) return TB_PEER_GARBLED;
    if (f->type == TB_FRAME_BYE) return on_bye(c, f);
    if (c->link == NULL) return TB_PEER_GARBLED;
    if (!c->is_session) {
        if (f->type == TB_FRAME_HELLO) return on_hello(c, f);
        if (f->type == TB_FRAME_BIND && !c->dialled) return tb_links_on_bind(c, f);
        return TB_PEER_GARBLED;
    }
    if (f->type >= TB_FRAME_TYPE_END || handlers[f->type] == NULL) return TB_PEER_GARBLED;
    return handlers[f->type](c->link, f);
}

/* Its other connections end, too. */
static void glitched(struct tb_link_conn *c)
{
    struct tb_link *l = c->link;
    if (!tb_link_glitched(c)) return;
    if (tb_link_is_up(l) && tb_link_control(l) != c) tb_link_drop(l, TB_PEER_DENIED);
    for (struct tb_link_conn *other = l->links->conns; other != NULL; other = other->next)
        if (other != c && other->link == l && other->wire != NULL && !other->is_session)
            tb_link_conn_close(other, TB_PEER_DENIED);
}

static void on_wrong_frame(struct tb_link_conn *c, const struct tb_wire_frame *f, enum tb_status status)
{
    if (status == TB_PEER_GARBLED) {
        log_garbled(c, f->type);
        glitched(c);
    }
    c->fault_told = true;
    if (c->is_session)
        tb_link_drop(c->link, status);
    else
        tb_link_conn_bye(c, status, 0);
}

static enum tb_status on_wire_frame(struct tb_wire *w, void *user, struct tb_wire_frame *f)
{
    (void)w;
    struct tb_link_conn *c = user;
    if (c->ended) return TB_OK;
    log_of(c);
    const enum tb_status status = dispatch(c, f);
    if (status != TB_OK && !c->ended) on_wrong_frame(c, f, status);
    tb_log_of_us();
    return TB_OK;
}

/* Dialled beside this session, which is one that we dialled: a renewal, or a move. */
static bool renews(const struct tb_link *l, const struct tb_link_conn *c)
{
    return l->session.life.state == TB_LINK_UP && l->session.control->dialled && c->racing &&
           c->greet_by >= l->stats.up_since + LINK_GREET_BY;
}

/* P10: the first of a row that fails. A renewal that does leaves the session as it is, which ends
 * with its certificates. */
static void tell_failed(struct tb_link *l, struct tb_link_conn *c, enum tb_status why)
{
    const char *reason = tb_chan_reason(tb_wire_chan(c->wire));
    if (c->fault_told || why == TB_CANCELLED) return;
    c->fault_told = true;
    if (l->session.life.state == TB_LINK_DIALLING)
        tb_link_log(l, l->session.life.attempts == 0 ? TB_LOG_WARN : TB_LOG_DEBUG, "link.dial_failed", why,
                    reason);
    else if (renews(l, c))
        tb_link_log(l, TB_LOG_WARN, "link.renew_failed", why, reason);
}

static void on_wire_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    struct tb_link_conn *c = user;
    struct tb_link *l = c->link;
    const bool dialled = c->dialled, was_session = c->is_session, closing = c->links->closing;
    const bool said_no = c->fault_told; /* BYE, or what broke the protocol: that is told */
    log_of(c);
    if (why == TB_PEER_GARBLED) glitched(c);
    if (was_session)
        tb_link_session_end(l, why);
    else if (l == NULL && !c->ended && !closing)
        refuse_stranger(c, why);
    const bool failed = dialled && !was_session && !closing && !c->outrun, racing = c->racing;
    const bool never_greeted = failed && c->greet_by != 0;
    const enum tb_chan_reach reach = tb_chan_reach(tb_wire_chan(w));
    if (c->probe && never_greeted) tb_link_segment_probed(l, false);
    if (never_greeted) tb_link_segment_lost(c, why);
    if (never_greeted) tell_failed(l, c, why);
    if (never_greeted && !said_no) tb_link_said_undialled(c, why);
    tb_link_conn_free(c);
    tb_log_of_us();
    if (!never_greeted) return;
    tb_link_dial_ended(l, racing, why, reach);
}

const struct tb_wire_ops tb_links_wire_ops = {
    .on_open = on_wire_open, .on_frame = on_wire_frame, .on_closed = on_wire_closed};

/* P10: a flood is no flood of lines. */
static void tell_full(struct tb_links *ls, const struct tb_address *from)
{
    const tb_time_ns now = tb_clock_now();
    char address[128];
    if (ls->full_told_at != 0 && tb_time_since(ls->full_told_at, now) < FULL_TOLD_EVERY) return;
    ls->full_told_at = now;
    tb_address_format(from, address, sizeof address);
    tb_log(TB_LOG_WARN, "link.accept_refused", "address=%s connections=%u", address, ls->accepted_count);
}

void tb_links_on_accept(void *user, int fd, const struct tb_address *from)
{
    struct tb_links *ls = user;
    uint64_t handshake = 0;
    const bool admitted = tb_link_admit(ls, from, &handshake);
    if (!admitted) {
        ls->tables[TB_LINKS_TABLE_CONNS].spent++;
        tb_links_table_refused(ls, TB_LINKS_TABLE_CONNS, NULL);
    }
    struct tb_link_conn *c = admitted ? tb_link_conn_new(ls, NULL) : NULL;
    if (c == NULL) {
        if (handshake != 0) tb_handshake_end(&ls->admission->strangers, handshake, tb_clock_now(), true);
        tell_full(ls, from);
        close(fd); /* P7: a flooder of the port waits with the others */
        return;
    }
    c->handshake = handshake;
    c->address = *from;
    tb_address_format(from, c->address_text, sizeof c->address_text);
    struct tb_wire_options options = tb_links_wire_options(ls, c);
    options.frame_bytes_now = GREETING_BYTES;
    options.chan.expect.bulk_heard = true; /* what dials may become a stream */
    if (tb_wire_accept(&options, fd, &c->wire) != TB_OK) tb_link_conn_free(c);
}

/* link_up.c - sessions: accepting, greeting, heartbeats, ends. link_session.h decides; this does. */
#include <stdio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "base/log.h"
#include "wan/link/link.h"

#define BYE_LINGER_MS   500
#define RENEW_BEFORE_S  60u /* of a certificate's end */
#define RENEW_EVERY     TB_SECONDS(10)
#define FULL_TOLD_EVERY TB_SECONDS(10)

bool link_is_up(const struct link *l)
{
    return l->session != NULL;
}

struct tb_writer *link_begin(struct link *l, enum tb_frame_type type, size_t payload_max)
{
    return l->session != NULL ? tb_wire_begin(l->session->wire, (uint16_t)type, 0, payload_max) : NULL;
}

void link_end(struct link *l)
{
    tb_wire_end(l->session->wire);
}

void link_log(const struct link *l, enum tb_log_level level, const char *event, enum tb_status why,
              const char *address)
{
    struct tb_log_line line;
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&l->identity, uri);
    tb_log_begin(&line, level, event);
    tb_log_str(&line, "peer", uri);
    if (address != NULL && address[0] != '\0') tb_log_str(&line, "address", address);
    if (why != TB_OK) tb_log_str(&line, "status", tb_status_name(why));
    tb_log_end(&line);
}

void link_step(struct link *l, enum tb_link_session_event_kind kind, const struct tb_link_session_event *more,
               struct tb_link_session_todo *todo_out)
{
    struct tb_link_session_event ev = {0};
    if (more != NULL) ev = *more;
    ev.kind = kind;
    ev.now = tb_clock_now();
    ev.random = links_random();
    if (tb_link_session_step(&l->life, &ev, todo_out) != TB_OK) memset(todo_out, 0, sizeof *todo_out);
}

/* ---- connections ---- */

void link_conn_close(struct conn *c, enum tb_status why)
{
    if (c->ended) return;
    c->ended = true;
    tb_wire_close(c->wire, why);
}

static void conn_bye(struct conn *c, enum tb_status why, uint64_t detail)
{
    if (c->ended) return;
    struct tb_writer *w = tb_wire_begin(c->wire, TB_FRAME_BYE, 0, LINK_SMALL);
    if (w != NULL) {
        tb_frame_bye_encode(&(struct tb_frame_bye){tb_frame_status(why), detail}, w);
        tb_wire_end(c->wire);
    }
    c->ended = true;
    tb_wire_finish(c->wire, why, BYE_LINGER_MS);
}

void link_conn_free(struct conn *c)
{
    struct conn **at = &c->links->conns;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (!c->dialled) c->links->accepted_count--;
    if (c->link != NULL) c->link->conn_count--;
    tb_free(c);
}

/* P6: strangers take the room of those who come, and none of ours who dial; and our dials to peers that are silent take none of
 * those who come. */
bool links_have_room(const struct tb_links *ls, const struct link *l)
{
    return l == NULL ? ls->accepted_count < LINK_CONNS_MAX : l->conn_count < LINK_CONNS_PER_PEER;
}

struct conn *link_conn_new(struct tb_links *ls, struct link *l)
{
    if (!links_have_room(ls, l)) return NULL;
    struct conn *c = tb_calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    c->links = ls;
    c->link = l;
    c->dialled = l != NULL;
    c->greet_by = tb_clock_now() + LINK_GREET_BY;
    c->own_expires_wall_s = tb_tls_expires_wall_s(ls->options.tls);
    c->own_shown = tb_tls_shown(ls->options.tls);
    c->next = ls->conns;
    ls->conns = c;
    if (l != NULL)
        l->conn_count++;
    else
        ls->accepted_count++;
    return c;
}

/* P10: one line for each stranger. */
static void refuse_stranger(struct conn *c, enum tb_status why)
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
    links_said_stranger(c, why);
}

static struct link *link_of_identity(struct tb_links *ls, const struct tb_identity *identity)
{
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        if (tb_identity_equal(&ls->links[i].identity, identity)) return &ls->links[i];
    return NULL;
}

static void send_hello(struct conn *c, const struct tb_id *session)
{
    const struct tb_links_options *o = &c->links->options;
    struct tb_writer *w = tb_wire_begin(c->wire, TB_FRAME_HELLO, 0, LINK_SMALL);
    if (w == NULL) return;
    const struct tb_frame_hello hello = {.protocol = o->protocol_max,
                                         .protocol_min = TB_LINK_PROTOCOL_MIN,
                                         .site = o->site,
                                         .gateway = o->gateway,
                                         .lane = o->lane,
                                         .lane_count = o->lane_count,
                                         .life = o->life,
                                         .incarnation = o->incarnation,
                                         .session = *session,
                                         .more = {(const uint8_t *)"", 0}};
    tb_frame_hello_encode(&hello, w);
    tb_wire_end(c->wire);
}

/* What is said on a control stream is small, but it is what a version waits for first. A data stream is asked again when it has
 * found its loop. */
static void conn_path(struct conn *c)
{
    struct tb_tcp_path path;
    tb_tcp_path_open(&path, &c->link->path, tb_chan_fd(tb_wire_chan(c->wire)), false);
    c->rtt = path.seen.rtt_min;
}

static void on_wire_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w;
    struct conn *c = user;
    const struct tb_id none = {{0}};
    c->identity = peer->identity;
    c->opened_at = tb_clock_now();
    c->expires_wall_s = peer->expires_wall_s;
    snprintf(c->address_text, sizeof c->address_text, "%s", peer->address);
    if (c->probe) {
        c->outrun = true;
        link_segment_probed(c->link, true);
        link_conn_close(c, TB_CANCELLED);
        return;
    }
    if (c->dialled) {
        link_dial_won(c);
        conn_path(c);
        send_hello(c, &none);
        /* not after a round trip more: what the peer has comes with its HELLO */
        link_subscribe(c->link, c->wire);
        return;
    }
    struct link *l = link_of_identity(c->links, &peer->identity);
    if (l == NULL || l->conn_count >= LINK_CONNS_PER_PEER + TB_LINKS_STREAMS_MAX) {
        refuse_stranger(c, TB_PEER_DENIED);
        conn_bye(c, TB_PEER_DENIED, 0);
        return;
    }
    c->link = l;
    l->conn_count++;
    conn_path(c);
}

/* ---- sessions ---- */

static void session_reset(struct link *l)
{
    link_versions_down(l);
    link_move_down(l);
    /* streams take nothing more; the next tick ends them, behind our BYE */
    tb_feed_session(l->feed, 0, TB_LINK_PROTOCOL_MIN);
    links_busy(l->links);
}

/* Takes the control stream off the link; what moved on it stops. */
static void session_leave(struct link *l)
{
    l->session->is_session = false;
    l->session = NULL;
    session_reset(l);
}

/* The link is down, and the daemon is told. */
static void be_down(struct link *l, enum tb_status why)
{
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {.peer_fault = why == TB_PEER_GARBLED};
    const struct tb_links_options *o = &l->links->options;
    l->stats.last_why = why;
    if (why == TB_PEER_GARBLED) l->stats.garbled++;
    l->limbo_since = 0;
    link_step(l, TB_LINK_LOST, &ev, &todo);
    link_said_down(l, why);
    if (l->links->closing) return;
    link_log(l, TB_LOG_WARN, "link.down", why, NULL);
    if (o->ops->on_peer != NULL) o->ops->on_peer(o->user, l->index, false, why);
}

static void session_end(struct link *l, enum tb_status why)
{
    session_leave(l);
    be_down(l, why);
}

static bool has_candidate(const struct link *l)
{
    for (const struct conn *c = l->links->conns; c != NULL; c = c->next)
        if (c->link == l && c->dialled && !c->is_session && !c->ended && c->greet_by != 0) return true;
    return false;
}

/* The peer replaced this session by another attempt of ours, whose HELLO is on its way: the two connections are not
 * ordered among each other. The link is not down until that attempt fails. */
static void session_limbo(struct link *l)
{
    struct tb_link_session_todo todo;
    session_leave(l);
    l->limbo_since = tb_clock_now();
    link_step(l, TB_LINK_QUIET, NULL, &todo);
}

static void watch_limbo(struct link *l, tb_time_ns now)
{
    if (l->limbo_since == 0) return;
    if (has_candidate(l) && tb_time_since(l->limbo_since, now) < TB_MS(l->links->options.down_ms)) return;
    be_down(l, TB_STREAM_CLOSED);
}

void link_drop(struct link *l, enum tb_status why)
{
    if (!link_is_up(l)) return;
    struct conn *c = l->session;
    session_end(l, why);
    conn_bye(c, why, 0);
}

static void session_begin(struct conn *c, const struct tb_frame_hello *hello, const struct tb_id *id,
                          uint32_t protocol)
{
    struct link *l = c->link;
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {
        .dialled_by_us = c->dialled, .incarnation = hello->incarnation, .life = hello->life};
    link_step(l, TB_LINK_GREETED, &ev, &todo);
    bool stalled = false;
    if (l->session != NULL) {
        struct conn *old = l->session;
        stalled = link_segment_replaced(l, old);
        session_leave(l);
        conn_bye(old, TB_PEER_DUPLICATE, 0);
    }
    l->session = c;
    l->limbo_since = 0;
    link_said_up(l);
    tb_race_end(&l->race);
    link_dials_end(l);
    c->is_session = true;
    c->greet_by = 0;
    l->session_id = *id;
    l->protocol = protocol;
    l->session_seq++;
    link_life(l, &hello->life);
    link_state_up(l);
    link_versions_up(l);
    l->want_last = 0;
    l->stream_number = 0;
    l->stream_failures = 0;
    l->stream_retry_at = 0;
    l->elsewhere = 0;
    memset(l->gone_numbers, 0, sizeof l->gone_numbers);
    l->beat = (struct link_heartbeat){.heard_floor = tb_clock_now()};
    l->twin = (struct link_twin){0};
    l->control_at = 0;
    l->stats.up_since = tb_clock_now();
    l->stats.sessions++;
    l->path_rtt = c->rtt;
    l->peer_wants = l->told_wants = 0;
    l->told_spent = l->stats.peer_spent = false;
    l->looked_at = 0;
    tb_feed_session(l->feed, l->session_seq, protocol);
    link_log(l, TB_LOG_INFO, todo.replaced ? "link.renewed" : "link.up", TB_OK, c->address_text);
    link_streams_adopt(l);
    if (!c->dialled) link_subscribe(l, c->wire); /* who dials did it behind its HELLO */
    link_segment_up(l, stalled);
    links_busy(l->links);
    const struct tb_links_options *o = &l->links->options;
    if (!todo.replaced && o->ops->on_peer != NULL) o->ops->on_peer(o->user, l->index, true, TB_OK);
    if (todo.replaced && o->ops->on_renewed != NULL) o->ops->on_renewed(o->user, l->index);
}

static void log_refused(const struct link *l, enum tb_status why, uint64_t detail, bool by_peer)
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

static void tell_refused(struct link *l, enum tb_status why, uint64_t detail, bool by_peer)
{
    if (why == TB_PEER_DUPLICATE) return; /* nobody's fault: the other session stays */
    l->stats.refused++;
    l->stats.last_why = why;
    if (why != TB_PEER_TWIN)
        log_refused(l, why, detail, by_peer);
    else if (by_peer)
        link_twin_is_us(l);
    link_said_bye(l, why, by_peer);
    const struct tb_links_options *o = &l->links->options;
    if (o->ops->on_refused != NULL) o->ops->on_refused(o->user, l->index, why, detail, by_peer);
}

/* HELLO that is no part of a session yet. The dialler speaks first; the acceptor answers with the session's
 * id. */
static enum tb_status on_hello(struct conn *c, struct tb_wire_frame *f)
{
    struct tb_frame_hello hello;
    struct tb_link_session_verdict verdict;
    struct link *l = c->link;
    enum tb_status status = tb_frame_hello_decode(&f->payload, &hello);
    if (status != TB_OK) return status;
    if (tb_id_is_zero(&hello.session) != !c->dialled) return TB_PEER_GARBLED;
    if (c->links
            ->closing) { /* P6: a session that began now would never end, and the links would never be closed */
        c->fault_told = true;
        conn_bye(c, TB_SITE_DRAINING, 0);
        return TB_OK;
    }
    link_twin_forget(l, tb_clock_now());
    status = tb_link_session_judge(&l->life, &hello, c->dialled, &verdict);
    if (status == TB_PEER_TWIN) link_twin_found(l, c, &hello.life);
    if (verdict.ask) link_twin_ask(l);
    if (status != TB_OK) {
        tell_refused(l, status, verdict.detail, false);
        c->fault_told = true;
        conn_bye(c, status, verdict.detail);
        return TB_OK;
    }
    struct tb_id id = hello.session;
    if (!c->dialled) {
        tb_random_bytes(id.bytes, sizeof id.bytes);
        send_hello(c, &id);
    }
    session_begin(c, &hello, &id, verdict.protocol);
    return TB_OK;
}

static void session_refused(struct link *l, enum tb_status why)
{
    session_end(l, why);
    if (why == TB_PEER_TWIN) link_twin_is_us(l);
    if (why != TB_PEER_DUPLICATE) link_said_bye(l, why, true);
}

static enum tb_status on_bye(struct conn *c, struct tb_wire_frame *f)
{
    struct tb_frame_bye bye;
    const enum tb_status status = tb_frame_bye_decode(&f->payload, &bye);
    if (status != TB_OK) return status;
    const enum tb_status why = tb_frame_status_of(bye.status_negated);
    /* P6: an acceptor is in the session when the dialler judges its HELLO: without this word its catalog never counts on. */
    const bool judged = !c->is_session || why == TB_PEER_STALE;
    if (judged && c->link != NULL) tell_refused(c->link, why, bye.detail, true);
    c->fault_told = true;
    if (c->is_session && why == TB_PEER_DUPLICATE && has_candidate(c->link))
        session_limbo(c->link);
    else if (c->is_session)
        session_refused(c->link, why);
    link_conn_close(c, why);
    return TB_OK;
}

static enum tb_status on_ping(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_ping ping;
    const enum tb_status status = tb_frame_ping_decode(&f->payload, &ping);
    if (status == TB_OK) LINK_SEND(l, TB_FRAME_PONG, tb_frame_pong, LINK_SMALL, .stamp = ping.stamp);
    return status;
}

static enum tb_status on_pong(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_pong pong;
    struct tb_link_session_todo todo;
    const enum tb_status status = tb_frame_pong_decode(&f->payload, &pong);
    if (status != TB_OK) return status;
    const tb_time_ns now = tb_clock_now();
    if (pong.stamp > 0 && pong.stamp <= now) {
        l->stats.rtt = now - pong.stamp;
        tb_link_session_answered(&l->life, l->stats.rtt);
        link_twin_answered(l, pong.stamp, now);
        l->beat.answered = pong.stamp;
    }
    l->beat.waiting_since = 0;
    if (l->life.state != TB_LINK_SILENT) return TB_OK;
    link_step(l, TB_LINK_HEARD, NULL, &todo);
    tb_race_end(&l->race);
    link_dials_end(l);
    return TB_OK;
}

typedef enum tb_status (*link_handler)(struct link *l, struct tb_wire_frame *f);
static const link_handler handlers[TB_FRAME_TYPE_END] = {
    [TB_FRAME_PING] = on_ping,
    [TB_FRAME_PONG] = on_pong,
    [TB_FRAME_SUBSCRIBE] = link_on_subscribe,
    [TB_FRAME_DENIED] = link_on_denied,
    [TB_FRAME_VERSION] = link_on_version,
    [TB_FRAME_GONE] = link_on_gone,
    [TB_FRAME_ASK] = link_on_ask,
    [TB_FRAME_HEAD] = link_on_head,
    [TB_FRAME_DIGESTS] = link_on_digests,
    [TB_FRAME_WANT] = link_on_want,
    [TB_FRAME_BASE] = link_on_base,
    [TB_FRAME_TAKE] = link_on_take,
    [TB_FRAME_HAVE] = link_on_have,
    [TB_FRAME_HELD] = link_on_held,
    [TB_FRAME_START] = link_on_start,
    [TB_FRAME_STOP] = link_on_stop,
    [TB_FRAME_REFUSED] = link_on_refused,
    [TB_FRAME_WHOLE] = link_on_whole,
    [TB_FRAME_STREAM_GONE] = link_on_stream_gone,
    [TB_FRAME_REPORT] = link_on_report,
    [TB_FRAME_STREAMS] = link_on_streams,
    [TB_FRAME_EXPECT] = link_on_expect,
    [TB_FRAME_PUSH] = link_on_push,
    [TB_FRAME_SPENT] = link_on_spent,
    [TB_FRAME_RUNS] = link_on_runs,
    [TB_FRAME_RUN_TOLD] = link_on_run_told,
    [TB_FRAME_SEGMENT] = link_on_segment,
    [TB_FRAME_STATE] = link_on_state,
    [TB_FRAME_HOLDUP] = link_on_holdup,
};

static void log_garbled(const struct conn *c, uint16_t type)
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

static enum tb_status dispatch(struct conn *c, struct tb_wire_frame *f)
{
    if (f->request != 0) return TB_PEER_GARBLED;
    if (f->type == TB_FRAME_BYE) return on_bye(c, f);
    if (c->link == NULL) return TB_PEER_GARBLED;
    if (!c->is_session) {
        if (f->type == TB_FRAME_HELLO) return on_hello(c, f);
        if (f->type == TB_FRAME_BIND && !c->dialled) return links_on_bind(c, f);
        return TB_PEER_GARBLED;
    }
    if (f->type >= TB_FRAME_TYPE_END || handlers[f->type] == NULL) return TB_PEER_GARBLED;
    return handlers[f->type](c->link, f);
}

static enum tb_status on_wire_frame(struct tb_wire *w, void *user, struct tb_wire_frame *f)
{
    (void)w;
    struct conn *c = user;
    if (c->ended) return TB_OK;
    const enum tb_status status = dispatch(c, f);
    if (status == TB_OK || c->ended) return TB_OK;
    if (status == TB_PEER_GARBLED) log_garbled(c, f->type);
    c->fault_told = true;
    if (c->is_session)
        link_drop(c->link, status);
    else
        conn_bye(c, status, 0);
    return TB_OK;
}

/* Dialled beside this session, which is one that we dialled: a renewal, or a move. */
static bool renews(const struct link *l, const struct conn *c)
{
    return l->life.state == TB_LINK_UP && l->session->dialled && c->racing &&
           c->greet_by >= l->stats.up_since + LINK_GREET_BY;
}

/* P10: the first of a row that fails. A renewal that does leaves the session as it is, which ends with its certificates. */
static void tell_failed(struct link *l, struct conn *c, enum tb_status why)
{
    const char *reason = tb_chan_reason(tb_wire_chan(c->wire));
    if (c->fault_told || why == TB_CANCELLED) return;
    c->fault_told = true;
    if (l->life.state == TB_LINK_DIALLING)
        link_log(l, l->life.attempts == 0 ? TB_LOG_WARN : TB_LOG_DEBUG, "link.dial_failed", why, reason);
    else if (renews(l, c))
        link_log(l, TB_LOG_WARN, "link.renew_failed", why, reason);
}

static void on_wire_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    struct conn *c = user;
    struct link *l = c->link;
    const bool dialled = c->dialled, was_session = c->is_session, closing = c->links->closing;
    const bool said_no = c->fault_told; /* BYE, or what broke the protocol: that is told */
    if (was_session)
        session_end(l, why);
    else if (l == NULL && !c->ended && !closing)
        refuse_stranger(c, why);
    const bool failed = dialled && !was_session && !closing && !c->outrun, racing = c->racing;
    const bool never_greeted = failed && c->greet_by != 0;
    const enum tb_chan_reach reach = tb_chan_reach(tb_wire_chan(w));
    if (c->probe && never_greeted) link_segment_probed(l, false);
    if (never_greeted) tell_failed(l, c, why);
    if (never_greeted && !said_no) link_said_undialled(c, why);
    link_conn_free(c);
    if (!never_greeted) return;
    link_dial_ended(l, racing, why, reach);
}

const struct tb_wire_ops links_wire_ops = {
    .on_open = on_wire_open, .on_frame = on_wire_frame, .on_closed = on_wire_closed};

/* ---- accepting ---- */

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

void links_on_accept(void *user, int fd, const struct tb_address *from)
{
    struct tb_links *ls = user;
    struct conn *c = link_conn_new(ls, NULL);
    if (c == NULL) {
        tell_full(ls, from);
        close(fd); /* P7: whoever floods the port waits with the others */
        return;
    }
    c->address = *from;
    tb_address_format(from, c->address_text, sizeof c->address_text);
    struct tb_wire_options options = links_wire_options(ls, c);
    options.chan.expect.bulk_heard = true; /* what dials may become a stream */
    if (tb_wire_accept(&options, fd, &c->wire) != TB_OK) link_conn_free(c);
}

/* ---- the clock ---- */

/* When the first of a session's two certificates ends; 0: neither does. */
static uint64_t session_expires(const struct conn *c)
{
    const uint64_t ours = c->own_expires_wall_s, theirs = c->expires_wall_s;
    if (ours == 0 || theirs == 0) return ours + theirs;
    return ours < theirs ? ours : theirs;
}

/* A dial that began before the newest certificates were read came up after, or a renewal with them failed. */
static bool shows_old_ones(const struct link *l)
{
    const struct tb_digest newest = tb_tls_shown(l->links->options.tls);
    return l->session->dialled && !tb_digest_equal(&l->session->own_shown, &newest);
}

static void end_with_certificate(struct link *l, bool ours)
{
    link_drop(l, TB_PEER_IDENTITY);
    link_said_expired(l, ours);
}

/* A session does not outlive the certificate of either end. One that we dialled takes a fresh connection before, in the hope of newer
 * ones, as the peer's may have been renewed, and ours; and at once where ours has been. What failed is tried again after a while. */
static void watch_certificates(struct link *l, tb_time_ns now)
{
    const uint64_t wall_s = tb_clock_wall_ms() / 1000, expires = session_expires(l->session);
    const bool failed = l->renewed_at > l->stats.up_since;
    const bool rested = tb_time_since(l->renewed_at, now) >= RENEW_EVERY;
    if (expires != 0 && wall_s >= expires)
        end_with_certificate(l, expires == l->session->own_expires_wall_s);
    else if (shows_old_ones(l) ? !failed || rested
                               : expires != 0 && wall_s + RENEW_BEFORE_S >= expires && rested)
        link_renew(l, now);
}

static void beat(struct link *l, tb_time_ns now)
{
    const struct tb_links_options *o = &l->links->options;
    struct link_heartbeat *b = &l->beat;
    if (tb_time_since(b->sent_at, now) < TB_MS(o->heartbeat_ms)) return;
    b->sent_at = now;
    if (b->waiting_since == 0) b->waiting_since = now;
    LINK_SEND(l, TB_FRAME_PING, tb_frame_ping, LINK_SMALL, .stamp = now);
    watch_certificates(l, now);
}

static void listen_for_beats(struct link *l, tb_time_ns now)
{
    const struct tb_links_options *o = &l->links->options;
    struct tb_link_session_todo todo;
    tb_time_ns heard = tb_wire_heard_at(l->session->wire);
    if (heard < l->beat.heard_floor) heard = l->beat.heard_floor;
    if (tb_time_since(heard, now) >= TB_MS(o->down_ms)) {
        link_drop(l, TB_STREAM_IDLE);
        return;
    }
    if (l->life.state != TB_LINK_UP || l->beat.waiting_since == 0) return;
    if (tb_time_since(l->beat.waiting_since, now) < tb_link_session_patience(&l->life)) return;
    link_step(l, TB_LINK_QUIET, NULL, &todo);
    link_log(l, TB_LOG_WARN, "link.silent", TB_OK, l->session->address_text);
    link_names_doubt(l);
    if (todo.dial) link_dial(l);
}

/* Our own loop stood still (a debugger, a stopped process): that is not the peer's silence. */
static void forgive_gap(struct link *l, tb_time_ns now)
{
    const tb_time_ns gap = tb_time_since(l->links->ticked_at, now);
    if (gap < TB_MS(300)) return;
    l->beat.heard_floor = now;
    if (l->beat.waiting_since != 0) l->beat.waiting_since = now;
}

void link_up_tick(struct link *l, tb_time_ns now)
{
    struct tb_link_session_todo todo;
    if (link_is_up(l)) forgive_gap(l, now);
    if (link_is_up(l)) beat(l, now);
    if (link_is_up(l)) listen_for_beats(l, now);
    link_twin_forget(l, now);
    watch_limbo(l, now);
    if (l->links->closing) return;
    link_dial_tick(l, now);
    if (now < l->life.next_dial_at) return;
    link_step(l, TB_LINK_DUE, NULL, &todo);
    if (todo.dial) link_dial(l);
}

void link_up_stop(struct link *l)
{
    struct tb_link_session_todo todo;
    link_step(l, TB_LINK_STOP, NULL, &todo);
    link_forget_resolving(l);
    link_streams_ahead_end(l);
    if (link_is_up(l)) link_drop(l, TB_SITE_DRAINING);
}

/* Connections that were never greeted, or that are to end. */
void links_conns_tick(struct tb_links *ls, tb_time_ns now)
{
    for (struct conn *c = ls->conns; c != NULL; c = c->next) {
        if (c->is_session || c->ended || c->binding != NULL) continue;
        if (ls->closing || now >= c->greet_by)
            link_conn_close(c, ls->closing ? TB_CANCELLED : TB_STREAM_IDLE);
    }
}

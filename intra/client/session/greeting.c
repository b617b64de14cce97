/* greeting.c - HELLO and WELCOME: this process names itself and the addresses of its fabric, and
 * the gateway lets it in or refuses it. */
#include "intra/client/session/greeting.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/net/chan_facts.h"
#include "intra/client/session/session.h"

#define LEASE_MS_MIN 300u
#define LEASE_MS_MAX 3600000u

/* The address under which others of the site find this process: the one it uses towards its
 * gateway. */
static void choose_fabric_address(const struct tb_greeting *g, char *out, size_t cap)
{
    struct tb_session *s = g->session;
    struct tb_address own = {.bytes = sizeof own.v6};
    snprintf(out, cap, "127.0.0.1:0");
    if (s->fabric_address[0] != '\0') {
        snprintf(out, cap, "%s", s->fabric_address);
        return;
    }
    if (g->by_unix || getsockname(tb_chan_fd(tb_wire_chan(g->wire)), &own.any, &own.bytes) != 0) return;
    if (own.any.sa_family == AF_INET)
        own.v4.sin_port = 0;
    else if (own.any.sa_family == AF_INET6)
        own.v6.sin6_port = 0;
    else
        return;
    tb_address_format(&own, out, cap);
}

static enum tb_status open_fabric(const struct tb_greeting *g, bool trusted)
{
    struct tb_session *s = g->session;
    char address[128];
    choose_fabric_address(g, address, sizeof address);
    const struct tb_fabric_options options = {.host = s->host,
                                              .tcp_address = address,
                                              .trusted = trusted,
                                              .pace_bytes_per_s = s->pace_bytes_per_s,
                                              .threads = tb_fabric_threads(s->threads, tb_cores_allowed()),
                                              .no_verbs = s->no_verbs};
    struct tb_fabric *fabric;
    const enum tb_status status = tb_fabric_open(&options, &fabric);
    if (status != TB_OK) {
        struct tb_log_line l;
        tb_log_begin(&l, TB_LOG_ERROR, "session.fabric_failed");
        tb_log_str(&l, "address", address);
        tb_log_str(&l, "status", tb_status_name(status));
        tb_log_end(&l);
        return status;
    }
    TB_ASSERT(s->fabric == NULL);
    tb_session_lock(s);
    s->fabric = fabric;
    s->fabric_trusted = trusted;
    tb_session_unlock(s);
    return TB_OK;
}

static void send_hello(struct tb_greeting *g)
{
    TB_ASSERT(g->session->fabric != NULL);
    struct tb_session *s = g->session;
    struct tb_fabric_endpoint door;
    tb_fabric_endpoint(s->fabric, &door);
    tb_session_lock(s);
    struct tb_msg_hello m = {.protocol = TB_MSG_PROTOCOL,
                             .session = s->id,
                             .name = s->name,
                             .host = s->host,
                             .rack = s->rack,
                             .spot = s->spot,
                             .pid = tb_msg_pid_put((uint32_t)s->pid, tb_fabric_nic_bytes_per_s(s->fabric)),
                             .tls = door.tls,
                             .print = door.fingerprint};
    g->hello = ++s->next_request;
    tb_session_unlock(s);
    snprintf(m.shm_door.text, sizeof m.shm_door.text, "%s", door.shm_door);
    snprintf(m.tcp.text, sizeof m.tcp.text, "%s", door.tcp);
    struct tb_writer *w = tb_wire_begin(g->wire, TB_MSG_HELLO, g->hello, 2048);
    if (w == NULL) return; /* the wire is being closed */
    tb_msg_hello_encode(&m, w);
    tb_wire_end(g->wire);
}

enum tb_status tb_greeting_begin(struct tb_greeting *g, struct tb_wire *wire)
{
    TB_ASSERT_UNLOCKED(g->session);
    g->wire = wire;
    const enum tb_status status = g->session->fabric == NULL ? open_fabric(g, false) : TB_OK;
    if (status != TB_OK) return status;
    send_hello(g);
    return TB_OK;
}

static bool welcome_is_sane(const struct tb_msg_welcome *m)
{
    return m->lease_ms >= LEASE_MS_MIN && m->lease_ms <= LEASE_MS_MAX && m->drain_ms <= TB_MSG_DRAIN_MS_MAX &&
           !tb_id_is_zero(&m->session);
}

/* The site's network turned out to be trusted (or no longer so) while nothing is exported yet: a
 * door of the other kind, and HELLO again. */
static enum tb_status reopen_fabric(struct tb_greeting *g, const struct tb_msg_welcome *m)
{
    TB_ASSERT(!g->session->was_up); /* nothing is exported yet */
    struct tb_session *s = g->session;
    tb_session_lock(s);
    struct tb_fabric *old = s->fabric;
    s->fabric = NULL;
    s->id = m->session;
    tb_session_unlock(s);
    tb_fabric_close(old);
    const enum tb_status status = open_fabric(g, m->fabric_trusted);
    if (status != TB_OK) return status;
    g->reopening = true;
    return TB_AGAIN; /* closes the wire */
}

static enum tb_status on_welcome(struct tb_greeting *g, struct tb_reader *payload,
                                 struct tb_msg_welcome *welcome_out)
{
    const struct tb_session *s = g->session;
    struct tb_msg_welcome m;
    const enum tb_status status = tb_msg_welcome_decode(payload, &m);
    if (status != TB_OK) return status;
    if (m.protocol != TB_MSG_PROTOCOL) return TB_PEER_PROTOCOL;
    if (!welcome_is_sane(&m)) return TB_PEER_GARBLED;
    if (!s->was_up && m.fabric_trusted != s->fabric_trusted) return reopen_fabric(g, &m);
    *welcome_out = m;
    return TB_OK;
}

/* The gateway may refuse a greeting with its reason. */
static enum tb_status on_refusal(struct tb_greeting *g, struct tb_reader *payload)
{
    struct tb_msg_reply m;
    const enum tb_status status = tb_msg_reply_decode(payload, &m);
    if (status != TB_OK) return status;
    const enum tb_status why = tb_msg_status_get(m.status_negated);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "session.refused");
    tb_log_str(&l, "status", tb_status_name(why));
    tb_log_str(&l, "why", m.why.text);
    tb_log_end(&l);
    snprintf(g->refusal, sizeof g->refusal, "%s", m.why.text);
    return why == TB_OK ? TB_PEER_GARBLED : why;
}

enum tb_status tb_greeting_answer(struct tb_greeting *g, struct tb_wire_frame *frame,
                                  struct tb_msg_welcome *welcome_out)
{
    TB_ASSERT_UNLOCKED(g->session);
    if (frame->request != g->hello) return TB_PEER_GARBLED;
    if (frame->type == TB_MSG_WELCOME) return on_welcome(g, &frame->payload, welcome_out);
    return frame->type == TB_MSG_REPLY ? on_refusal(g, &frame->payload) : TB_PEER_GARBLED;
}

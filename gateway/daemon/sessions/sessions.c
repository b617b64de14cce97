/* sessions.c - workers' connections: their identities, and which function answers which frame.
 *
 * A connection over the unix socket is its process: when it ends, so does the session, at
 * once. One over TLS may break on the way: the session stays for its lease, and HELLO with
 * its id goes on with it. */
#include "gateway/daemon/daemon.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/chan_facts.h"
#include "base/net/listen.h"
#include "base/net/wire.h"
#include "gateway/catalog/leases.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/live/live_asks.h"
#include "gateway/daemon/rights.h"
#include "gateway/daemon/sessions/session_follow.h"
#include "gateway/daemon/sessions/session_grant.h"
#include "gateway/daemon/sessions/session_hops.h"
#include "gateway/daemon/sessions/session_limits.h"
#include "gateway/daemon/sessions/session_publish.h"
#include "gateway/daemon/sessions/session_repair.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/daemon/sessions/session_unpublish.h"
#include "gateway/daemon/sessions/sessions.h"
#include "intra/fabric/door_reach.h"
#include "intra/session_msg.h"

#define HELLO_MS 5000u /* a connection that has not said HELLO by then is dropped */

/* P7. More than one frame: a worker that stages is told the manifests of all shards in one turn
 * of the loop. They are in the queue at once, and 64 large shards are 100 MiB and more. With
 * less no worker could ever stage such a version (P6). */
#define QUEUE_BYTES_MAX ((uint64_t)4 * TB_MSG_FRAME_BYTES_MAX)

#define GREETING        TB_BOUNDS_GREETING             /* fewer connections than that are not many */
#define GREETING_BYTES  (4096u - TB_WIRE_HEADER_BYTES) /* that a connection may send before it is welcomed */

void tb_worker_over(struct tb_worker_session *s, enum tb_status why)
{
    if (s->wire == NULL) {
        tb_worker_free(s);
        return;
    }
    s->welcomed = false; /* nobody finds it any more; its close frees it */
    tb_wire_close(s->wire, why);
}

/* ---- HELLO ---- */

static void welcome(struct tb_worker_session *s, uint64_t request)
{
    TB_ASSERT(s->welcomed && s->bucketed && s->wire != NULL);
    struct tb_daemon *d = s->d;
    struct tb_msg_welcome w = {.protocol = TB_MSG_PROTOCOL,
                               .session = s->id,
                               .site = d->config->site,
                               .gateway = d->gateway,
                               .incarnation = d->incarnation | TB_MSG_TAKES_UPDATED,
                               .lease_ms = d->config->session_lease_ms,
                               .fabric_trusted = d->config->fabric_trusted,
                               .drain_ms = d->config->drain_ms};
    snprintf(w.peer_address.text, sizeof w.peer_address.text, "%s",
             tb_chan_peer(tb_wire_chan(s->wire))->address);
    TB_WORKER_SEND(s, TB_MSG_WELCOME, request, &w, TB_WORKER_SMALL, tb_msg_welcome_encode);
}

static void endpoint_from(struct tb_worker_session *s, const struct tb_msg_hello *hello)
{
    s->name = hello->name;
    s->endpoint =
        (struct tb_fabric_endpoint){.host = hello->host, .tls = hello->tls, .fingerprint = hello->print};
    /* Longer than an address can be: cut, and no reader finds it. */
    snprintf(s->endpoint.shm_door, sizeof s->endpoint.shm_door, "%.107s", hello->shm_door.text);
    snprintf(s->endpoint.tcp, sizeof s->endpoint.tcp, "%.63s", hello->tcp.text);
}

/* The connection of a session that is away comes back: the new row takes over
 * the exports and requests of the old one. */
static bool session_resume(struct tb_worker_session *s, const struct tb_id *id)
{
    struct tb_daemon *d = s->d;
    char identity[TB_URI_BYTES_MAX];
    tb_identity_format(&s->identity, identity);
    struct tb_worker_session *old = tb_worker_find(d, id);
    if (old == NULL || old->local || s->local) return false;
    if (tb_catalog_session_resume(d->catalog, tb_clock_now(), id, identity) != TB_OK) return false;
    TB_ASSERT(s->exports == NULL && s->unpublishes == NULL); /* it says HELLO first */
    s->id = *id;
    s->exports = old->exports;
    s->unpublishes = old->unpublishes;
    s->since_wall_ms = old->since_wall_ms;
    old->exports = NULL;
    old->unpublishes = NULL;
    tb_worker_over(old, TB_PEER_DUPLICATE);
    return true;
}

static enum tb_status session_begin(struct tb_worker_session *s, const struct tb_msg_hello *hello)
{
    TB_ASSERT(!s->welcomed && tb_id_is_zero(&s->id));
    struct tb_daemon *d = s->d;
    struct tb_catalog_session c = {.name = hello->name,
                                   .host = hello->host,
                                   .rack = hello->rack,
                                   .spot = hello->spot,
                                   .publishes = tb_rights_publishes(d->config, &s->identity),
                                   .nic_bytes_per_s = tb_msg_nic_get(hello->pid)};
    tb_random_bytes(&c.id, sizeof c.id);
    tb_identity_format(&s->identity, c.identity);
    const enum tb_status status = tb_catalog_session_open(d->catalog, tb_clock_now(), &c);
    if (status == TB_OK) s->id = c.id;
    return status;
}

static void hello_refused(struct tb_worker_session *s, uint64_t request, enum tb_status status,
                          const char *why)
{
    s->d->counters.sessions_refused++;
    s->refused = true;
    tb_worker_reply(s, request, status, why);
}

/* P9: the worker's frames have other fields. Worker and gateway both log why. */
static void protocol_refused(struct tb_worker_session *s, uint64_t request, uint32_t protocol)
{
    char why[160];
    char identity[TB_URI_BYTES_MAX];
    tb_identity_format(&s->identity, identity);
    snprintf(why, sizeof why,
             "this gateway speaks session protocol %d, the worker %u: give both the same release",
             TB_MSG_PROTOCOL, protocol);
    tb_log(TB_LOG_WARN, "session.refused", "identity=%s status=%s protocol=%u ours=%d", identity,
           tb_status_name(TB_PEER_PROTOCOL), protocol, TB_MSG_PROTOCOL);
    hello_refused(s, request, TB_PEER_PROTOCOL, why);
}

/* A container that shares the unix socket and not the network. Sim's doors have other names. */
static bool is_apart(const struct tb_msg_hello *hello)
{
    return strncmp(hello->shm_door.text, "tombolo-", 8) == 0 && !tb_door_reachable(hello->shm_door.text);
}

/* P10: nothing that it publishes could be read, and it would wait without a word. */
static void apart_refused(struct tb_worker_session *s, uint64_t request, const struct tb_msg_hello *hello)
{
    tb_log(TB_LOG_WARN, "session.refused", "worker=%s status=%s reason=network_namespace_of_its_own tcp=%s",
           hello->name.text, tb_status_name(TB_SITE_CONFIG), hello->tcp.text);
    hello_refused(
        s, request, TB_SITE_CONFIG,
        "the worker has a network namespace of its own, and the gateway cannot reach it: share the host's "
        "network with its container, or give an address of the container as fabric_address "
        "(--fabric-address)");
}

/* P7: over TLS a connection is known to be no publisher's once its handshake is over. */
static bool reserved_from(struct tb_worker_session *s)
{
    if (s->local || tb_rights_publishes(s->d->config, &s->identity)) return false;
    if (!tb_worker_session_reserved(s->d)) return false;
    s->d->connections.refused++;
    s->d->connections.spent++;
    return true;
}

/* P10: there is no row for it in that table, or its identity has its share of them. */
static void full_refused(struct tb_worker_session *s, uint64_t request, enum tb_status status,
                         const char *table)
{
    char why[160];
    snprintf(why, sizeof why, "no place among the %s of this gateway, or none in the share of this identity",
             table[0] != '\0' ? table : "rows");
    tb_worker_refusal_log(s, "session.refused", "hello",
                          status == TB_SITE_NOMEM ? why : tb_status_name(status));
    hello_refused(s, request, status, status == TB_SITE_NOMEM ? why : "");
}

static enum tb_status hello_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    if (s->welcomed) return TB_PEER_GARBLED;
    struct tb_msg_hello hello;
    struct tb_reader number =
        frame->payload; /* of another protocol the fields behind the number may differ */
    const uint32_t protocol = tb_read_u32(&number);
    if (!number.bad && protocol != TB_MSG_PROTOCOL) {
        protocol_refused(s, frame->request, protocol);
        return TB_OK;
    }
    if (tb_msg_hello_decode(&frame->payload, &hello) != TB_OK) return TB_PEER_GARBLED;
    s->apart = s->local && is_apart(&hello);
    if (s->apart && tb_worker_is_loopback(hello.tcp.text)) {
        apart_refused(s, frame->request, &hello);
        return TB_OK;
    }
    if (s->apart) TB_MOOT(tb_name_set(&hello.host, "apart"));
    endpoint_from(s, &hello);
    const bool resumed = session_resume(s, &hello.session);
    if (!resumed && reserved_from(s)) {
        full_refused(s, frame->request, TB_SITE_NOMEM, "connections");
        return TB_OK;
    }
    enum tb_status status = TB_OK;
    if (!resumed) {
        s->since_wall_ms = tb_clock_wall_ms();
        status = session_begin(s, &hello);
    }
    if (status != TB_OK) {
        full_refused(s, frame->request, status, tb_catalog_full(d->catalog));
        return TB_OK;
    }
    tb_worker_enlist(s);
    tb_worker_session_greeted(s);
    d->counters.sessions_opened++;
    char identity[TB_URI_BYTES_MAX];
    tb_identity_format(&s->identity, identity);
    tb_log(TB_LOG_INFO, resumed ? "session.resumed" : "session.open", "worker=%s host=%s identity=%s",
           s->name.text, hello.host.text, identity);
    welcome(s, frame->request);
    return TB_OK;
}

static enum tb_status renew_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    (void)s, (void)frame; /* as any frame does */
    return TB_OK;
}

/* ---- frames ---- */

typedef enum tb_status (*frame_fn)(struct tb_worker_session *s, struct tb_wire_frame *frame);

static const frame_fn frame_fns[TB_MSG_TYPE_END] = {
    [TB_MSG_HELLO] = hello_frame,
    [TB_MSG_RENEW] = renew_frame,
    [TB_MSG_RUN_OPEN] = tb_worker_run_open_frame,
    [TB_MSG_VERSION_OPEN] = tb_worker_version_open_frame,
    [TB_MSG_SEAL] = tb_worker_seal_frame,
    [TB_MSG_UNPUBLISH] = tb_worker_unpublish_frame,
    [TB_MSG_SUBSCRIBE] = tb_worker_subscribe_frame,
    [TB_MSG_UNSUBSCRIBE] = tb_worker_unsubscribe_frame,
    [TB_MSG_WAIT] = tb_worker_wait_frame,
    [TB_MSG_WAIT_SITE] = tb_worker_wait_site_frame,
    [TB_MSG_CANCEL] = tb_worker_cancel_frame,
    [TB_MSG_STAGE] = tb_worker_stage_frame,
    [TB_MSG_EXPORT] = tb_worker_export_frame,
    [TB_MSG_GRANTED] = tb_worker_granted_frame,
    [TB_MSG_HOP_LOST] = tb_worker_hop_lost_frame,
    [TB_MSG_CHUNK_BAD] = tb_worker_chunk_bad_frame,
    [TB_MSG_DOUBTED] = tb_worker_doubted_frame,
    [TB_MSG_PROVEN] = tb_live_asks_proven_frame,
    [TB_MSG_PROGRESS] = tb_worker_progress_frame,
    [TB_MSG_ACTIVATE] = tb_worker_activate_frame,
    [TB_MSG_ACTIVATED] = tb_worker_activated_frame,
    [TB_MSG_RELEASE] = tb_worker_release_frame,
    [TB_MSG_STATUS] = tb_worker_status_frame,
    [TB_MSG_UPDATED] = tb_worker_updated_frame,
};

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *frame)
{
    (void)w;
    struct tb_worker_session *s = user;
    const frame_fn fn = frame->type < TB_MSG_TYPE_END ? frame_fns[frame->type] : NULL;
    if (fn == NULL || (!s->welcomed && frame->type != TB_MSG_HELLO)) return TB_PEER_GARBLED;
    /* Each frame renews the lease. A worker that was stopped just after its HELLO counts its
     * thirds of the lease from there on, and its versions must not be lost before its first
     * RENEW. */
    tb_log_of_identity(&s->identity);
    enum tb_status status =
        s->welcomed ? tb_catalog_session_renew(s->d->catalog, tb_clock_now(), &s->id) : TB_OK;
    if (status == TB_OK) status = fn(s, frame);
    tb_log_of_us();
    tb_daemon_wake(s->d);
    return status;
}

/* P6: a part of a long frame renews the lease, too. The manifest of a large shard takes longer
 * than a lease over a slow connection, and earlier versions must not be lost meanwhile. A frame
 * is bounded, and so are its parts: a worker that sends less than a part in a lease time is not
 * heard. */
static void on_part(struct tb_wire *w, void *user)
{
    struct tb_worker_session *s = user;
    if (!tb_worker_session_frame_room(s)) {
        tb_wire_close(w, TB_SITE_NOMEM);
        return;
    }
    if (s->welcomed) TB_MOOT(tb_catalog_session_renew(s->d->catalog, tb_clock_now(), &s->id));
}

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    struct tb_worker_session *s = user;
    s->identity = peer->identity;
    s->expires_wall_s = peer->expires_wall_s;
    tb_log_of_identity(&s->identity);
    if (tb_worker_session_shut_out(s)) tb_wire_close(w, TB_PEER_DENIED);
    tb_log_of_us();
}

void tb_worker_leaves(struct tb_daemon *d, const struct tb_id *session)
{
    tb_copies_look(d);
    tb_catalog_session_close(d->catalog, tb_clock_now(), session);
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    struct tb_worker_session *s = user;
    struct tb_daemon *d = s->d;
    TB_ASSERT(s->wire == w);
    s->wire = NULL;
    if (s->identity.kind == TB_IDENTITY_NONE)
        tb_log_of_stranger(s->door.address);
    else
        tb_log_of_identity(&s->identity);
    if (why == TB_PEER_GARBLED) {
        d->counters.sessions_garbled++;
        tb_worker_refusal_log(s, "session.garbled", "frame", "broke the session protocol; dropped");
        (void)tb_worker_session_glitch(s, TB_GLITCH_GARBLED);
    } else if (why == TB_TOO_LARGE) {
        d->counters.sessions_refused++;
        tb_worker_refusal_log(s, "session.refused", "frame", "larger than this connection may send; dropped");
    } else if (!s->welcomed && !s->refused && why != TB_STREAM_CLOSED && why != TB_PEER_LEASE &&
               why != TB_PEER_DUPLICATE) {
        d->counters.sessions_refused++;
        const char *reason = tb_chan_reason(tb_wire_chan(w));
        tb_worker_refusal_log(s, "session.refused", "handshake",
                              reason[0] != '\0' ? reason : tb_status_text(why));
        tb_worker_refused_audit(s, "handshake", tb_status_text(why));
    }
    const bool stays = s->welcomed && !s->local && !s->revoked && !d->draining && why != TB_PEER_GARBLED &&
                       why != TB_TOO_LARGE && why != TB_PEER_DENIED && why != TB_STREAM_CLOSED;
    if (!stays) {
        if (s->welcomed) {
            tb_log(TB_LOG_INFO, "session.close", "worker=%s status=%s", s->name.text, tb_status_name(why));
            tb_worker_leaves(d, &s->id);
        }
        tb_worker_free(s);
    } else {
        tb_worker_session_door_end(d, &s->door); /* it is away, and no connection */
        tb_log(TB_LOG_WARN, "session.away", "worker=%s status=%s action=wait_for_lease", s->name.text,
               tb_status_name(why));
        tb_catalog_session_detach(d->catalog, tb_clock_now(), &s->id);
        while (s->waits != NULL) {
            struct tb_pending_wait *wait = s->waits;
            s->waits = wait->next;
            tb_free(wait);
        }
    }
    tb_log_of_us();
    tb_daemon_wake(d);
}

static const struct tb_wire_ops wire_ops = {
    .on_open = on_open, .on_frame = on_frame, .on_part = on_part, .on_closed = on_closed};

uint32_t tb_sessions_max(const struct tb_daemon *d)
{
    return tb_bounds_connections(d->config->session_max);
}

/* P7. One line until many have left: a worker that connects again and again is not logged each
 * time, and one that leaves makes no room worth another line. */
static bool sessions_refuse(struct tb_daemon *d)
{
    const bool full = d->session_count >= tb_sessions_max(d);
    const bool crowded = d->session_count >= tb_sessions_max(d) - GREETING / 2;
    if (full) d->counters.sessions_refused++;
    d->connections.refused += full;
    if (full && !d->sessions_full)
        tb_log(TB_LOG_WARN, "session.refused", "reason=too_many connections=%u session.max=%u",
               d->session_count, d->config->session_max);
    d->sessions_full = full || (d->sessions_full && crowded);
    return full;
}

static void session_accept(struct tb_daemon *d, int fd, const struct tb_address *from, bool local)
{
    struct tb_worker_session_door door;
    if (d->draining || sessions_refuse(d) || !tb_worker_session_admit(d, fd, from, local, &door)) {
        close(fd);
        return;
    }
    struct tb_worker_session *s = tb_worker_new(d, local);
    if (s == NULL) {
        tb_worker_session_door_end(d, &door);
        close(fd);
        return;
    }
    s->door = door;
    const struct tb_wire_options options = {
        .chan = {.loop = &d->loop,
                 .tls = local ? NULL : d->tls,
                 .expect.identity = {.kind = TB_IDENTITY_WORKER, .site = d->config->site},
                 .open_ms = HELLO_MS},
        .ops = &wire_ops,
        .user = s,
        .frame_bytes_max = TB_MSG_FRAME_BYTES_MAX,
        .frame_bytes_now = GREETING_BYTES,
        .budget = &d->session_limits.partial,
        .queue_bytes_max = QUEUE_BYTES_MAX};
    if (tb_wire_accept(&options, fd, &s->wire) != TB_OK) {
        s->wire = NULL;
        tb_worker_free(s);
    }
}

static void accept_unix(void *user, int fd, const struct tb_address *from)
{
    session_accept(user, fd, from, true);
}

static void accept_tls(void *user, int fd, const struct tb_address *from)
{
    session_accept(user, fd, from, false);
}

/* ---- opening and closing ---- */

static enum tb_status listen_at(struct tb_daemon *d, const char *text, bool local, struct tb_listener **out)
{
    struct tb_endpoint endpoint;
    struct tb_address address;
    char full[300];
    snprintf(full, sizeof full, "%s%s", local ? "unix:" : "", text);
    enum tb_status status = tb_endpoint_parse(full, &endpoint);
    if (status == TB_OK) status = tb_endpoint_address(&endpoint, &address);
    /* Any user of this host may connect. Rights are per model and identity, denied by default. */
    if (status == TB_OK)
        status = tb_listen(&d->loop, &address, 0666, local ? accept_unix : accept_tls, d, out);
    if (status != TB_OK) {
        const int error = errno;
        struct tb_log_line l;
        tb_log_begin(&l, TB_LOG_ERROR, "session.listen_failed");
        tb_log_str(&l, "what", local ? "session.socket" : "session.listen");
        tb_log_str(&l, "address", full);
        tb_log_str(&l, "why", tb_endpoint_why(status, error));
        tb_log_end(&l);
    }
    return status;
}

enum tb_status tb_sessions_open(struct tb_daemon *d)
{
    const struct tb_config *c = d->config;
    enum tb_status status = listen_at(d, c->session_socket, true, &d->session_unix);
    if (status == TB_OK && c->session_listen != NULL)
        status = listen_at(d, c->session_listen, false, &d->session_tls);
    return status;
}

void tb_sessions_shut(struct tb_daemon *d)
{
    if (d->session_unix != NULL) tb_listener_close(d->session_unix);
    if (d->session_tls != NULL) tb_listener_close(d->session_tls);
    d->session_unix = d->session_tls = NULL;
}

void tb_sessions_close(struct tb_daemon *d)
{
    TB_ASSERT(d->session_unix == NULL && d->session_tls == NULL); /* nobody comes any more */
    for (struct tb_worker_session *s = d->sessions, *next; s != NULL; s = next) {
        next = s->next;
        if (s->wire != NULL)
            tb_wire_finish(s->wire, TB_SITE_DRAINING, 200);
        else
            tb_worker_free(s);
    }
}

/* Workers that an authority let in which is not trusted any more come back within their lease, if
 * they have another certificate by then. */
void tb_sessions_distrust(struct tb_daemon *d)
{
    TB_ASSERT(d->tls != NULL);
    for (struct tb_worker_session *s = d->sessions; s != NULL; s = s->next) {
        if (s->local) continue;
        const bool away = s->wire == NULL; /* its certificate went with its connection */
        if (!away && tb_chan_is_trusted(tb_wire_chan(s->wire), d->tls)) continue;
        if (!away) tb_wire_close(s->wire, TB_PEER_IDENTITY);
        tb_session_hops_end(d, &s->identity);
    }
    tb_session_hops_tick(d); /* also of identities whose last session left in this second */
}

/* P8: it leaves at once, and holds nothing for a lease. */
void tb_sessions_revoke(struct tb_daemon *d)
{
    TB_ASSERT(d->tls != NULL);
    for (struct tb_worker_session *s = d->sessions; s != NULL; s = s->next) {
        if (s->local || s->revoked || s->wire == NULL) continue;
        if (!tb_chan_is_revoked(tb_wire_chan(s->wire), d->tls)) continue;
        s->revoked = true;
        d->counters.sessions_refused++;
        tb_worker_refusal_log(s, "session.refused", "certificate", "it is revoked (tls.revoked)");
        tb_worker_refused_audit(s, "certificate", "it is revoked (tls.revoked)");
        tb_wire_close(s->wire, TB_PEER_IDENTITY);
        tb_session_hops_end(d, &s->identity);
    }
    tb_session_hops_flush(d);
}

/* P8: a worker that is away has no connection to close, and may still read at the door. */
static void away_expired(struct tb_worker_session *s)
{
    s->expires_wall_s = 0; /* once; a session that comes back has the date of another certificate */
    tb_session_hops_end(s->d, &s->identity);
}

void tb_sessions_tick(struct tb_daemon *d, uint64_t wall_s)
{
    tb_worker_hops_garbled(d);
    for (struct tb_worker_session *s = d->sessions; s != NULL; s = s->next) {
        const bool expired = s->expires_wall_s != 0 && wall_s > s->expires_wall_s;
        if (s->wire == NULL && expired) away_expired(s);
        if (s->wire == NULL) continue;
        const bool silent = !s->welcomed && tb_clock_wall_ms() - s->since_wall_ms > HELLO_MS;
        if (!expired && !silent) continue;
        if (s->welcomed) { /* else on_closed counts it and says why */
            d->counters.sessions_refused++;
            tb_worker_refusal_log(s, "session.refused", "certificate", "expired");
            tb_worker_refused_audit(s, "certificate", "expired");
        }
        if (expired) tb_session_hops_end(d, &s->identity);
        tb_wire_close(s->wire, expired ? TB_PEER_IDENTITY : TB_STREAM_IDLE);
    }
    tb_session_hops_tick(d);
}

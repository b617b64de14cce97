/* session_limits.c - the share of each party at the workers' door. base/limits decides. */
#include "gateway/daemon/daemon.h"

#include <stdio.h>
#include <sys/socket.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "gateway/config/bounds.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/rights.h"
#include "gateway/daemon/sessions/session_hops.h"
#include "gateway/daemon/sessions/session_limits.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/session_msg.h"

/* P7: of a frame without a right to publish. Manifests are long, and only publishers send them. */
#define READER_BYTES (256u << 10)

void tb_worker_session_limits_change(struct tb_worker_session_limits *l, const struct tb_config *config)
{
    TB_ASSERT(l->strangers != NULL && l->glitches != NULL);
    l->strangers->open_each = config->handshakes_open;
    l->strangers->failed_each = config->handshakes_failed;
    l->glitches->most[TB_GLITCH_GARBLED] = config->garbled_frames;
    l->glitches->most[TB_GLITCH_CANCELLED] = config->cancelled_requests;
    l->network_count = 0;
    for (uint32_t i = 0; i < config->session_networks_count && i < TB_SESSION_NETWORKS; i++)
        l->network_count += tb_network_parse(config->session_networks[i], &l->networks[l->network_count]);
}

enum tb_status tb_worker_session_limits_open(struct tb_worker_session_limits *l,
                                             const struct tb_config *config)
{
    const uint32_t connections = tb_bounds_greeted(config->session_max);
    const uint32_t places = tb_share_places(connections);
    l->places = tb_calloc(places, sizeof *l->places);
    l->strangers = tb_calloc(1, sizeof *l->strangers);
    l->glitches = tb_calloc(1, sizeof *l->glitches);
    if (l->places == NULL || l->strangers == NULL || l->glitches == NULL) return TB_SITE_NOMEM;
    tb_share_init(&l->connections, l->places, connections);
    l->partial.bound = TB_PARTIAL_BYTES_MAX;
    l->network_bound = tb_bounds_networks(config->session_max);
    l->strangers->open_all = TB_BOUNDS_STRANGERS;
    tb_random_bytes(&l->strangers->salt, sizeof l->strangers->salt);
    tb_worker_session_limits_change(l, config);
    return TB_OK;
}

void tb_worker_session_limits_close(struct tb_worker_session_limits *l)
{
    tb_free(l->places);
    tb_free(l->strangers);
    tb_free(l->glitches);
    *l = (struct tb_worker_session_limits){.network_count = 0};
}

/* ---- coming in ---- */

static void refused(struct tb_daemon *d, const struct tb_identity *identity, const char *address,
                    const char *reason)
{
    struct tb_log_line l;
    char uri[TB_URI_BYTES_MAX] = "";
    d->counters.sessions_refused++;
    if (identity->kind != TB_IDENTITY_NONE) tb_identity_format(identity, uri);
    tb_log_begin(&l, TB_LOG_WARN, "session.refused");
    if (uri[0] != '\0') tb_log_str(&l, "identity", uri);
    if (address[0] != '\0') tb_log_str(&l, "address", address);
    tb_log_str(&l, "reason", reason);
    tb_log_end(&l);
    /* strangers are one: an address of each would push out other sums */
    tb_audit_denied(d, &(struct tb_audit_event){"session", uri, "door", "", reason}, 1);
}

static bool is_shut(struct tb_daemon *d, const struct tb_identity *identity)
{
    return tb_glitch_shut(d->session_limits.glitches, tb_worker_session_owner(identity), tb_clock_now()) != 0;
}

bool tb_worker_session_reserved(const struct tb_daemon *d)
{
    const struct tb_worker_session_limits *l = &d->session_limits;
    const uint32_t unfinished = l->strangers->open + l->unfinished;
    const uint32_t known = d->session_count > unfinished ? d->session_count - unfinished : 0;
    return known >= l->connections.bound - l->connections.bound / 4;
}

static bool admit_local(struct tb_daemon *d, int fd, struct tb_worker_session_door *door)
{
    struct tb_worker_session_limits *l = &d->session_limits;
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0) return true; /* chan.c refuses it */
    const struct tb_identity identity = {.kind = TB_IDENTITY_UNIX, .uid = cred.uid};
    const uint64_t owner = tb_worker_session_owner(&identity);
    tb_log_of_identity(&identity);
    const bool shut = is_shut(d, &identity);
    const bool publishes = tb_rights_publishes(d->config, &identity);
    const bool room =
        tb_share_room(&l->connections, owner, publishes) && (publishes || !tb_worker_session_reserved(d));
    if (!shut && room) {
        tb_share_take(&l->connections, owner);
        door->uid_owner = owner;
    } else {
        d->connections.refused += !shut;
        d->connections.spent += !shut;
        refused(d, &identity, "", shut ? "shut_out" : "share_spent");
    }
    tb_log_of_us();
    return !shut && room;
}

static bool in_network(const struct tb_worker_session_limits *l, const struct sockaddr *from)
{
    for (uint32_t i = 0; i < l->network_count; i++)
        if (tb_network_has(&l->networks[i], from)) return true;
    return false;
}

static bool admit_remote(struct tb_daemon *d, const struct tb_address *from,
                         struct tb_worker_session_door *door)
{
    static const struct tb_identity nobody = {.kind = TB_IDENTITY_NONE};
    struct tb_worker_session_limits *l = &d->session_limits;
    tb_address_format(from, door->address, sizeof door->address);
    door->from_network = in_network(l, &from->any) && l->unfinished < l->network_bound;
    if (door->from_network) {
        l->unfinished++;
        return true;
    }
    const uint64_t key = tb_network_key(&from->any);
    if (tb_handshake_begin(l->strangers, key, tb_clock_now())) {
        door->handshake = key;
        return true;
    }
    d->connections.refused++;
    d->connections.spent++;
    tb_log_of_stranger(door->address);
    refused(d, &nobody, door->address, "too_many_handshakes");
    tb_log_of_us();
    return false;
}

bool tb_worker_session_admit(struct tb_daemon *d, int fd, const struct tb_address *from, bool local,
                             struct tb_worker_session_door *door_out)
{
    *door_out = (struct tb_worker_session_door){.uid_owner = TB_SHARE_OURS};
    return local ? admit_local(d, fd, door_out) : admit_remote(d, from, door_out);
}

static void handshake_end(struct tb_daemon *d, struct tb_worker_session_door *door, bool good)
{
    struct tb_worker_session_limits *l = &d->session_limits;
    TB_ASSERT(!door->from_network || l->unfinished > 0);
    if (door->from_network) l->unfinished--;
    if (door->handshake != 0) tb_handshake_end(l->strangers, door->handshake, tb_clock_now(), good);
    door->from_network = false;
    door->handshake = 0;
}

static void allow(struct tb_worker_session *s)
{
    const bool publishes = tb_rights_publishes(s->d->config, &s->identity);
    tb_wire_allow(s->wire, publishes ? TB_MSG_FRAME_BYTES_MAX : READER_BYTES, publishes);
}

void tb_worker_session_greeted(struct tb_worker_session *s)
{
    TB_ASSERT(s->welcomed && s->wire != NULL);
    handshake_end(s->d, &s->door, true);
    allow(s);
}

void tb_sessions_rights_changed(struct tb_daemon *d)
{
    for (struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        if (s->welcomed && s->wire != NULL) allow(s);
}

static uint64_t frame_bytes_of(const struct tb_worker_session *s)
{
    return s->wire != NULL ? tb_wire_in_bytes(s->wire) : 0;
}

bool tb_worker_session_frame_room(struct tb_worker_session *s)
{
    struct tb_wire_budget *b = &s->d->session_limits.partial;
    if (b->used <= b->bound / 4 || !s->welcomed) return true;
    if (tb_worker_session_share_used(s, frame_bytes_of) <= b->bound / 4) return true;
    b->refused++;
    b->spent++;
    return false;
}

void tb_worker_session_door_end(struct tb_daemon *d, struct tb_worker_session_door *door)
{
    handshake_end(d, door, false);
    tb_share_give(&d->session_limits.connections, door->uid_owner);
    door->uid_owner = TB_SHARE_OURS;
}

bool tb_worker_session_shut_out(struct tb_worker_session *s)
{
    if (!is_shut(s->d, &s->identity)) return false;
    s->refused = true;
    refused(s->d, &s->identity, s->door.address, "shut_out");
    return true;
}

/* ---- glitches ---- */

/* `field` is "identity", or "owner" where no session says which identity it is. */
static void shut_out_tell(struct tb_daemon *d, const char *field, const char *value, enum tb_glitch_kind kind,
                          uint64_t key)
{
    const tb_time_ns left = tb_glitch_shut(d->session_limits.glitches, key, tb_clock_now());
    struct tb_log_line l;
    d->counters.shut_outs++;
    tb_log_begin(&l, TB_LOG_WARN, "session.shut_out");
    tb_log_str(&l, field, value);
    tb_log_str(&l, "reason", kind == TB_GLITCH_GARBLED ? "garbled_frames" : "cancelled_requests");
    tb_log_u64(&l, "for_ms", left / TB_MS(1));
    tb_log_end(&l);
}

bool tb_worker_session_glitch(struct tb_worker_session *s, enum tb_glitch_kind kind)
{
    struct tb_daemon *d = s->d;
    if (s->identity.kind == TB_IDENTITY_NONE) return false; /* its handshake failed, and counts as such */
    const uint64_t key = tb_worker_session_owner(&s->identity);
    if (!tb_glitch_note(d->session_limits.glitches, key, kind, tb_clock_now())) return false;
    char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&s->identity, uri);
    shut_out_tell(d, "identity", uri, kind, key);
    for (struct tb_worker_session *other = d->sessions; other != NULL; other = other->next)
        if (other->wire != NULL && tb_identity_equal(&other->identity, &s->identity)) {
            other->refused = true;
            tb_wire_close(other->wire, TB_PEER_DENIED);
        }
    tb_session_hops_end_owner(d, key);
    tb_session_hops_flush(d);
    return true;
}

/* Its sessions have ended, and its hops may not have yet. */
static void owner_garbled(struct tb_daemon *d, uint64_t owner)
{
    char text[32];
    if (!tb_glitch_note(d->session_limits.glitches, owner, TB_GLITCH_GARBLED, tb_clock_now())) return;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)owner);
    shut_out_tell(d, "owner", text, TB_GLITCH_GARBLED, owner);
    tb_audit_denied(d, &(struct tb_audit_event){"session", "", "door", text, "shut_out"}, 1);
    tb_session_hops_end_owner(d, owner);
    tb_session_hops_flush(d);
}

static struct tb_worker_session *of_owner(struct tb_daemon *d, uint64_t owner)
{
    for (struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        if (s->identity.kind != TB_IDENTITY_NONE && tb_worker_session_owner(&s->identity) == owner) return s;
    return NULL;
}

void tb_worker_hops_garbled(struct tb_daemon *d)
{
    uint64_t owner;
    while (d->fabric != NULL && tb_export_garbled_by(d->fabric, &owner)) {
        struct tb_worker_session *s = of_owner(d, owner);
        if (s != NULL)
            (void)tb_worker_session_glitch(s, TB_GLITCH_GARBLED);
        else
            owner_garbled(d, owner);
    }
}

/* session_limits.h - what one identity, uid or address may take of the workers' door: connections,
 * handshakes, memory for frames, and frames that break the protocol.
 *
 * Promise P7: whatever one party does, the others come in, and publishers find a place.
 *
 * On the main loop. */
#ifndef TB_DAEMON_SESSION_LIMITS_H
#define TB_DAEMON_SESSION_LIMITS_H

#include "base/ident.h"
#include "base/limits/glitch_budget.h"
#include "base/limits/handshake_limits.h"
#include "base/limits/share_table.h"
#include "base/net/wire.h"
#include "base/networks.h"

struct tb_config;
struct tb_daemon;
struct tb_worker_session;

#define TB_PARTIAL_BYTES_MAX ((uint64_t)512 << 20) /* of frames that are not whole yet, also of links */
#define TB_SESSION_NETWORKS  64u

struct tb_worker_session_limits {
    struct tb_wire_budget partial;
    struct tb_share_table connections; /* over the unix socket, by uid */
    struct tb_share *places;
    struct tb_handshake_limits *strangers; /* over TLS, of addresses in no network */
    struct tb_glitch_budget *glitches;
    struct tb_network networks[TB_SESSION_NETWORKS];
    uint32_t network_count;
    uint32_t unfinished, network_bound; /* over TLS, from session.networks */
};

/* The party of a connection, before it said anything. */
struct tb_worker_session_door {
    uint64_t uid_owner; /* of a share of connections; 0: none */
    uint64_t handshake; /* the address whose unfinished handshake it is; 0: none */
    bool from_network;  /* unfinished, of session.networks */
    char address[64];   /* for the log; "" over the unix socket */
};

/* TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_worker_session_limits_open(struct tb_worker_session_limits *l,
                                                         const struct tb_config *config);
/* A reload changed limits.* or session.networks. */
void tb_worker_session_limits_change(struct tb_worker_session_limits *l, const struct tb_config *config);
void tb_worker_session_limits_close(struct tb_worker_session_limits *l);

/* Whether a connection may become one more. False: it is counted and logged, and to be closed. */
bool tb_worker_session_admit(struct tb_daemon *d, int fd, const struct tb_address *from, bool local,
                             struct tb_worker_session_door *door_out);
/* Only publishers may still come: the other three quarters of the places beside unfinished
 * handshakes are taken. */
bool tb_worker_session_reserved(const struct tb_daemon *d);
/* It said HELLO and was welcomed: its handshake counts no more, and its frames may be as large as
 * its rights need. */
void tb_worker_session_greeted(struct tb_worker_session *s);
/* Likewise of all, once the configuration is another one. */
void tb_sessions_rights_changed(struct tb_daemon *d);
/* A part of a frame came: whether its identity has no more of all partial frames than its share.
 * False: it is counted, and the connection is to be closed. */
bool tb_worker_session_frame_room(struct tb_worker_session *s);
/* It is gone, whatever it was. */
void tb_worker_session_door_end(struct tb_daemon *d, struct tb_worker_session_door *door);
/* The identity is shut out: the connection is counted and logged, and to be closed. */
bool tb_worker_session_shut_out(struct tb_worker_session *s);
/* It broke the protocol, or cancelled a request. True: its identity is shut out now, and all of its
 * connections are being closed. */
bool tb_worker_session_glitch(struct tb_worker_session *s, enum tb_glitch_kind kind);
/* Once a second: what readers garbled at the fabric's door is their identity's, too. */
void tb_worker_hops_garbled(struct tb_daemon *d);

#endif

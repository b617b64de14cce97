/* doctor_dial.h - connections to a peer that say nothing: name, TCP and TLS, and what came of each.
 * A shell on a loop of its own; every call ends within its time.
 *
 * The peer sees a gateway that connects, shows its certificate and leaves before its HELLO. That is
 * no session, and ends none. */
#ifndef TB_GATEWAY_CLI_DOCTOR_DIAL_H
#define TB_GATEWAY_CLI_DOCTOR_DIAL_H

#include "base/net/chan_facts.h"
#include "base/net/resolve.h"

#define TB_DOCTOR_STEP_MS 3000u /* of a name's resolution, and of a connection */

struct tb_name_facts {
    enum tb_status status; /* as tb_resolve says; TB_TIMEOUT */
    uint32_t count;
    struct tb_address addresses[TB_ADDRESSES_MAX];
};
/* servers: dns.servers, or NULL. */
void tb_doctor_resolve(const struct tb_endpoint *endpoint, const char *servers,
                       struct tb_name_facts *facts_out);

struct tb_dial_wish {
    struct tb_address address;
    uint32_t segment_bytes; /* 0: the path's own */
};

struct tb_dial_facts {
    char address[128];
    uint32_t segment_bytes; /* of the wish */
    bool connected;         /* TCP was answered */
    bool closed_port;       /* by a refusal */
    bool opened;            /* TLS: the peer is the one that is expected */
    bool said;              /* opened: the peer sent bytes of its own */
    bool silent;            /* it had not ended in time */
    enum tb_status why;     /* it ended so; TB_STREAM_CLOSED: by the peer's goodbye */
    enum tb_status bye;     /* why the peer wants no session; TB_OK: it did not say so */
    char reason[256];
    struct tb_tls_refusal refusal;
    struct tb_identity peer; /* opened */
    uint64_t expires_wall_s; /* opened: of its certificate */
    uint32_t packet_bytes;   /* opened: of payload in a full packet */
    uint32_t padding_bytes;  /* of its first message; 0: it was short */
    uint32_t mtu;            /* opened: of the route, as this machine knows it; 0: not known */
};

struct tb_dial_options {
    struct tb_tls *tls; /* NULL: TCP alone */
    struct tb_identity expect;
    const struct tb_address *source; /* NULL: the kernel chooses */
    uint32_t dscp;
};
/* All at once. TB_SITE_NOMEM: there is no loop. */
TB_MUST_USE enum tb_status tb_doctor_dial(const struct tb_dial_options *options,
                                          const struct tb_dial_wish *wishes, struct tb_dial_facts *facts_out,
                                          uint32_t count);

#endif

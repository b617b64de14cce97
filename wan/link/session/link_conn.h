/* link_conn.h - connections that are or may become control streams. */
#ifndef TB_WAN_LINK_CONN_H
#define TB_WAN_LINK_CONN_H

#include "base/net/wire.h"
#include "wan/link/links.h"
#include "wan/link/links_limits.h"

struct tb_link;
struct tb_links;
struct tb_stream;
struct tb_wire;

/* P7. One peer has at most a quarter of the connections that come from outside: its control
 * connections, and as many more as it may have data streams that all begin at once. */
#define LINK_CONNS_PER_PEER 12u
#define LINK_CONNS_SHARE    (LINK_CONNS_PER_PEER + TB_LINKS_STREAMS_MAX)
#define LINK_CONNS_MAX      (4u * LINK_CONNS_SHARE)
#define LINK_GREET_BY       TB_SECONDS(5)

/* One connection that is or may become a control stream. */
struct tb_link_conn {
    struct tb_link_conn *next;
    struct tb_links *links;
    struct tb_link *link; /* NULL: accepted, and nobody knows yet who it is */
    struct tb_wire *wire;
    bool dialled;
    bool ended;            /* close or finish was called */
    bool fault_told;       /* why it ended was logged */
    bool is_session;       /* link->session is this one */
    bool racing;           /* dialled, one of the link's race */
    bool ahead;            /* dialled: data streams were dialled beside it */
    bool probe;            /* dialled: it stalls in TLS, and one with smaller segments is the session */
    uint32_t segment_max;  /* dialled: TCP_MAXSEG */
    uint32_t path_segment; /* dialled: of the session's streams; 0: the path's own */
    bool outrun;           /* another attempt was open sooner, or the session was heard again: no failure */
    bool glitched;         /* it broke the protocol, and that was counted */
    uint64_t handshake; /* accepted: its address, while its handshake is unfinished; 0: it counts for none */
    tb_time_ns greet_by;
    tb_time_ns connected_at;     /* dialled: TCP was seen to be answered; 0: not yet */
    tb_time_ns opened_at;        /* 0: not yet */
    uint64_t expires_wall_s;     /* the peer's certificate */
    uint64_t own_expires_wall_s; /* ours, as it was when this began */
    struct tb_digest own_shown;  /* likewise */
    struct tb_identity identity;
    char address_text[128];
    tb_time_ns rtt;            /* of TCP, when it opened; 0: not known */
    struct tb_address address; /* that it goes to, or came from */
    struct tb_stream *binding; /* it turned out to be a data stream and is on its way to a loop */
    uint64_t binding_session;
};

void tb_link_conn_close(struct tb_link_conn *c, enum tb_status why);
/* Says why, then ends. */
void tb_link_conn_bye(struct tb_link_conn *c, enum tb_status why, uint64_t detail);
void tb_link_conn_free(struct tb_link_conn *c);
/* For one more: dialled by this link; NULL: accepted. */
bool tb_links_have_room(const struct tb_links *ls, const struct tb_link *l);
/* likewise; NULL: no memory, or no room */
struct tb_link_conn *tb_link_conn_new(struct tb_links *ls, struct tb_link *l);
/* Ours, and those of the peer that were identified. */
uint32_t tb_link_conn_count(const struct tb_link *l);
/* That came from outside, and turned out to be the peer's. */
uint32_t tb_link_conn_accepted(const struct tb_link *l);
/* An attempt of ours may still become the session. */
bool tb_link_has_candidate(const struct tb_link *l);
bool tb_link_same_address(const struct tb_address *a, const struct tb_address *b);

#endif

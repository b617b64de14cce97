/* link_path.h - where the peer of a link is, and what is known of the way there. */
#ifndef TB_WAN_LINK_PATH_H
#define TB_WAN_LINK_PATH_H

#include "base/dial_race.h"
#include "base/net/chan_facts.h"
#include "wan/link/links.h"
#include "wan/link/links_stats.h"
#include "wan/link/path/segment.h"
#include "wan/stream/tcp_path.h"

struct tb_link;
struct tb_link_resolving;

/* The reason for which a link is down, or ails (link_why.c). */
struct tb_link_said {
    enum tb_links_why why;
    bool up;      /* since `since`; else it is down since then */
    bool refused; /* down: a handshake or a BYE said no */
    tb_time_ns since;
    tb_time_ns at; /* `why` was seen last */
    char error[TB_LINKS_ERROR_BYTES];
};

struct tb_link_path {
    bool has_address;
    struct tb_endpoint endpoint;
    struct tb_link_resolving *resolving; /* a query is under way */
    struct tb_address addresses[TB_ADDRESSES_MAX];
    uint32_t address_count, address_at;
    tb_time_ns asked_at;    /* for the name, last; 0: never */
    struct tb_address good; /* the last one that became a session; bytes 0: none */
    tb_time_ns fresh_until; /* the name is asked again then; TB_TIME_NEVER: it is a number */
    uint32_t elsewhere;     /* answers in a row without the session's address */
    tb_time_ns renewed_at;  /* a fresh connection was dialled beside a session that works; 0: never */
    struct tb_race race;
    enum tb_chan_reach race_reach; /* how far the best of its dials came */
    struct tb_link_said said;
    struct tb_segment segment;
    uint32_t segment_stalls; /* dials that stalled in TLS and ended, since one was greeted */
    tb_time_ns segment_at;   /* it was looked at */
    uint64_t segment_seq;    /* streams of this session, up to the next, were counted as stalled */
    uint32_t segment_number;
    uint64_t control_acked;   /* bytes of the session's control stream, */
    tb_time_ns control_at;    /* since then; 0: not looked at yet */
    struct tb_address source; /* to dial from; bytes 0: the kernel's choice */
    struct tb_tcp_path_options tcp;
    char congestion[TB_TCP_CONGESTION_BYTES]; /* that tcp points to */
};

/* A numeric address; false: it is none. */
bool tb_link_source_parse(const char *text, struct tb_address *source_out);
/* Of a dial of the link. */
const struct tb_address *tb_link_source(const struct tb_link *l); /* NULL: the kernel's choice */
void tb_link_path_init(struct tb_link *l, const struct tb_links_peer_options *p);
/* To another address from now on, or to none (NULL). A session goes on. */
void tb_link_path_lead(struct tb_link *l, const char *address);
bool tb_link_can_dial(const struct tb_link *l);
/* The peer's address in the configuration, or what its name led to last. */
bool tb_link_path_leads_to(const struct tb_link *l, const struct sockaddr *host);
/* A session began. */
void tb_link_path_up(struct tb_link *l);
/* For each connection of the link. */
const struct tb_tcp_path_options *tb_link_tcp_options(const struct tb_link *l);
/* The kernel allows so many bytes under way. */
void tb_link_path_ceiling(struct tb_link *l, uint64_t send_bytes);
/* TCP_MAXSEG of new connections; 0: the path's own. */
uint32_t tb_link_segment_bytes(const struct tb_link *l);
/* A fresh connection was dialled beside a session that works; 0: never. */
tb_time_ns tb_link_renewed_at(const struct tb_link *l);

#endif

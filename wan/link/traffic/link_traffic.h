/* link_traffic.h - what crosses a link. */
#ifndef TB_WAN_LINK_TRAFFIC_H
#define TB_WAN_LINK_TRAFFIC_H

#include "wan/link/links.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/link_pause.h"
#include "wan/link/traffic/link_state.h"
#include "wan/link/traffic/push_table.h"

struct tb_link_ask;
struct tb_link_in;
struct tb_link;
struct tb_link_serve;
struct tb_feed;

struct tb_link_traffic {
    struct tb_link_models models;
    struct tb_link_pushes pushes;
    struct tb_link_ask *asks;
    uint64_t ask_seq;      /* of the last ask that was sent */
    uint32_t skipped_asks; /* that ended here while the peer may still answer them */
    uint64_t skipped_seq;  /* of the last of these */
    struct tb_link_serve *serves;
    struct tb_link_serve *unproven; /* whose digests went, and whose proofs are not all known yet */
    struct tb_link_crossings crossings;
    struct tb_link_in *ins;
    struct tb_link_streams streams;
    struct tb_feed *feed;
    struct tb_link_holdup holdup;
    struct tb_link_pause pause;
    struct tb_id peer_life; /* of the peer's arena, by its last HELLO; zero: none came */
};

enum tb_status tb_link_traffic_init(struct tb_link *l, const struct tb_links_peer_options *p);
void tb_link_traffic_fini(struct tb_link *l);
/* A session began: the life of the peer's arena, and the RTT of its control stream. */
void tb_link_traffic_up(struct tb_link *l, const struct tb_id *life, tb_time_ns rtt);
/* It ended. */
void tb_link_traffic_down(struct tb_link *l);
/* No stream is left. */
void tb_link_traffic_end(struct tb_link *l);
void tb_link_traffic_limit(struct tb_link *l, const struct tb_links_limit *limit);

#endif

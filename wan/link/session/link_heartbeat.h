/* link_heartbeat.h - the turn of a session. */
#ifndef TB_WAN_LINK_HEARTBEAT_H
#define TB_WAN_LINK_HEARTBEAT_H

#include "wan/link/links.h"

struct tb_link;
struct tb_links;
struct tb_wire_frame;

/* Heartbeats. */
enum tb_status tb_link_on_ping(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_pong(struct tb_link *l, struct tb_wire_frame *f);
void tb_link_up_tick(struct tb_link *l, tb_time_ns now);
void tb_link_up_stop(struct tb_link *l); /* closing */
void tb_links_conns_tick(struct tb_links *ls, tb_time_ns now);

#endif

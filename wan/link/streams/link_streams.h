/* link_streams.h - the turn of data streams. */
#ifndef TB_WAN_LINK_STREAMS_H
#define TB_WAN_LINK_STREAMS_H

#include "wan/link/links.h"

struct tb_link_conn;
struct tb_link;
struct tb_wire_frame;

void tb_link_streams_end_old(struct tb_link *l); /* of sessions that are over */
/* BIND came on an accepted connection. Anything but TB_OK closes it. */
enum tb_status tb_links_on_bind(struct tb_link_conn *c, struct tb_wire_frame *f);
enum tb_status tb_link_on_stream_gone(struct tb_link *l, struct tb_wire_frame *f);
/* A stream ended because the peer broke the protocol: the turn ends the session and ticks again. */
bool tb_link_streams_garbled(const struct tb_link *l);
void tb_link_streams_tick(struct tb_link *l, tb_time_ns now);

#endif

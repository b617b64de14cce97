/* link_versions.h - who offers what to whom. */
#ifndef TB_WAN_LINK_VERSIONS_H
#define TB_WAN_LINK_VERSIONS_H

#include "wan/link/links.h"

struct link;
struct offer;
struct tb_wire;
struct tb_wire_frame;

void tb_link_announce(struct link *l, struct offer *o);
void tb_link_subscribe(struct link *l, struct tb_wire *wire); /* on what is the session, or may be it soon */
void tb_link_versions_up(struct link *l);
void tb_link_versions_down(struct link *l); /* it ended */
enum tb_status tb_link_on_subscribe(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_denied(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_version(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_gone(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_whole(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_report(struct link *l, struct tb_wire_frame *f);
void tb_link_versions_tick(struct link *l);

#endif

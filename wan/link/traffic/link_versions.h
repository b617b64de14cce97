/* link_versions.h - who offers what to whom. */
#ifndef TB_WAN_LINK_VERSIONS_H
#define TB_WAN_LINK_VERSIONS_H

#include "wan/link/links.h"

struct tb_link;
struct tb_offer;
struct tb_wire;
struct tb_wire_frame;

void tb_link_announce(struct tb_link *l, struct tb_offer *o);
void tb_link_subscribe(struct tb_link *l,
                       struct tb_wire *wire); /* on what is the session, or may be it soon */
void tb_link_subscribe_to(struct tb_link *l, const struct tb_name *model); /* in the session that is up */
/* The peer asks for that model, and says that this is its home (empty: not said): it may, or is
 * refused. */
void tb_link_subscribed(struct tb_link *l, const struct tb_name *model, const struct tb_name *home);
void tb_link_refuse(struct tb_link *l, const struct tb_name *model, const struct tb_name *home);
void tb_link_versions_up(struct tb_link *l);
void tb_link_versions_down(struct tb_link *l); /* it ended */
enum tb_status tb_link_on_subscribe(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_denied(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_version(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_gone(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_whole(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_report(struct tb_link *l, struct tb_wire_frame *f);
void tb_link_versions_tick(struct tb_link *l);

#endif

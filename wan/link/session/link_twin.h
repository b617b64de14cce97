/* link_twin.h - two gateways with one identity. */
#ifndef TB_WAN_LINK_TWIN_H
#define TB_WAN_LINK_TWIN_H

#include "wan/link/links.h"

struct conn;
struct link;
struct tb_frame_hello;

void tb_link_twin_ask(struct link *l); /* the session, with a heartbeat: is it alive? */
void tb_link_twin_answered(struct link *l, tb_time_ns stamp, tb_time_ns now);
void tb_link_twin_found(struct link *l, const struct conn *twin, const struct tb_frame_hello *hello);
void tb_link_twin_is_us(struct link *l);                  /* the peer says so */
void tb_link_twin_forget(struct link *l, tb_time_ns now); /* what is too long ago */

#endif

/* link_twin.h - two gateways with one identity. */
#ifndef TB_WAN_LINK_TWIN_H
#define TB_WAN_LINK_TWIN_H

#include "wan/link/links.h"

struct tb_link_conn;
struct tb_link;
struct tb_frame_hello;

void tb_link_twin_ask(struct tb_link *l); /* the session, with a heartbeat: is it alive? */
void tb_link_twin_answered(struct tb_link *l, tb_time_ns stamp, tb_time_ns now);
void tb_link_twin_found(struct tb_link *l, const struct tb_link_conn *twin,
                        const struct tb_frame_hello *hello);
void tb_link_twin_is_us(struct tb_link *l);                  /* the peer says so */
void tb_link_twin_forget(struct tb_link *l, tb_time_ns now); /* what is too long ago */

#endif

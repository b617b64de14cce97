/* link_dial.h - dials: a peer's name becomes addresses, and these race each other. */
#ifndef TB_WAN_LINK_DIAL_H
#define TB_WAN_LINK_DIAL_H

#include "base/net/chan_facts.h"
#include "base/net/wire.h"
#include "wan/link/links.h"

struct tb_link_conn;
struct tb_link;
struct tb_links;

struct tb_wire_options tb_links_wire_options(struct tb_links *ls, struct tb_link_conn *c);
/* The race, and with it all dials that are not open yet. */
void tb_link_race_end(struct tb_link *l);
void tb_link_dial_won(struct tb_link_conn *won); /* it is open: what runs against it is closed */
/* Without a session. */
void tb_link_dial_ended(struct tb_link *l, bool racing, enum tb_status why, enum tb_chan_reach reach);
void tb_link_forget_resolving(struct tb_link *l);
/* A session that works, and that we dialled, is to go on over a fresh connection: dials one, which
 * takes over once it is greeted. */
void tb_link_renew(struct tb_link *l, tb_time_ns now);
/* The addresses to which the name of the peer resolves; not during a race. */
void tb_link_take_addresses(struct tb_link *l, const struct tb_address *addresses, uint32_t count,
                            tb_time_ns now);
void tb_link_names_doubt(struct tb_link *l); /* ask for the peer's name again, now */
void tb_link_dial(struct tb_link *l);        /* as the session's core asked for */
void tb_link_dial_tick(struct tb_link *l, tb_time_ns now);

#endif

/* link_why.h - what a link says of itself. No call changes what a link says that is up, except
 * where its comment says so. */
#ifndef TB_WAN_LINK_WHY_H
#define TB_WAN_LINK_WHY_H

#include "wan/link/links.h"
#include "wan/link/links_stats.h"

struct tb_link_conn;
struct tb_link;

/* a session began, or took the place of another */
void tb_link_said_up(struct tb_link *l);
void tb_link_said_down(struct tb_link *l, enum tb_status why); /* it ended */
void tb_link_said_expired(struct tb_link *l, bool ours);       /* and that because of a certificate */
void tb_link_said_init(struct tb_link *l);
/* Why it is down, or what ails it. */
enum tb_links_why tb_link_why(const struct tb_link *l);
/* Likewise in the statistics. */
void tb_link_said_show(const struct tb_link *l, struct tb_links_stats *stats_out);
/* a session, or HELLO, was refused */
void tb_link_said_bye(struct tb_link *l, enum tb_status why, bool by_peer);
void tb_link_said_twin(struct tb_link *l,
                       const struct tb_link_conn *twin); /* it was refused, and the session stays */
void tb_link_said_no_twin(struct tb_link *l);
void tb_link_said_mtu(struct tb_link *l);
void tb_link_said_no_mtu(struct tb_link *l);
void tb_link_said_unresolved(struct tb_link *l, enum tb_status why);
void tb_link_said_undialled(struct tb_link_conn *c,
                            enum tb_status status); /* a dial ended without a session */
/* the one that came and was refused */
void tb_links_said_stranger(struct tb_link_conn *c, enum tb_status why);

#endif

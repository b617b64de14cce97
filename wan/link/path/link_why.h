/* link_why.h - what a link says of itself. No call changes what a link says that is up, except where its comment says so. */
#ifndef TB_WAN_LINK_WHY_H
#define TB_WAN_LINK_WHY_H

#include "wan/link/links.h"

struct conn;
struct link;

void link_said_up(struct link *l);                       /* a session began, or took the place of another */
void link_said_down(struct link *l, enum tb_status why); /* it ended */
void link_said_expired(struct link *l, bool ours);       /* and that because of a certificate */
void link_said_init(struct link *l);
/* Why it is down, or what ails it. */
enum tb_links_why link_why(const struct link *l);
/* Likewise in the statistics. */
void link_said_show(const struct link *l, struct tb_links_stats *stats_out);
void link_said_bye(struct link *l, enum tb_status why, bool by_peer); /* a session, or HELLO, was refused */
void link_said_twin(struct link *l, const struct conn *twin); /* it was refused, and the session stays */
void link_said_no_twin(struct link *l);
void link_said_mtu(struct link *l);
void link_said_no_mtu(struct link *l);
void link_said_unresolved(struct link *l, enum tb_status why);
void link_said_undialled(struct conn *c, enum tb_status status); /* a dial ended without a session */
void links_said_stranger(struct conn *c, enum tb_status why); /* whoever it was that came, and was refused */

#endif

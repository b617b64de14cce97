/* link_day_budget.h - a peer's day of bytes that is used up. */
#ifndef TB_WAN_LINK_DAY_BUDGET_H
#define TB_WAN_LINK_DAY_BUDGET_H

#include "wan/link/links.h"

struct tb_link;
struct tb_wire_frame;

void tb_link_spent_tell(struct tb_link *l); /* link.spent may have changed */
enum tb_status tb_link_on_spent(struct tb_link *l, struct tb_wire_frame *f);

#endif

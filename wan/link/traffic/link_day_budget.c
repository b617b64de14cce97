/* link_day_budget.c - a peer's day of bytes that is used up (links.h: until_bytes): a peer that
 * waits for what it holds hears of it, and can say why nothing comes. */
#include "wan/link/traffic/link_day_budget.h"

#include "wan/link/link.h"
#include "wan/link/session/link_control.h"

void tb_link_spent_tell(struct tb_link *l)
{
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_SPENT ||
        l->traffic.crossings.told_spent == l->traffic.crossings.spent)
        return;
    l->traffic.crossings.told_spent = l->traffic.crossings.spent;
    LINK_SEND(l, TB_FRAME_SPENT, tb_frame_spent, LINK_SMALL, .spent = l->traffic.crossings.spent);
}

enum tb_status tb_link_on_spent(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_spent m;
    const enum tb_status status = tb_frame_spent_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_SPENT || m.spent > 1) return TB_PEER_GARBLED;
    l->stats.peer_spent = m.spent == 1;
    return TB_OK;
}

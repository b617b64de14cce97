/* link_state.h - the life of a peer's arena, STATE and HOLDUP. */
#ifndef TB_WAN_LINK_STATE_H
#define TB_WAN_LINK_STATE_H

#include "base/site_state.h"
#include "wan/link/links.h"

struct tb_link;
struct tb_wire_frame;

/* The reason that holds up chunks on their way to the peer. */
struct tb_link_holdup {
    enum tb_holdup told;   /* as the peer heard of us in this session */
    tb_time_ns at;         /* when it was looked at last */
    uint64_t sent, resent; /* bytes, as they were then */
};

void tb_link_life(struct tb_link *l,
                  const struct tb_id *life); /* a session began: what HELLO says of the peer's arena */
enum tb_status tb_link_on_state(struct tb_link *l, struct tb_wire_frame *f);
void tb_link_holdup_tick(struct tb_link *l, tb_time_ns now);
enum tb_status tb_link_on_holdup(struct tb_link *l, struct tb_wire_frame *f);
void tb_link_state_up(struct tb_link *l);

#endif

/* link_traffic_turn.h - the turn of all that crosses and lands. */
#ifndef TB_WAN_LINK_TRAFFIC_TURN_H
#define TB_WAN_LINK_TRAFFIC_TURN_H

#include "wan/link/links.h"

struct tb_link;
struct tb_offer;
struct tb_shared_places;

/* That version leaves. `deltas_stay`: its encoded chunks are kept. */
void tb_link_base_gone(struct tb_link *l, const struct tb_offer *o, bool deltas_stay);
bool tb_link_base_used(const struct tb_link *l,
                       const struct tb_shared_places *base); /* by a crossing, either way */
void tb_link_take_notes(struct tb_link *l);                  /* taken parcels and notes of the feed */
void tb_link_move_tick(struct tb_link *l, tb_time_ns now);
void tb_link_move_down(struct tb_link *l);
bool tb_link_moves(const struct tb_link *l); /* something is under way: tick fast */

#endif

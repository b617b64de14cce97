/* link_move.h - the turn of all that crosses and lands. */
#ifndef TB_WAN_LINK_MOVE_H
#define TB_WAN_LINK_MOVE_H

#include "wan/link/links.h"

struct link;
struct offer;
struct tb_shared_places;

/* That version leaves; what was encoded of it may stay. */
void tb_link_base_gone(struct link *l, const struct offer *o, bool steps_stay);
bool tb_link_base_used(const struct link *l,
                       const struct tb_shared_places *base); /* by a crossing, either way */
void tb_link_take_notes(struct link *l);                     /* taken parcels and notes of the feed */
void tb_link_move_tick(struct link *l, tb_time_ns now);
void tb_link_move_down(struct link *l);
bool tb_link_moves(const struct link *l); /* something is under way: tick fast */

#endif

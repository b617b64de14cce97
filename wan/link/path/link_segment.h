/* link_segment.h - a path on which large packets vanish. */
#ifndef TB_WAN_LINK_SEGMENT_H
#define TB_WAN_LINK_SEGMENT_H

#include "wan/link/links.h"

struct tb_link_conn;
struct tb_link;
struct tb_wire_frame;

void tb_link_segment_tick(struct tb_link *l, tb_time_ns now);
/* A session is about to take the place of `old`. True: that was stalled, and segments are to be
 * smaller: say so to tb_link_segment_up. */
bool tb_link_segment_replaced(struct tb_link *l, const struct tb_link_conn *old);
void tb_link_segment_up(struct tb_link *l, bool lowered);
enum tb_status tb_link_on_segment(struct tb_link *l, struct tb_wire_frame *f);
void tb_link_segment_probed(struct tb_link *l, bool opened);

#endif

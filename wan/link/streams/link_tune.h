/* link_tune.h - how many data streams are used, and which. */
#ifndef TB_WAN_LINK_TUNE_H
#define TB_WAN_LINK_TUNE_H

#include "wan/link/links.h"

struct tb_link;
struct tb_wire_frame;

enum tb_status tb_link_on_streams(struct tb_link *l, struct tb_wire_frame *f);
void tb_link_tune(struct tb_link *l, tb_time_ns now);

#endif

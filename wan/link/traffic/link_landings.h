/* link_landings.h - the turn of landings. */
#ifndef TB_WAN_LINK_LANDINGS_H
#define TB_WAN_LINK_LANDINGS_H

#include "wan/link/links.h"
#include "wan/send/feed.h"

struct tb_link;

void tb_link_in_note(struct tb_link *l, const struct tb_note *n);
void tb_link_ins_tick(struct tb_link *l, tb_time_ns now);
void tb_link_tell_held(struct tb_link *l, tb_time_ns now); /* all words that changed, now */

#endif

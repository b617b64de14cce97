/* links_check.h - asserts what holds of the links between two turns. Changes nothing. */
#ifndef TB_WAN_LINKS_CHECK_H
#define TB_WAN_LINKS_CHECK_H

#include <stdbool.h>

#include "base/time.h"

struct tb_link;
struct tb_links;

/* A turn ended. Where turns are checked (TB_CHECK_TURNS), small tables are checked at each; else,
 * and large ones, once a second. */
void tb_links_check(struct tb_links *ls, tb_time_ns now);
/* session/link_session_check.c: connections, and the session that is one of them. */
void tb_links_conns_check(const struct tb_links *ls);
/* traffic/traffic_check.c: offers, and what crosses a link. `small`: bitmaps too. */
void tb_links_offers_check(const struct tb_links *ls);
void tb_link_traffic_check(const struct tb_link *l, bool small);
void tb_links_divisions_check(const struct tb_links *ls);

#endif

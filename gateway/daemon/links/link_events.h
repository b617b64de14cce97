/* link_events.h - what links say, to the catalog and to the room that it is for. */
#ifndef TB_DAEMON_LINK_EVENTS_H
#define TB_DAEMON_LINK_EVENTS_H

#include "wan/link/links.h"

struct tb_daemon;

extern const struct tb_links_ops tb_link_events;
/* Announcements that found no row: once a second, while there are some. */
void tb_crossings_hear_again(struct tb_daemon *d);

#endif

/* found_streams.h - how many streams each peer's path takes, over restarts. */
#ifndef TB_DAEMON_FOUND_STREAMS_H
#define TB_DAEMON_FOUND_STREAMS_H

#include "wan/link/links.h"
#include "wan/link/links_stats.h"

struct tb_daemon;

TB_MUST_USE enum tb_status tb_found_open(struct tb_daemon *d);
/* Once a second. */
void tb_found_seen(struct tb_daemon *d, uint32_t peer, const struct tb_links_stats *stats);

#endif

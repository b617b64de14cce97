/* link_status.h - streams of links, and how fast copies fill and links move. */
#ifndef TB_DAEMON_LINK_STATUS_H
#define TB_DAEMON_LINK_STATUS_H

#include <jansson.h>

#include "wan/link/links.h"
#include "wan/link/links_stats.h"

struct tb_daemon;

enum tb_status tb_status_streams(void *user, const json_t *request, json_t *reply, char *error);
json_t *tb_status_window(const struct tb_links_stats *stats);
void tb_status_pace(struct tb_daemon *d); /* once a second: how fast copies fill and links move */

#endif

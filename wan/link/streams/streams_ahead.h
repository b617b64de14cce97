/* streams_ahead.h - data streams that are dialled before their session is greeted. */
#ifndef TB_WAN_STREAMS_AHEAD_H
#define TB_WAN_STREAMS_AHEAD_H

#include "wan/link/links.h"

struct tb_link;

/* Dials them before the session is greeted; each is adopted by a session at that
 * address, or ends. */
void tb_link_streams_ahead(struct tb_link *l, const struct tb_address *to);
void tb_link_streams_ahead_end(struct tb_link *l);
void tb_link_streams_adopt(struct tb_link *l); /* a session began */
/* Frees those that are gone. */
void tb_link_streams_ahead_gone(struct tb_link *l);

#endif

/* links_pause.h - models and links that an operator paused: no chunk of them crosses, either way,
 * until that ends. Held chunks stay, so a crossing goes on where it stopped (P5).
 *
 * Threads: as links.h. */
#ifndef TB_WAN_LINKS_PAUSE_H
#define TB_WAN_LINKS_PAUSE_H

#include "wan/link/links.h"
#include "wan/link/links_limits.h"

/* The models that are paused from now on, over every link: at most TB_LINKS_PAUSED_MAX; copied.
 * A parcel that a stream has in hand still goes. */
void tb_links_pause_models(struct tb_links *ls, const struct tb_name *models, uint32_t count);
/* All that crosses to that peer, and from it. */
void tb_links_pause_peer(struct tb_links *ls, uint32_t peer, bool paused);
/* By the peer's word its operator paused the link, or the model (NULL: the link alone counts). Of
 * a peer that is down, or whose protocol has no such word: false. */
bool tb_links_paused_there(const struct tb_links *ls, uint32_t peer, const struct tb_name *model);

#endif

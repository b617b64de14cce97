/* link_rights.h - which models are wanted from a peer, and which it may read, as that changes while
 * its session lasts. */
#ifndef TB_WAN_LINK_RIGHTS_H
#define TB_WAN_LINK_RIGHTS_H

#include "wan/link/links.h"

struct tb_link;

void tb_link_models_want(struct tb_link *l, const struct tb_name *models, uint32_t count);
/* When one came to them last; 0: never. A connection that was opened before did not ask for it. */
tb_time_ns tb_link_models_came_at(const struct tb_link *l);
void tb_link_right_given(struct tb_link *l, const struct tb_name *model);
void tb_link_right_taken(struct tb_link *l, const struct tb_name *model);

#endif

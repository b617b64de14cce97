/* group_rules.h - when a group goes. */
#ifndef TB_GATEWAY_GROUP_RULES_H
#define TB_GATEWAY_GROUP_RULES_H

#include "gateway/catalog/rows/group_rows.h"

void tb_group_settle(struct tb_catalog *c, uint32_t group);
/* A newer version that is here may replace one that still crosses; never the other way, so members
 * do not chase each other. */
bool tb_group_replaces_attempt(const struct tb_catalog *c, const struct group *g, const struct version *v);

#endif

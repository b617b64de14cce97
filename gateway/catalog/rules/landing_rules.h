/* landing_rules.h - the ranks and workers that home may read. */
#ifndef TB_GATEWAY_LANDING_RULES_H
#define TB_GATEWAY_LANDING_RULES_H

#include "gateway/catalog/rows/tables.h"

void tb_landing_settle(struct tb_catalog *c, uint32_t version);
/* The workers that are read had their time. False: no other worker with a part of it is left. */
bool tb_landing_ask_others(struct tb_catalog *c, uint32_t version);

#endif

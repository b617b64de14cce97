/* landing_rules.h - which ranks and workers home may read. */
#ifndef TB_GATEWAY_LANDING_RULES_H
#define TB_GATEWAY_LANDING_RULES_H

#include "gateway/catalog/rows/tables.h"

void tb_landing_settle(struct tb_catalog *c, uint32_t version);
/* Who was read had its time. False: there is nobody with a part of it who was not read yet. */
bool tb_landing_ask_others(struct tb_catalog *c, uint32_t version);

#endif

/* site_rules.h - what is doubted of other sites, and what this one tells them. */
#ifndef TB_GATEWAY_SITE_RULES_H
#define TB_GATEWAY_SITE_RULES_H

#include "gateway/catalog/rows/tables.h"

void tb_sites_tick(struct tb_catalog *c);
/* Every group of the model here activated it. */
void tb_catalog_site_activated_settle(struct tb_catalog *c, uint32_t model);

#endif

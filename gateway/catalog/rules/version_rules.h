/* version_rules.h - what follows for a version: ready, kept, lost, and what its end takes along. */
#ifndef TB_GATEWAY_VERSION_RULES_H
#define TB_GATEWAY_VERSION_RULES_H

#include "gateway/catalog/rows/version_rows.h"

void tb_version_settle(struct tb_catalog *c, uint32_t version);
tb_time_ns tb_versions_deadline(const struct tb_catalog *c); /* of the next verdict of loss */

#endif

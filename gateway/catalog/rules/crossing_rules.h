/* crossing_rules.h - which version crosses to here next, and from where. */
#ifndef TB_GATEWAY_CROSSING_RULES_H
#define TB_GATEWAY_CROSSING_RULES_H

#include "gateway/catalog/rows/version_rows.h"

void tb_catalog_crossing_settle(struct tb_catalog *c, uint32_t model);
uint32_t tb_catalog_crossing_from(const struct tb_catalog *c, const struct version *v,
                                  struct tb_name from_out[TB_CATALOG_FROM_MAX]);
/* Nothing came for a lease time. */
bool tb_version_crossing_stands(const struct tb_catalog *c, const struct version *v);
bool tb_version_crossing_stuck(const struct tb_catalog *c, const struct version *v);
/* CROSS is said again when the sites that can be asked changed. */
void tb_version_crossing_again(struct tb_catalog *c, uint32_t version);
/* As tb_catalog_crossing_abandon. */
bool tb_version_crossing_may_end(const struct tb_catalog *c, const struct version *v);
tb_time_ns tb_catalog_crossing_deadline(const struct tb_catalog *c);

#endif

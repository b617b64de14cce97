/* plans.h - the source of each worker: chosen, and judged. */
#ifndef TB_GATEWAY_PLANS_H
#define TB_GATEWAY_PLANS_H

#include "gateway/catalog/rows/version_rows.h"

void tb_plans_settle(struct tb_catalog *c, uint32_t version);
void tb_plans_tick(struct tb_catalog *c);
/* It told its progress. This is where a slow worker becomes a leaf: if it holds up its readers, it
 * is slow for the rest of this version, and they move. */
void tb_plan_judge(struct tb_catalog *c, uint32_t reference);
/* It gives its place up, and where it was the first of a chain, the slow behind it do too. */
void tb_plan_yield_place(struct tb_catalog *c, uint32_t reference);
/* The source of that reader failed it. */
void tb_plan_source_failed(struct tb_catalog *c, uint32_t reference);
/* Where the gateway serves, no worker of that version reads from another worker any more. */
void tb_plan_unproven(struct tb_catalog *c, uint32_t version);
/* The gateway holds more of a version: how fast they arrive says how many readers a NIC can
 * feed. */
void tb_plan_arrival(struct tb_catalog *c, uint32_t version);
/* Of a NIC that says this of itself; 0: it says nothing. */
uint32_t tb_plan_fan_out(const struct tb_catalog *c, const struct version *v, uint64_t nic_bytes_per_s);

#endif

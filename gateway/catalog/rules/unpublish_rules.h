/* unpublish_rules.h - when a rank gets its memory back. */
#ifndef TB_GATEWAY_UNPUBLISH_RULES_H
#define TB_GATEWAY_UNPUBLISH_RULES_H

#include "gateway/catalog/rows/tables.h"

void tb_unpublish_settle(struct tb_catalog *c, uint32_t version);
/* A hidden reference stays: it is back in sight, and its request is answered TB_TIMEOUT. References
 * hidden with it drain on. */
void tb_unpublish_take_back(struct tb_catalog *c, uint32_t reference);
/* The others that it was hidden with get their answer from another one of them. */
void tb_unpublish_hand_over(struct tb_catalog *c, uint32_t leader);
tb_time_ns tb_unpublish_deadline(const struct tb_catalog *c);

#endif

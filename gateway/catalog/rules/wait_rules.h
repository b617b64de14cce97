/* wait_rules.h - which waits have their answer. */
#ifndef TB_GATEWAY_WAIT_RULES_H
#define TB_GATEWAY_WAIT_RULES_H

#include "gateway/catalog/rows/tables.h"

/* Looks at all waits, where something changed that a wait may be about. An exact one may touch a
 * model. */
void tb_waits_settle(struct tb_catalog *c);

#endif

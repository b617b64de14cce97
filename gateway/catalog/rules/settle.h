/* settle.h - touched rows draw their conclusions until none is left. */
#ifndef TB_GATEWAY_SETTLE_H
#define TB_GATEWAY_SETTLE_H

#include "gateway/catalog/rows/tables.h"

/* Every request that changed something ends with this; returns `status`. */
enum tb_status tb_catalog_settle(struct tb_catalog *c, enum tb_status status);

#endif

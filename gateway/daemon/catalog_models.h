/* catalog_models.h - a model of the configuration becomes one of the catalog. */
#ifndef TB_DAEMON_CATALOG_MODELS_H
#define TB_DAEMON_CATALOG_MODELS_H

#include <stdint.h>

#include "tombolo/status.h"

struct tb_daemon;

/* Of that row of model_table.h: a new one, or one that is there, as the configuration says it
 * now. */
TB_MUST_USE enum tb_status tb_daemon_model(struct tb_daemon *d, uint32_t row);

#endif

/* catalog_models.h - a model of the configuration becomes one of the catalog. */
#ifndef TB_DAEMON_CATALOG_MODELS_H
#define TB_DAEMON_CATALOG_MODELS_H

#include "gateway/config/config.h"
#include "tombolo/status.h"

struct tb_daemon;

/* A new one, or one that is there, as the configuration says it now. */
TB_MUST_USE enum tb_status tb_daemon_model(struct tb_daemon *d, const struct tb_config_model *m);

#endif

/* readable_status.h - a site's status without the models that an identity has no right to. */
#ifndef TB_DAEMON_READABLE_STATUS_H
#define TB_DAEMON_READABLE_STATUS_H

#include <jansson.h>

#include "base/ident.h"
#include "gateway/config/config.h"

/* P8: in place. An entry of an array that has such a model goes; a text that names one becomes
 * empty. */
void tb_status_hide(const struct tb_config *config, const struct tb_identity *identity, json_t *status);

#endif

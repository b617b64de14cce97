/* live_status.h - the words of workers about the bytes that they compute from, for the status page
 * and as evidence of a lag. */
#ifndef TB_DAEMON_LIVE_STATUS_H
#define TB_DAEMON_LIVE_STATUS_H

#include <jansson.h>

#include "gateway/catalog/views.h"

struct tb_daemon;

/* `verdict`, `why`, `age_s` and the others of docs/control.md; null: nothing was said. NULL: no
 * memory. */
json_t *tb_live_status_proof(const struct tb_catalog_proof *proof);
/* A row for each subscription of the session that computes from a version. NULL: no memory. */
json_t *tb_live_status_serving(struct tb_daemon *d, const struct tb_id *session);
/* Puts a sentence about the first worker of the model whose bytes differ. False: there is none. */
bool tb_live_status_evidence(struct tb_daemon *d, const struct tb_name *model, char *out, size_t cap);

#endif

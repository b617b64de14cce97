/* version_status.h - a version's stages, what was sent of it, and when it comes. */
#ifndef TB_DAEMON_VERSION_STATUS_H
#define TB_DAEMON_VERSION_STATUS_H

#include <jansson.h>

#include "gateway/daemon/links/lag.h"

struct tb_copy;
struct tb_daemon;

/* A version's `stages`, `sent` and `eta_s`; `copy` may be NULL: nothing is here. False: no
 * memory. */
bool tb_status_moves(struct tb_daemon *d, const struct tb_copy *copy, uint64_t bytes, json_t *version);

/* P8: the newest runs of a model, the newest first: which identity opened each, and which one shut
 * it out. NULL: no memory. */
json_t *tb_status_runs(const struct tb_daemon *d, const struct tb_name *model);

#endif

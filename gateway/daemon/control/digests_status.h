/* digests_status.h - "digests" of the operator's socket: what a version that is held has, for a
 * publisher that compares files with it. */
#ifndef TB_DAEMON_DIGESTS_STATUS_H
#define TB_DAEMON_DIGESTS_STATUS_H

#include <jansson.h>

#include "tombolo/status.h"

enum tb_status tb_status_digests(void *user, const json_t *request, json_t *reply, char *error);

#endif

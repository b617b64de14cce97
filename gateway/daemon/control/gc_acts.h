/* gc_acts.h - "gc" of the operator's socket: what is kept for nobody goes now. */
#ifndef TB_DAEMON_GC_ACTS_H
#define TB_DAEMON_GC_ACTS_H

#include <jansson.h>

#include "tombolo/status.h"

enum tb_status tb_gc_command(void *user, const json_t *request, json_t *reply, char *error);

#endif

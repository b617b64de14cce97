/* pause_acts.h - "pause" and "resume" of the operator's socket. */
#ifndef TB_DAEMON_PAUSE_ACTS_H
#define TB_DAEMON_PAUSE_ACTS_H

#include <jansson.h>

#include "tombolo/status.h"

struct tb_daemon;

enum tb_status tb_pause_acts_command(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_resume_command(void *user, const json_t *request, json_t *reply, char *error);
/* All that is paused here; NULL: no memory. */
json_t *tb_pause_acts_json(const struct tb_daemon *d);

#endif

/* codec_status.h - which codecs a link chooses, and what encoded chunks are kept. New
 * references; NULL: no memory. */
#ifndef TB_DAEMON_CODEC_STATUS_H
#define TB_DAEMON_CODEC_STATUS_H

#include <jansson.h>

#include "wan/link/links.h"

struct tb_daemon;

/* New reference; NULL: no memory */
json_t *tb_status_choice(const struct tb_choice *choice);
json_t *tb_status_codec(struct tb_daemon *d, uint32_t peer);
json_t *tb_status_encoded(struct tb_daemon *d);

#endif

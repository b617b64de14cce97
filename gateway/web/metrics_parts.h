/* metrics_parts.h - families of series by their subject; metrics.c puts them together. */
#ifndef TB_GATEWAY_WEB_METRICS_PARTS_H
#define TB_GATEWAY_WEB_METRICS_PARTS_H

#include <stdio.h>

#include "gateway/web/web_facts.h"

/* `links` of "status", and of "streams" (NULL: not asked for). */
void tb_metrics_links(FILE *out, const json_t *links, const json_t *streams);
/* Sessions and groups of "status": versions in use, what the last update took. */
void tb_metrics_readers(FILE *out, const json_t *status);
void tb_metrics_stages(FILE *out, const struct tb_stage_times *times);

#endif

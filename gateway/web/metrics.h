/* metrics.h - a gateway's state in the text format of Prometheus (version 0.0.4 of that format).
 *
 * The names end in their unit, and in _total where they only grow. A value that is not known has no
 * series: nothing is 0 because nobody said it. Pure but for the stream; the JSON is that of
 * docs/control.md, and a field of another type counts as missing. */
#ifndef TB_GATEWAY_WEB_METRICS_H
#define TB_GATEWAY_WEB_METRICS_H

#include <stdio.h>

#include "gateway/web/web_facts.h"

void tb_metrics_write(FILE *out, const struct tb_web_facts *facts);

#endif

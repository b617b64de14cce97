/* lag_evidence.h - what the reason of a row of "lag" rests on, as a text for people: what this
 * gateway sees itself, or what another site said, and how long ago. */
#ifndef TB_DAEMON_LAG_EVIDENCE_H
#define TB_DAEMON_LAG_EVIDENCE_H

#include "gateway/catalog/records.h"
#include "wan/link/links.h"
#include "wan/link/links_stats.h"

#define TB_EVIDENCE_BYTES (TB_LINKS_ERROR_BYTES + 4 * TB_NAME_BYTES_MAX)

struct tb_daemon;
struct tb_site_lag;

/* Of this site, and the reason in lag->state. Empty: the reason says it all. */
void tb_evidence_here(struct tb_daemon *d, const struct tb_site_lag *lag, char out[TB_EVIDENCE_BYTES]);
/* Of a model that waits for a row here (model_waiting.h). */
void tb_evidence_waiting(struct tb_daemon *d, char out[TB_EVIDENCE_BYTES]);
/* Of another site, and the reason that its row has. */
void tb_evidence_there(struct tb_daemon *d, const struct tb_record *record, uint16_t reason,
                       char out[TB_EVIDENCE_BYTES]);

#endif
